"""Where the broker keeps what must outlive it: a port, and an implementation per module."""
