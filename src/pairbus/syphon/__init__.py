"""What carries parked messages home: the mover, and who drives it."""
