"""Spark's data source ``servicebus``: writes with pairing, and reads by browsing."""
