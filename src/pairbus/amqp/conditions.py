"""The AMQP error conditions that this package raises, and the one exception that carries them."""

from typing import Final

from pairbus.amqp.types import Symbol
from pairbus.errors import PairbusError

INTERNAL_ERROR: Final = Symbol("amqp:internal-error")
NOT_FOUND: Final = Symbol("amqp:not-found")
UNAUTHORIZED_ACCESS: Final = Symbol("amqp:unauthorized-access")
DECODE_ERROR: Final = Symbol("amqp:decode-error")
RESOURCE_LIMIT_EXCEEDED: Final = Symbol("amqp:resource-limit-exceeded")
NOT_ALLOWED: Final = Symbol("amqp:not-allowed")
INVALID_FIELD: Final = Symbol("amqp:invalid-field")
NOT_IMPLEMENTED: Final = Symbol("amqp:not-implemented")
ILLEGAL_STATE: Final = Symbol("amqp:illegal-state")
CONNECTION_FORCED: Final = Symbol("amqp:connection:forced")
FRAMING_ERROR: Final = Symbol("amqp:connection:framing-error")
WINDOW_VIOLATION: Final = Symbol("amqp:session:window-violation")
HANDLE_IN_USE: Final = Symbol("amqp:session:handle-in-use")
UNATTACHED_HANDLE: Final = Symbol("amqp:session:unattached-handle")
DETACH_FORCED: Final = Symbol("amqp:link:detach-forced")
TRANSFER_LIMIT_EXCEEDED: Final = Symbol("amqp:link:transfer-limit-exceeded")
MESSAGE_SIZE_EXCEEDED: Final = Symbol("amqp:link:message-size-exceeded")


class AmqpError(PairbusError):
    """Bytes or a call that AMQP does not allow; ``condition`` is what a peer is told about it.

    Decoding anything malformed raises this and nothing else. A connection never lets it out of
    ``receive_data``: there it becomes the error of the close, end or detach that is sent.
    """

    def __init__(self, condition: Symbol, description: str) -> None:
        self.condition = condition
        self.description = description
        super().__init__(f"{condition}: {description}")
