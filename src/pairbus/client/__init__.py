"""The client of an application: factories, senders that park, pairings, pings and availability."""
