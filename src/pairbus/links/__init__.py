"""The ways to the wire: two ports, and an adapter for each of the clients that carry messages."""
