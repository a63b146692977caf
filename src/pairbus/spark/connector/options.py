"""The options of the data source, validated once, on the driver. Pure but for secrets that are kept elsewhere."""

import difflib
import os
import pkgutil
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from azure.servicebus import ServiceBusSubQueue, parse_connection_string

from pairbus.core.naming import backlog_paths
from pairbus.core.options import SendAvailabilityPairedNamespaceOptions, TransportName, check_pairing
from pairbus.errors import OptionError
from pairbus.spark.connector.ranges import FIRST

T = TypeVar("T")

REDACTED: Final = "*** (redacted)"

_SECONDS: Final = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
_SUB_QUEUES: Final = {
    "deadletter": ServiceBusSubQueue.DEAD_LETTER,
    "transferdeadletter": ServiceBusSubQueue.TRANSFER_DEAD_LETTER,
}
_SPARKS_OWN: Final = frozenset(("path", "checkpointlocation", "queryname", "outputmode", "header", "inferschema"))
"""What Spark or a user's generic code may hand to any source."""


@dataclass(frozen=True, slots=True)
class Connection:
    """How a namespace is reached."""

    connection_string: str
    transport_type: str | None = None

    @property
    def host(self) -> str:
        """The namespace's host name, with its port if it has one."""
        return parse_connection_string(self.connection_string).fully_qualified_namespace

    def __repr__(self) -> str:
        return f"Connection({self.host!r})"


@dataclass(frozen=True, slots=True)
class Entity:
    """What is looked at: a queue, or a subscription of a topic, or a sub-queue of either."""

    name: str
    subscription: str | None = None
    sub_queue: ServiceBusSubQueue | None = None

    @property
    def path(self) -> str:
        """How it is called in offsets and in the column ``entity``."""
        below = {
            None: "",
            ServiceBusSubQueue.DEAD_LETTER: "/$DeadLetterQueue",
            ServiceBusSubQueue.TRANSFER_DEAD_LETTER: "/$Transfer/$DeadLetterQueue",
        }[self.sub_queue]
        return self.name + (f"/Subscriptions/{self.subscription}" if self.subscription else "") + below


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How to read.

    :ivar is_backlog: the entities are the backlog queues of a pairing, and messages are shown as they were sent.
    :ivar start: the sequence number to begin with; "latest": after the last message there is.
    :ivar end: the last sequence number to read, in a batch.
    :ivar include_scheduled: None: in a batch, but not in a stream, which will see the message when it is enqueued.
    """

    connection: Connection
    entities: tuple[Entity, ...]
    is_backlog: bool
    start: int | Literal["latest"]
    end: int | None
    max_per_trigger: int | None
    partitions: int
    poll_interval: float
    attempt_timeout: float
    include_scheduled: bool | None
    ledger: str | None


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How to write.

    :ivar pairing: the keyword arguments of the options of a pairing.
    :ivar transport: what carries the messages of a paired write.
    """

    connection: Connection
    secondary: Connection | None
    entity: str | None
    pairing: tuple[tuple[str, Any], ...]
    transport: TransportName
    send_timeout: float | None
    write_id: str | None
    ledger: str | None
    report: str | None


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """Read the options of ``spark.read`` and ``spark.readStream``."""
    given = _Given(options, _COMMON | _READ)
    primary = given.connection("connectionString")
    sub_queue = given.get("subQueue", _choice(_SUB_QUEUES))
    is_backlog = given.get("backlog", _flag) or False
    if is_backlog:
        given.refuse("entity", "subscription", why="leave it out: a backlog is read as a whole")
        connection = given.connection("secondaryConnectionString")
        check_pairing(primary.host, connection.host)
        paths = backlog_paths(primary.host, given.get("backlogQueueCount", _count(1)) or 10)
        entities = tuple(Entity(path, sub_queue=sub_queue) for path in paths)
    else:
        given.refuse("secondaryConnectionString", "backlogQueueCount", why="set backlog=true to read a backlog")
        connection = primary
        name = given.entity()
        if name is None:
            raise OptionError("entity", None, "the name of a queue, or of a topic together with subscription")
        entities = (Entity(name, given.get("subscription", _text), sub_queue),)
    return ReadOptions(
        connection=connection,
        entities=entities,
        is_backlog=is_backlog,
        start=given.get("startingSequenceNumber", _start) or FIRST,
        end=given.get("endingSequenceNumber", _count(0)),
        max_per_trigger=given.get("maxMessagesPerTrigger", _count(1)),
        partitions=given.get("numPartitions", _count(1)) or 8,
        poll_interval=_or(given.get("pollInterval", _duration), 1.0),
        attempt_timeout=_or(given.get("attemptTimeout", _duration), 15.0),
        include_scheduled=given.get("includeScheduled", _flag),
        ledger=given.get("ledger", _text),
    )


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """Read the options of ``write`` and ``writeStream``."""
    given = _Given(options, _COMMON | _WRITE | frozenset(_PAIRING))
    connection = given.connection("connectionString")
    pairing = {
        name: value for option, (name, read) in _PAIRING.items() if (value := given.get(option, read)) is not None
    }
    secondary = None
    if given.has("secondaryConnectionString"):
        secondary = given.connection("secondaryConnectionString")
        check_pairing(connection.host, secondary.host)
        _check_pairing_options(secondary.host, pairing)
    else:
        given.refuse(*_PAIRING, "transport", why="it is an option of a pairing: set secondaryConnectionString too")
    carrier: TransportName | None = given.get("transport", _choice(_CARRIERS))
    return WriteOptions(
        connection=connection,
        secondary=secondary,
        entity=given.entity(),
        pairing=tuple(pairing.items()),
        transport=carrier or "sdk",
        send_timeout=given.get("sendTimeout", _duration),
        write_id=given.get("writeId", _text),
        ledger=given.get("ledger", _text),
        report=given.get("reportDirectory", _text),
    )


def _check_pairing_options(host: str, pairing: Mapping[str, Any]) -> None:
    """Have the rules of the pairing check its options now, rather than in a task."""
    secondary = _Host(host)
    try:
        SendAvailabilityPairedNamespaceOptions(secondary, secondary, **pairing)
    except OptionError as error:
        names = {name: option for option, (name, _) in _PAIRING.items()}
        raise OptionError(names.get(error.option, error.option), error.value, error.valid) from None


@dataclass(frozen=True, slots=True)
class _Host:
    fully_qualified_namespace: str


class _Given:
    """The options that were given, whose names are compared without regard to case."""

    def __init__(self, options: Mapping[str, str], known: frozenset[str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}
        names = {name.lower(): name for name in known}
        for name in self._options.keys() - names.keys() - _SPARKS_OWN:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {names[near[0]]}?" if near else "the options are " + ", ".join(sorted(known))
            raise OptionError(name, REDACTED, f"there is no such option here; {hint}")

    def has(self, name: str) -> bool:
        return name.lower() in self._options

    def get(self, name: str, read: Callable[[str, str], T]) -> T | None:
        value = self._options.get(name.lower())
        return None if value is None else read(name, value.strip())

    def entity(self) -> str | None:
        name = self.get("entity", _text)
        return name if name is not None else self.get("path", _text)

    def refuse(self, *names: str, why: str) -> None:
        for name in names:
            if self.has(name):
                raise OptionError(name, self._options[name.lower()] if name in _SHOWN else REDACTED, why)

    def connection(self, name: str) -> Connection:
        value = self.get(name, _secret)
        if not value:
            raise OptionError(name, value, "required: a connection string, or env:NAME or file:PATH that have it")
        made = Connection(value, self.get("transportType", _choice(_TRANSPORTS)))
        try:
            _ = made.host
        except ValueError as error:  # which does not tell the secret
            raise OptionError(name, REDACTED, f"a connection string as the portal shows it: {error}") from None
        return made


_CARRIERS: Final[Mapping[str, TransportName]] = {"sdk": "sdk", "native": "native"}
_TRANSPORTS: Final = {"amqp": "Amqp", "amqpoverwebsocket": "AmqpOverWebsocket"}
_COMMON: Final = frozenset(("connectionString", "secondaryConnectionString", "entity", "transportType", "ledger"))
_READ: Final = frozenset(
    (
        "attemptTimeout",
        "backlog",
        "backlogQueueCount",
        "endingSequenceNumber",
        "includeScheduled",
        "maxMessagesPerTrigger",
        "numPartitions",
        "pollInterval",
        "startingSequenceNumber",
        "subQueue",
        "subscription",
    )
)
_WRITE: Final = frozenset(("sendTimeout", "transport", "writeId", "reportDirectory"))
_SHOWN: Final = (_READ | _WRITE | _COMMON) - {"connectionString", "secondaryConnectionString"}


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _secret(option: str, value: str) -> str:
    kind, _, where = value.partition(":")
    if kind == "env":
        if where not in os.environ:
            raise OptionError(option, value, f"the driver's environment has no variable {where}")
        return os.environ[where].strip()
    if kind == "file":
        try:
            return Path(where).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise OptionError(option, value, f"the driver cannot read the file: {error.strerror}") from None
    return value


def _text(option: str, value: str) -> str:
    if not value:
        raise OptionError(option, value, "it must not be empty")
    return value


def _flag(option: str, value: str) -> bool:
    if value.lower() not in {"true", "false"}:
        raise OptionError(option, value, "true or false")
    return value.lower() == "true"


def _count(least: int) -> Callable[[str, str], int]:
    def read(option: str, value: str) -> int:
        if not value.isdigit() or int(value) < least:
            raise OptionError(option, value, f"a whole number, at least {least}")
        return int(value)

    return read


def _start(option: str, value: str) -> int | Literal["latest"]:
    if value.lower() == "earliest":
        return FIRST
    if value.lower() == "latest":
        return "latest"
    if not value.isdigit():
        raise OptionError(option, value, "earliest, latest, or the sequence number to begin with")
    return max(FIRST, int(value))


def _duration(option: str, value: str) -> float:
    match = _DURATION.fullmatch(value.lower())
    if match is None or match[2] not in _SECONDS:
        raise OptionError(option, value, "a duration such as 500ms, 30s, 1m, or a number of seconds")
    return float(match[1]) * _SECONDS[match[2]]


def _choice(choices: Mapping[str, T]) -> Callable[[str, str], T]:
    def read(option: str, value: str) -> T:
        found = choices.get(value.lower().replace("-", "").replace("_", ""))
        if found is None:
            raise OptionError(option, value, "one of " + ", ".join(choices))
        return found

    return read


def _imported(option: str, value: str) -> object:
    try:
        return pkgutil.resolve_name(value)
    except (ValueError, ImportError, AttributeError) as error:
        raise OptionError(option, value, f"package.module:function, to be imported everywhere: {error}") from None


def _verbatim(_option: str, value: str) -> str:
    return value


_PAIRING: Final[Mapping[str, tuple[str, Callable[[str, str], Any]]]] = {
    "backlogQueueCount": ("backlog_queue_count", _count(0)),
    "failoverInterval": ("failover_interval", _duration),
    "enableSyphon": ("enable_syphon", _flag),
    "pingPrimaryInterval": ("ping_primary_interval", _duration),
    "syphonRetryInterval": ("syphon_retry_interval", _duration),
    "syphonTransport": ("syphon_transport", _verbatim),
    "attemptTimeout": ("attempt_timeout", _duration),
    "onOutage": ("on_outage", _verbatim),
    "classify": ("classify", _imported),
}
"""Each option of a pairing, by its name here."""
