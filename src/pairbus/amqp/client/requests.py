"""Requests to a node such as ``$cbs`` or ``$management``, and what it answers, as messages."""

from collections.abc import Mapping
from dataclasses import dataclass

from pairbus.amqp.message import Message, build_message, encode_value_section
from pairbus.amqp.performatives import Map
from pairbus.amqp.sections import MessageId, Properties
from pairbus.amqp.types import Value

_MAX_OK = 299
_STATUS = ("statusCode", "status-code")
_DESCRIPTION = ("statusDescription", "status-description")
_CONDITION = ("errorCondition", "error-condition")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a node has answered; ``status`` is as in HTTP."""

    status: int
    description: str = ""
    condition: str | None = None
    body: Value = None

    @property
    def is_good(self) -> bool:
        """Whether it did what it was asked for."""
        return 0 < self.status <= _MAX_OK


def request(number: int, reply_to: str, properties: Mapping[str, Value], body: Value) -> bytes:
    """Encode a request; the answer's correlation id is its number."""
    return build_message(
        encode_value_section(body),
        properties=Properties(message_id=str(number), reply_to=reply_to),
        application_properties=dict(properties),
    )


def read_answer(payload: bytes) -> tuple[int | None, Answer]:
    """Return the number of the request that a message answers, if it says so, and the answer.

    :raises AmqpError: the bytes are malformed.
    """
    message = Message(payload)
    standard = message.properties()
    told = message.application_properties()
    status = _first(told, _STATUS)
    values = message.body_values()
    condition = _first(told, _CONDITION)
    answer = Answer(
        int(status) if isinstance(status, int) else 0,
        str(_first(told, _DESCRIPTION) or ""),
        str(condition) if condition is not None else None,
        values[0] if values else None,
    )
    return _number(standard.correlation_id if standard is not None else None), answer


def _number(correlation: MessageId | None) -> int | None:
    return int(correlation) if isinstance(correlation, str) and correlation.isdecimal() else None


def _first(told: Map, names: tuple[str, ...]) -> Value:
    return next((told[name] for name in names if name in told), None)
