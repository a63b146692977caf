"""The port of a namespace: what listens there, and the protocols that are spoken on it."""
