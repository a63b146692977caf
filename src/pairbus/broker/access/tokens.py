"""Shared access signatures: ``SharedAccessSignature sr=…&sig=…&se=…&skn=…``."""

import base64
import binascii
import enum
import hashlib
import hmac
import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote_plus, unquote, unquote_plus

KIND: Final = "SharedAccessSignature"
MAX_TOKEN: Final = 8192
_FIELDS: Final = {"sr", "sig", "se", "skn"}
_SECONDS: Final = re.compile(r"[0-9]{1,12}")


class Reason(enum.StrEnum):
    """Why somebody is refused; the value is what the cloud's texts begin with."""

    MISSING = "MissingToken"
    MALFORMED = "MalformedToken"
    UNSUPPORTED = "UnsupportedToken"
    EXPIRED = "ExpiredToken"
    AUDIENCE = "InvalidAudience"
    SIGNATURE = "InvalidSignature"
    UNKNOWN_POLICY = "UnknownPolicy"
    """For the log; the client hears what it hears for a wrong signature, so that nobody can ask for names."""
    CLAIM = "Unauthorized"


@dataclass(frozen=True, slots=True)
class Refused:
    """A refusal; over HTTP and on ``$cbs`` it is a 401.

    :ivar text: what the client is told. There is no secret in it.
    """

    reason: Reason
    text: str


@dataclass(frozen=True, slots=True)
class Token:
    """A token that can be read; whether it is valid is not known yet.

    :ivar resource: the URI that it is for.
    :ivar names: the policy's name. Python's SDK encodes it twice, so there may be two readings.
    :ivar expires: when it expires, in milliseconds since the epoch.
    """

    resource: str
    names: tuple[str, ...]
    expires: int
    _signed: bytes = field(repr=False)
    _signature: bytes = field(repr=False)

    def is_signed_with(self, key: str) -> bool:
        """Tell whether a key has made the signature; takes as long whether or not."""
        return hmac.compare_digest(_digest(key, self._signed), self._signature)


def is_signature(text: str) -> bool:
    """Tell whether a token is meant to be a shared access signature."""
    return text.strip().partition(" ")[0].lower() == KIND.lower()


def parse(text: str) -> Token | Refused:
    """Read a token. Never raises."""
    rest = text.strip().partition(" ")[2]
    if not is_signature(text):
        return _malformed(f"it begins with '{KIND} '")
    if len(text) > MAX_TOKEN:
        return _malformed(f"it has {MAX_TOKEN} characters at most")
    fields: dict[str, str] = {}
    for part in rest.strip().split("&"):
        name, _, value = part.partition("=")
        if name in fields:
            return _malformed(f"it has '{name[:3]}' once" if name in _FIELDS else "it has each field once")
        fields[name] = value
    missing = sorted(name for name in _FIELDS if not fields.get(name))
    if missing:
        return _malformed(f"it has sr, sig, se and skn; missing here: {', '.join(missing)}")
    if not _SECONDS.fullmatch(fields["se"]):
        return _malformed("se is a whole number of seconds since 1970")
    try:
        signature = base64.b64decode(unquote(fields["sig"]), validate=True)
    except (binascii.Error, ValueError):
        return _malformed("sig is base64, percent-encoded")
    once = unquote_plus(fields["skn"])
    return Token(
        resource=unquote_plus(fields["sr"]),
        names=tuple(dict.fromkeys((once, unquote_plus(once)))),
        expires=int(fields["se"]) * 1000,
        _signed=f"{fields['sr']}\n{fields['se']}".encode(errors="replace"),
        _signature=signature,
    )


def sign(uri: str, policy: str, key: str, expires: int) -> str:
    """Make a token; ``expires`` is in seconds since the epoch."""
    encoded = quote_plus(uri)
    signature = base64.b64encode(_digest(key, f"{encoded}\n{expires}".encode())).decode()
    return f"{KIND} sr={encoded}&sig={quote_plus(signature)}&se={expires}&skn={quote_plus(policy)}"


def _digest(key: str, signed: bytes) -> bytes:
    return hmac.new(key.encode(), signed, hashlib.sha256).digest()


def _malformed(what: str) -> Refused:
    return Refused(Reason.MALFORMED, f"{Reason.MALFORMED}: The token cannot be read: {what}.")
