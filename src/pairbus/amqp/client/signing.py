"""Shared access signatures: what a client with a key puts to ``$cbs``."""

import base64
import hashlib
import hmac
from urllib.parse import quote_plus

TOKEN_TYPE = "servicebus.windows.net:sastoken"  # noqa: S105 (the name of a type)


def sign(audience: str, policy: str, key: str, expires_on: int) -> str:
    """Return the token of a policy for an audience, valid until then (seconds since the epoch)."""
    resource = quote_plus(audience)
    digest = hmac.new(key.encode(), f"{resource}\n{expires_on}".encode(), hashlib.sha256).digest()
    signature = quote_plus(base64.b64encode(digest))
    return f"SharedAccessSignature sr={resource}&sig={signature}&se={expires_on}&skn={quote_plus(policy)}"
