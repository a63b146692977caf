"""AMQP 1.0, pure: bytes in, events and bytes out, for both roles."""
