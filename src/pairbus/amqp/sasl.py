"""Authentication before a connection opens: the server's and the client's side, one object per connection.

Four mechanisms: ``ANONYMOUS`` and ``MSSBCBS`` (both say nothing: a token follows on the ``$cbs`` link), ``PLAIN``
(a name and a password) and ``EXTERNAL`` (what the transport knows, a TLS certificate).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from pairbus.amqp.conditions import DECODE_ERROR, NOT_ALLOWED, UNAUTHORIZED_ACCESS, AmqpError
from pairbus.amqp.performatives import (
    SaslChallenge,
    SaslFrame,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from pairbus.amqp.types import Symbol

ANONYMOUS: Final = Symbol("ANONYMOUS")
PLAIN: Final = Symbol("PLAIN")
MSSBCBS: Final = Symbol("MSSBCBS")
EXTERNAL: Final = Symbol("EXTERNAL")

OK: Final = 0
AUTHENTICATION_FAILED: Final = 1
SYSTEM_FAILED: Final = 3

_PLAIN_PARTS: Final = 3


@dataclass(slots=True, frozen=True)
class Credentials:
    """What a client has shown of itself."""

    mechanism: Symbol
    username: str = ""
    password: str = ""
    authorization_id: str = ""
    """Whom it wants to act as; of PLAIN and EXTERNAL."""
    hostname: str | None = None
    """The host it means to talk to."""


Authenticate: TypeAlias = Callable[[Credentials], bool]


def allow_all(_credentials: Credentials) -> bool:
    """Let everybody in: who they are is asked later, or not at all."""
    return True


class SaslServer:
    """The server's side. ``authenticate`` decides, at once and without I/O, once the mechanism's data is complete."""

    __slots__ = ("_authenticate", "_init", "credentials", "mechanisms")

    def __init__(
        self,
        mechanisms: Sequence[str] = (MSSBCBS, PLAIN, ANONYMOUS, EXTERNAL),
        authenticate: Authenticate = allow_all,
    ) -> None:
        self.mechanisms = tuple(Symbol(name) for name in mechanisms)
        self.credentials: Credentials | None = None
        self._authenticate = authenticate
        self._init: SaslInit | None = None

    def offer(self) -> SaslMechanisms:
        """Return the frame with which the server begins."""
        return SaslMechanisms(self.mechanisms)

    def answer(self, received: SaslFrame) -> SaslChallenge | SaslOutcome:
        """Return the answer to a client's frame; with an outcome the exchange has ended."""
        if isinstance(received, SaslInit) and self._init is None:
            self._init = received
            response = received.initial_response
        elif isinstance(received, SaslResponse) and self._init is not None:
            response = received.response
        else:
            raise AmqpError(NOT_ALLOWED, f"{type(received).__name__} is not what a client says here")
        if self._init.mechanism not in self.mechanisms:
            return SaslOutcome(AUTHENTICATION_FAILED)
        if response is None and self._init.mechanism in {PLAIN, EXTERNAL}:
            return SaslChallenge(b"")
        credentials = _credentials(self._init, response or b"")
        if credentials is None or not self._authenticate(credentials):
            return SaslOutcome(AUTHENTICATION_FAILED)
        self.credentials = credentials
        return SaslOutcome(OK)


def _credentials(init: SaslInit, response: bytes) -> Credentials | None:
    if init.mechanism in {ANONYMOUS, MSSBCBS}:
        return Credentials(init.mechanism, hostname=init.hostname)
    try:
        text = response.decode()
    except UnicodeDecodeError:
        return None
    if init.mechanism != PLAIN:
        return Credentials(init.mechanism, authorization_id=text, hostname=init.hostname)
    parts = text.split("\0")
    if len(parts) != _PLAIN_PARTS:
        return None
    return Credentials(init.mechanism, parts[1], parts[2], parts[0], init.hostname)


class SaslClient:
    """The client's side, with one mechanism; ``hostname`` tells the server which of its names is meant."""

    __slots__ = ("_response", "hostname", "mechanism")

    def __init__(
        self, mechanism: str = ANONYMOUS, *, username: str = "", password: str = "", hostname: str | None = None
    ) -> None:
        self.mechanism = Symbol(mechanism)
        self.hostname = hostname
        self._response = f"\0{username}\0{password}".encode() if mechanism == PLAIN else b""

    def answer(self, received: SaslFrame) -> SaslInit | SaslResponse | None:
        """Return the answer to a server's frame; ``None`` when the server has let the client in."""
        if isinstance(received, SaslMechanisms):
            if self.mechanism not in received.sasl_server_mechanisms:
                offered = ", ".join(received.sasl_server_mechanisms)
                raise AmqpError(UNAUTHORIZED_ACCESS, f"the server offers {offered or 'nothing'}, not {self.mechanism}")
            return SaslInit(self.mechanism, self._response, self.hostname)
        if isinstance(received, SaslChallenge):
            return SaslResponse(self._response)
        if isinstance(received, SaslOutcome):
            if received.code != OK:
                raise AmqpError(UNAUTHORIZED_ACCESS, f"the server refused {self.mechanism} with code {received.code}")
            return None
        raise AmqpError(DECODE_ERROR, f"{type(received).__name__} is not what a server says")
