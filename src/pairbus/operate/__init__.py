"""What an operator does with a pairing: look at the backlog, deal with dead letters, rehearse an outage."""
