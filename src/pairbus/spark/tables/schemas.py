"""The schema of every table of the ledger pipeline, with what each column means; the reference is drawn from it.

Money is whole nano-units of the plan's currency, durations are whole microseconds, and times are UTC.
"""

from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import (
    DataType,
    DateType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_DATE: Final = DateType()
_NUMBER: Final = LongType()
_RATIO: Final = DoubleType()
_TEXT: Final = StringType()
_TIME: Final = TimestampType()


@dataclass(frozen=True)
class Table:
    """A table on disk: Parquet, partitioned by ``date``, and bronze by its ``source`` as well.

    :ivar key: the columns that no two rows have in common.
    """

    name: str
    meaning: str
    key: tuple[str, ...]
    schema: StructType
    partitions: tuple[str, ...] = ("date",)

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        return self.schema.names


def _schema(*columns: tuple[str, DataType, str]) -> StructType:
    return StructType([StructField(name, kind, metadata={"comment": meaning}) for name, kind, meaning in columns])


LINES: Final = _schema(
    ("value", _TEXT, "one line of a ledger file"),
    ("file", _TEXT, "the file"),
    ("source", _TEXT, "what was read at once: the file, or a part of it; read again, it replaces what was read before"),
)
"""What bronze is made from, whether it was read at once or comes as a stream."""

BROKEN: Final = "broken"

RECORD: Final = _schema(
    ("v", _NUMBER, ""),
    ("id", _TEXT, ""),
    ("at", _TEXT, ""),
    ("metered_by", _TEXT, ""),
    ("client", _TEXT, ""),
    ("namespace", _TEXT, ""),
    ("entity", _TEXT, ""),
    ("kind", _TEXT, ""),
    ("stage", _TEXT, ""),
    ("outcome", _TEXT, ""),
    ("messages", _NUMBER, ""),
    ("operations", _NUMBER, ""),
    ("bytes", _NUMBER, ""),
    ("duration_us", _NUMBER, ""),
    ("destination", _TEXT, ""),
    ("oldest_at", _TEXT, ""),
    ("detail", _TEXT, ""),
    (BROKEN, _TEXT, "the line itself, if it is no JSON or a number is none"),
)
"""One line as JSON. Times are read as text, because only a time with its zone is one."""

_RECORD_COLUMNS: Final = (
    ("id", _TEXT, "unique among all ledgers"),
    ("at", _TIME, "when it ended"),
    ("metered_by", _TEXT, "`client` or `broker`"),
    ("client", _TEXT, "who did it"),
    ("namespace", _TEXT, "where it was done"),
    ("entity", _TEXT, "at which queue, topic or subscription"),
    ("kind", _TEXT, "what was done, see [the ledger](ledger.md)"),
    ("stage", _TEXT, "at which point of a message's way"),
    ("outcome", _TEXT, "`done`, `failed` or `unknown`"),
    ("messages", _NUMBER, "how many messages"),
    ("operations", _NUMBER, "how many operations it is charged as"),
    ("bytes", _NUMBER, "encoded size of its messages"),
    ("duration_us", _NUMBER, "how long it took"),
    ("destination", _TEXT, "where a message of a backlog queue belongs; null: not known"),
    ("oldest_at", _TIME, "when the oldest of its messages was enqueued; null: not known"),
    ("detail", _TEXT, "the error's class, the new state of a turn, or null"),
)

BRONZE: Final = Table(
    "bronze",
    "Every line, typed, as often as it was written. Lines that are no records are kept apart, without a date.",
    (),
    _schema(
        *_RECORD_COLUMNS,
        ("file", _TEXT, "the ledger file"),
        ("reason", _TEXT, "why the line is no record; null: it is one"),
        ("line", _TEXT, "the line as it is, if it is no record"),
        ("date", _DATE, "the day of `at`; null: the line is no record"),
        ("source", _TEXT, LINES["source"].metadata["comment"]),
    ),
    ("date", "source"),
)

SILVER: Final = Table(
    "silver",
    "Every record once. Names of namespaces and entities are in one spelling, since brokers do not tell cases apart.",
    ("id",),
    _schema(
        *_RECORD_COLUMNS,
        (
            "pairing",
            _TEXT,
            "the primary of the pairing that it belongs to: the namespace, or whose backlog queue it is",
        ),
        ("date", _DATE, "the day of `at`"),
    ),
)

COST_HOURLY: Final = Table(
    "cost_hourly",
    "Operations that reached a broker, bytes that were transferred, and what both cost. What both broker and clients "
    "have metered counts once.",
    ("date", "hour", "namespace", "entity", "client", "stage", "kind"),
    _schema(
        ("hour", _TIME, "the hour's beginning"),
        ("namespace", _TEXT, "where it was done"),
        ("entity", _TEXT, "at which queue, topic or subscription"),
        ("client", _TEXT, "who did it"),
        ("stage", _TEXT, "at which point of a message's way"),
        ("kind", _TEXT, "what was done"),
        ("pairing", _TEXT, "the primary of the pairing that it belongs to"),
        ("messages", _NUMBER, "how many messages"),
        ("operations", _NUMBER, "how many operations"),
        ("charged", _NUMBER, "how many of them the plan charges for: settlements are free"),
        ("nanos", _NUMBER, "what they cost, by the tiers and the free quota of the month"),
        ("bytes", _NUMBER, "how many bytes of messages were transferred, to the broker or from it"),
        ("bandwidth_nanos", _NUMBER, "what these cost, by the plan's price per GB for the stage and the direction"),
        ("date", _DATE, "the day"),
    ),
)

MESSAGE_COST: Final = Table(
    "message_cost",
    "What a message costs, straight and by way of the backlog, and what the pairing's upkeep costs.",
    ("date", "pairing", "way"),
    _schema(
        ("pairing", _TEXT, "the primary"),
        (
            "way",
            _TEXT,
            "`direct`; `backlog`; `upkeep`: pings, idle polls, set-up; `other`: applications' empty polls and looks",
        ),
        ("messages", _NUMBER, "how many were sent that way: accepted by the primary, or parked"),
        ("operations", _NUMBER, "how many charged operations that took; receives are shared out by messages sent"),
        ("nanos", _NUMBER, "what they cost"),
        ("bytes", _NUMBER, "how many bytes were transferred, each time that a message was sent or received"),
        ("bandwidth_nanos", _NUMBER, "what these cost"),
        ("operations_per_message", _RATIO, "null if there was no message"),
        ("nanos_per_message", _RATIO, "operations and bandwidth together; null if there was no message"),
        ("date", _DATE, "the day"),
    ),
)

OUTAGES: Final = Table(
    "outages",
    "Every time that an entity did not accept messages, as its clients saw it, on the day on which it began.",
    ("namespace", "entity", "began"),
    _schema(
        ("namespace", _TEXT, "where the entity is"),
        ("entity", _TEXT, "which"),
        ("began", _TIME, "when the first client found it suspect"),
        ("engaged", _TIME, "when the first client failed over; null: none did"),
        ("ended", _TIME, "when the last client found it healthy; null: not known to have ended"),
        ("clients", _NUMBER, "how many clients saw it"),
        ("failover_us", _NUMBER, "time to fail over, from `began` to `engaged`"),
        ("recovery_us", _NUMBER, "from `began` to `ended`"),
        ("parked", _NUMBER, "messages that went to the backlog"),
        ("left", _NUMBER, "messages in the backlog of this entity at the ledger's end; 0: drained, or none was parked"),
        ("drained", _TIME, "when the backlog of this entity was empty again; null: it is not, or none was parked"),
        ("drain_us", _NUMBER, "time to drain, from `ended` to `drained`"),
        ("date", _DATE, "the day on which it began"),
    ),
)

AVAILABILITY_DAILY: Final = Table(
    "availability_daily",
    "How many messages that clients wanted to send were accepted, with pairing and as it would have been without.",
    ("date", "namespace", "entity"),
    _schema(
        ("namespace", _TEXT, "where the entity is"),
        ("entity", _TEXT, "which"),
        ("attempted", _NUMBER, "messages: `direct`, `parked` and `failed`"),
        ("direct", _NUMBER, "messages that the entity accepted"),
        ("parked", _NUMBER, "messages that the backlog accepted"),
        ("failed", _NUMBER, "messages that nobody accepted, or nobody knows whether"),
        ("retried", _NUMBER, "messages of attempts that failed during an outage: held, they are in the others again"),
        ("with_pairing", _RATIO, "(`direct` + `parked`) ÷ `attempted`"),
        ("without_pairing", _RATIO, "`direct` ÷ `attempted`"),
        ("date", _DATE, "the day"),
    ),
)

BACKLOG_MINUTELY: Final = Table(
    "backlog_minutely",
    "The backlog by destination, for each minute in which it changed or was not empty.",
    ("namespace", "destination", "minute"),
    _schema(
        ("namespace", _TEXT, "the primary"),
        ("destination", _TEXT, "the entity that the messages are meant for"),
        ("minute", _TIME, "the minute's beginning"),
        ("parked", _NUMBER, "messages that came in"),
        ("delivered", _NUMBER, "messages that left it, delivered or dead-lettered"),
        ("depth", _NUMBER, "messages at the minute's end"),
        (
            "oldest_at",
            _TIME,
            "when the oldest of them was parked: the first one of its minute; null: empty",
        ),
        ("oldest_age_us", _NUMBER, "its age at the minute's end; 0: empty"),
        ("date", _DATE, "the day"),
    ),
)

BACKLOG_OPEN: Final = Table(
    "backlog_open",
    "What a day leaves in the backlog, by the minute in which it was parked: where the next day begins.",
    ("date", "namespace", "destination", "parked_at"),
    _schema(
        ("namespace", _TEXT, "the primary"),
        ("destination", _TEXT, "the entity that the messages are meant for"),
        ("parked_at", _TIME, "when the first message of that minute was parked"),
        ("messages", _NUMBER, "how many are left"),
        ("date", _DATE, "the day, at the end of which this is so"),
    ),
)

CLIENT_VS_BROKER: Final = Table(
    "client_vs_broker",
    "What both meters say of the namespaces that both have metered on a day.",
    ("date", "namespace", "entity", "kind"),
    _schema(
        ("namespace", _TEXT, "where it was done"),
        ("entity", _TEXT, "at which queue, topic or subscription"),
        ("kind", _TEXT, "what was done"),
        ("client_operations", _NUMBER, "operations by the clients' records, done or of unknown outcome"),
        ("client_unknown", _NUMBER, "those among them whose answer never came"),
        ("broker_operations", _NUMBER, "operations by the broker's records"),
        ("operations_difference", _NUMBER, "broker less clients"),
        ("client_messages", _NUMBER, "messages by the clients' records"),
        ("broker_messages", _NUMBER, "messages by the broker's records"),
        ("messages_difference", _NUMBER, "broker less clients"),
        ("date", _DATE, "the day"),
    ),
)

GOLD: Final = (
    COST_HOURLY,
    MESSAGE_COST,
    OUTAGES,
    AVAILABILITY_DAILY,
    BACKLOG_MINUTELY,
    BACKLOG_OPEN,
    CLIENT_VS_BROKER,
)
TABLES: Final = (BRONZE, SILVER, *GOLD)
