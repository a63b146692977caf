"""The columns of the data source: what a read has, and what a write takes."""

from collections.abc import Callable, Mapping
from typing import Final

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pairbus.errors import ColumnError

_TEXTS: Final = MapType(StringType(), StringType())

_MESSAGE: Final[Mapping[str, DataType]] = {
    "body": BinaryType(),
    "bodyType": StringType(),
    "messageId": StringType(),
    "sessionId": StringType(),
    "subject": StringType(),
    "contentType": StringType(),
    "correlationId": StringType(),
    "partitionKey": StringType(),
    "to": StringType(),
    "replyTo": StringType(),
    "replyToSessionId": StringType(),
    "timeToLive": DayTimeIntervalType(),
    "scheduledEnqueueTime": TimestampType(),
    "applicationProperties": _TEXTS,
    "applicationPropertyTypes": _TEXTS,
}
"""What the sender has said."""

_BROKERS: Final[Mapping[str, DataType]] = {
    "sequenceNumber": LongType(),
    "enqueuedTime": TimestampType(),
    "expiresAt": TimestampType(),
    "deliveryCount": IntegerType(),
    "state": StringType(),
    "enqueuedSequenceNumber": LongType(),
    "deadLetterReason": StringType(),
    "deadLetterErrorDescription": StringType(),
    "deadLetterSource": StringType(),
}
"""What the broker has added."""

_BACKLOGS: Final[Mapping[str, DataType]] = {"destination": StringType(), "problem": StringType()}

READ: Final = StructType(
    [StructField(name, kind) for name, kind in {"entity": StringType(), **_BROKERS, **_MESSAGE}.items()]
)
READ_BACKLOG: Final = StructType([*(StructField(name, kind) for name, kind in _BACKLOGS.items()), *READ.fields])

WRITABLE: Final = ("entity", *_MESSAGE)

PROPERTY_TYPES: Final[Mapping[type[DataType], str]] = {
    StringType: "string",
    BooleanType: "boolean",
    ByteType: "byte",
    ShortType: "short",
    IntegerType: "int",
    LongType: "long",
    FloatType: "float",
    DoubleType: "double",
    BinaryType: "binary",
    TimestampType: "timestamp",
}
"""Which type of AMQP a property of each type of Spark is sent as."""


def check_readable(asked: StructType, *, is_backlog: bool) -> None:
    """Check the columns that a user has asked for, who need not ask for all.

    :raises ColumnError: one is not there, or is of another type.
    """
    offered = {field.name.lower(): field for field in (READ_BACKLOG if is_backlog else READ).fields}
    for field in asked.fields:
        found = offered.get(field.name.lower())
        if found is None:
            raise ColumnError(field.name, field.dataType.simpleString(), _not_there([f.name for f in offered.values()]))
        if found.dataType != field.dataType:
            wanted = found.dataType.simpleString()
            raise ColumnError(field.name, field.dataType.simpleString(), f"a read gives it as {wanted}; cast it then")


def check_writable(schema: StructType, entity: str | None) -> Mapping[str, int]:
    """Check the columns of what is to be written, and return which is where, by their names as they are here.

    Columns that only the broker gives are passed over, so that what was read can be written as it is.

    :param entity: the entity that the option names; None: there must be a column.
    :raises ColumnError: a column is missing, unknown, or of a type that cannot be sent.
    """
    names = {name.lower(): name for name in WRITABLE}
    passed_over = {name.lower() for name in (*_BROKERS, *_BACKLOGS)}
    where: dict[str, int] = {}
    for index, field in enumerate(schema.fields):
        name = names.get(field.name.lower())
        if name is None:
            if field.name.lower() in passed_over:
                continue
            cure = _not_there(WRITABLE) + ", drop it, or put it into applicationProperties"
            raise ColumnError(field.name, field.dataType.simpleString(), cure)
        if name in where:
            raise ColumnError(field.name, field.dataType.simpleString(), "there are two of this name; drop one")
        accepts, cure = _ACCEPTED[name]
        if not accepts(field.dataType):
            raise ColumnError(field.name, field.dataType.simpleString(), cure)
        where[name] = index
    if "body" not in where:
        raise ColumnError("body", None, "it is missing: name the payload so, such as to_json(struct(*)) AS body")
    if entity is None and "entity" not in where:
        raise ColumnError("entity", None, "it is missing: set the option entity, or add a column that names the entity")
    if "applicationPropertyTypes" in where:
        properties = schema.fields[where["applicationProperties"]] if "applicationProperties" in where else None
        if properties is None or properties.dataType != _TEXTS:
            raise ColumnError(
                "applicationPropertyTypes",
                _TEXTS.simpleString(),
                "it tells the types of texts: applicationProperties must be map<string,string> then",
            )
    return where


def _not_there(names: "list[str] | tuple[str, ...]") -> str:
    return f"there is no such column; rename it to one of {', '.join(names)}"


def _is_text(kind: DataType) -> bool:
    return isinstance(kind, StringType)


def _is_body(kind: DataType) -> bool:
    return isinstance(kind, StringType | BinaryType)


def _is_duration(kind: DataType) -> bool:
    numbers = (ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType, DecimalType)
    return isinstance(kind, (DayTimeIntervalType, *numbers))


def _is_moment(kind: DataType) -> bool:
    return isinstance(kind, TimestampType)


def _is_texts(kind: DataType) -> bool:
    return isinstance(kind, MapType) and _is_text(kind.keyType) and _is_text(kind.valueType)


def _is_properties(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return all(type(field.dataType) in PROPERTY_TYPES for field in kind.fields)
    return isinstance(kind, MapType) and _is_text(kind.keyType) and type(kind.valueType) in PROPERTY_TYPES


_TEXT: Final = (_is_text, "it must be a string; cast it: CAST(… AS STRING)")
_SENDABLE: Final = ", ".join(sorted(PROPERTY_TYPES.values()))
_ACCEPTED: Final[Mapping[str, tuple[Callable[[DataType], bool], str]]] = {
    **dict.fromkeys(WRITABLE, _TEXT),
    "body": (_is_body, "it must be binary or a string; make it one: to_json(…), CAST(… AS STRING)"),
    "timeToLive": (
        _is_duration,
        "it must be an interval day to second, or a number of seconds: make_dt_interval(0, 0, minutes, 0)",
    ),
    "scheduledEnqueueTime": (_is_moment, "it must be a timestamp with its zone: CAST(… AS TIMESTAMP_LTZ)"),
    "applicationProperties": (
        _is_properties,
        f"it must be a map<string, T>, or a struct of the properties, of these types: {_SENDABLE}; cast what is not",
    ),
    "applicationPropertyTypes": (_is_texts, "it must be a map<string,string>, as a read gives it"),
}
