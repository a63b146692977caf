"""What carries parked messages home: the mover, the worker that has one for each queue, and the rounds of a drain."""
