"""TLS towards Azure."""

import ssl
from functools import cache

import certifi


@cache
def tls_context() -> ssl.SSLContext:
    """Return the context that the SDK makes for each connection anew, which takes a tenth of a second each time."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(certifi.where())
    return context
