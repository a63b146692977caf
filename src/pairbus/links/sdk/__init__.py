"""The adapter over the official SDK."""
