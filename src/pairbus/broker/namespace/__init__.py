"""A namespace: its entities by their paths, as they are made, changed and deleted."""
