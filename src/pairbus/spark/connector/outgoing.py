"""Rows become messages."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, TypeAlias, cast

from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage
from pyspark.sql.types import MapType, StructType

from pairbus.errors import ColumnError
from pairbus.spark.connector.arrow import RecordBatch, columns_of
from pairbus.spark.connector.columns import PROPERTY_TYPES, WRITABLE
from pairbus.spark.connector.incoming import LONGEST_IN_HEADER
from pairbus.spark.connector.values import from_text, sdk_body, typed

Message: TypeAlias = ServiceBusMessage | AmqpAnnotatedMessage

_LONGEST: Final = LONGEST_IN_HEADER * timedelta(milliseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)

_ARGUMENTS: Final[Mapping[str, str]] = {
    "sessionId": "session_id",
    "subject": "subject",
    "contentType": "content_type",
    "correlationId": "correlation_id",
    "partitionKey": "partition_key",
    "to": "to",
    "replyTo": "reply_to",
    "replyToSessionId": "reply_to_session_id",
    "scheduledEnqueueTime": "scheduled_enqueue_time_utc",
}
"""Columns whose values the SDK takes as they are."""


class MessageIds:
    """Gives a message that has no id one that it gets again when the same rows are written again.

    The id is made of the scope, the row's content, and how often that content came before. So it does not depend on the
    order of the rows, which a shuffle does not keep; two rows that are alike get two ids.

    :param scope: what is written: which query, batch and partition.
    """

    def __init__(self, scope: str) -> None:
        self._scope = hashlib.blake2b(scope.encode(), digest_size=32).digest()
        self._seen: Counter[bytes] = Counter()

    def next(self, row: Sequence[object]) -> str:
        """Return the id of the next row."""
        content = hashlib.blake2b(repr(row).encode(), digest_size=16, key=self._scope).digest()
        self._seen[content] += 1
        times = self._seen[content]
        return hashlib.blake2b(content + times.to_bytes(8), digest_size=16, key=self._scope).hexdigest()


class Rows:
    """Makes messages of rows.

    :param schema: of the rows.
    :param where: which column is where (:func:`~pairbus.spark.connector.columns.check_writable`).
    :param entity: where all of them go; None: where the column says.
    """

    def __init__(self, schema: StructType, where: Mapping[str, int], entity: str | None) -> None:
        self._columns = [(name, where[name]) for name in WRITABLE if name in where]
        self._entity = entity
        index = where.get("applicationProperties")
        self._properties = None if index is None else _properties_of(schema.fields[index].dataType)

    def messages(self, batch: RecordBatch, ids: MessageIds, first: int = 0) -> Iterator[tuple[str, Message]]:
        """Return each row's entity and message.

        :param first: how many rows came before, to name one in an error.
        :raises ColumnError: a row cannot be sent.
        """
        names = [name for name, _ in self._columns]
        columns = columns_of(batch, [index for _, index in self._columns])
        for number, values in enumerate(zip(*columns, strict=True), first):
            row = dict(zip(names, values, strict=True))
            if row.get("messageId") is None:
                row["messageId"] = ids.next(values)
            try:
                yield self._entity_of(row), self._message(row)
            except ColumnError as error:
                raise ColumnError(error.column, error.kind, error.cure, row=f"row {number}") from None

    def _entity_of(self, row: Mapping[str, Any]) -> str:
        entity = self._entity or row["entity"]
        if not entity:
            raise ColumnError("entity", None, f"it is {entity!r}; name the queue or topic, or set the option entity")
        return entity

    def _message(self, row: Mapping[str, Any]) -> Message:
        body = row["body"]
        if body is None:
            raise ColumnError("body", None, "it is null; a message without a payload has an empty one")
        kind = row.get("bodyType") or "data"
        arguments = {name: value for column, name in _ARGUMENTS.items() if (value := row.get(column)) is not None}
        arguments["message_id"] = row["messageId"]
        arguments["time_to_live"] = _duration(row.get("timeToLive"))
        arguments["application_properties"] = self._application_properties(row)
        try:
            made = ServiceBusMessage(body if kind == "data" else b"", **arguments)
        except (TypeError, ValueError) as error:  # the SDK's own checks: lengths, a partition key beside a session
            raise ColumnError("body", None, f"the message is not valid: {error}") from None
        _set_milliseconds(made, arguments["time_to_live"])
        return made if kind == "data" else _with_body(made, kind, body)

    def _application_properties(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        given = row.get("applicationProperties")
        if not given or self._properties is None:
            return None
        types: dict[str, str] = dict(row.get("applicationPropertyTypes") or ())
        return self._properties(given, types)


def _set_milliseconds(message: ServiceBusMessage, life: timedelta | None) -> None:
    """Give a message its time to live to the millisecond: the SDK cuts it to whole seconds, even to none at all."""
    header = message.raw_amqp_message.header
    if life is not None and header is not None:
        header.time_to_live = max(1, life // _MILLISECOND)


def _with_body(made: ServiceBusMessage, kind: str, body: str | bytes) -> AmqpAnnotatedMessage:
    raw = made.raw_amqp_message
    try:
        argument = sdk_body(kind, body.encode() if isinstance(body, str) else body)
    except ValueError as error:
        raise ColumnError("body", kind, str(error)) from None
    return AmqpAnnotatedMessage(
        header=raw.header,
        properties=raw.properties,
        annotations=cast("dict[str, Any]", raw.annotations),
        application_properties=cast("dict[str, Any]", raw.application_properties),
        **argument,
    )


_Reader: TypeAlias = Callable[[Any, Mapping[str, str]], dict[str, Any]]


def _properties_of(kind: object) -> _Reader:
    """Return what reads a value of the column ``applicationProperties``."""
    if isinstance(kind, StructType):
        fields = [(field.name, PROPERTY_TYPES[type(field.dataType)]) for field in kind.fields]

        def of_struct(value: Mapping[str, Any], _types: Mapping[str, str]) -> dict[str, Any]:
            return {name: _typed(amqp, value[name]) for name, amqp in fields if value[name] is not None}

        return of_struct
    amqp = PROPERTY_TYPES[type(cast("MapType", kind).valueType)]

    def of_map(value: Sequence[tuple[str, Any]], types: Mapping[str, str]) -> dict[str, Any]:
        if not types:
            return {name: _typed(amqp, each) for name, each in value}
        return {name: _of_text(name, types.get(name, "string"), each) for name, each in value}

    return of_map


def _of_text(name: str, kind: str, text: str | None) -> object:
    try:
        return from_text(kind, text)
    except ValueError as error:
        raise ColumnError("applicationProperties", None, f"{name!r}: {error}") from None


def _typed(kind: str, value: object) -> object:
    if value is None:
        return typed("null", None)
    if isinstance(value, str):
        return value
    if isinstance(value, datetime):
        return typed(kind, (value - _EPOCH) // _MILLISECOND)
    return typed(kind, value)


def _duration(value: timedelta | float | Decimal | None) -> timedelta | None:
    if value is None:
        return None
    made = value if isinstance(value, timedelta) else timedelta(seconds=float(value))
    if not timedelta(0) < made <= _LONGEST:
        raise ColumnError("timeToLive", None, f"it is {made}; the SDK sends more than nothing and up to {_LONGEST}")
    return made
