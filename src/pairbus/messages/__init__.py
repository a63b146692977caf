"""Messages as the SDK, the wire and JSON have them."""
