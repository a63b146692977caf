"""The rules of pairing: pure, standard library only, time and randomness handed in."""
