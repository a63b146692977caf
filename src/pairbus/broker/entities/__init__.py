"""Queues and what they are made of: pure, with ``now`` (milliseconds since the epoch, UTC) handed in."""
