"""The embedded broker that the official SDK talks to."""
