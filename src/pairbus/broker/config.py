"""What a broker is to serve: from options, or from a file in the format of Microsoft's emulator."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast

from pairbus.broker.entities.settings import EntityStatus, QueueSettings
from pairbus.errors import OptionError

DEFAULT_PORT: Final = 5672
MAX_PORT: Final = 65535

_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_MILLISECONDS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000}


@dataclass(frozen=True, slots=True)
class NamespaceConfig:
    """One namespace; port 0 is any that is free."""

    name: str
    port: int = 0
    queues: Mapping[str, QueueSettings] = field(default_factory=dict[str, QueueSettings])


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """TLS with a certificate and its key, files in PEM; without them, the broker makes its own."""

    certificate: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            missing, given = ("key", "certificate") if self.key is None else ("certificate", "key")
            raise OptionError(missing, None, f"a file, for there is a {given}; give both, or none and have them made")


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """All that a broker serves.

    :ivar data: the directory in which namespaces are stored; None: in memory.
    :ivar tls: how it speaks TLS, besides plain AMQP and HTTP; None: not at all.
    """

    namespaces: Sequence[NamespaceConfig]
    host: str = "127.0.0.1"
    data: Path | None = None
    tls: TlsConfig | None = None


def from_options(
    namespaces: Sequence[str],
    queues: Iterable[str] | Mapping[str, QueueSettings],
    *,
    port: int = DEFAULT_PORT,
    host: str = "127.0.0.1",
    data: Path | None = None,
) -> BrokerConfig:
    """Read namespaces, as ``contoso`` or ``contoso:5700``, and queues, as ``contoso/orders`` or just ``orders``.

    A mapping gives each queue its settings; the others have the cloud's defaults.

    The first namespace without a port of its own gets ``port``, the next one the port after it; 0 stays 0.
    """
    made: dict[str, NamespaceConfig] = {}
    following = port
    for text in namespaces or ("localhost",):
        name, _, own = text.partition(":")
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9-]{0,49}", name) or (own and not own.isdigit()):
            raise OptionError("namespace", text, "a name of letters, digits and dashes, and a port: contoso:5700")
        if name.lower() in made:
            raise OptionError("namespace", text, "each namespace is named once")
        made[name.lower()] = NamespaceConfig(name, int(own) if own else following)
        following += 0 if own or not following else 1
    if not isinstance(queues, Mapping):
        queues = dict.fromkeys(queues, QueueSettings())
    for text, settings in cast("Mapping[str, QueueSettings]", queues).items():
        name, separator, path = text.partition("/")
        if not separator or name.lower() not in made:
            if len(made) > 1:
                raise OptionError("queue", text, "with several namespaces, namespace/queue: contoso/orders")
            name, path = next(iter(made)), text
        namespace = made[name.lower()]
        made[name.lower()] = replace(namespace, queues={**namespace.queues, path: settings})
    return BrokerConfig(tuple(made.values()), host, data)


def from_file(
    file: Path, *, port: int = DEFAULT_PORT, host: str = "127.0.0.1", data: Path | None = None
) -> BrokerConfig:
    """Read a ``Config.json`` of Microsoft's emulator: ``UserConfig``, ``Namespaces``, ``Queues``, ``Properties``.

    Besides the emulator's properties of a queue it may have the cloud's other ones, and a namespace its ``Port``.
    """
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OptionError("config", str(file), f"a JSON file that can be read ({error})") from None
    found = _list(_table(_table(document, "the file").get("UserConfig"), "UserConfig"), "Namespaces", "UserConfig")
    namespaces = [
        _namespace(_table(entry, f"Namespaces[{index}]"), f"Namespaces[{index}]", port + index if port else 0)
        for index, entry in enumerate(found)
    ]
    return BrokerConfig(tuple(namespaces), host, data)


def to_document(config: BrokerConfig) -> dict[str, Any]:
    """Return what :func:`from_file` reads; where the broker listens and keeps its data is not part of it."""
    namespaces = [
        {
            "Name": namespace.name,
            "Port": namespace.port,
            "Queues": [
                {"Name": path, "Properties": _properties(settings)} for path, settings in namespace.queues.items()
            ],
        }
        for namespace in config.namespaces
    ]
    return {"UserConfig": {"Namespaces": namespaces}}


def _properties(settings: QueueSettings) -> dict[str, Any]:
    values = {name: (getattr(settings, setting), kind) for name, (setting, kind) in _PROPERTIES.items()}
    return {
        name: f"PT{value / 1000:f}S" if kind == "duration" else value
        for name, (value, kind) in values.items()
        if value is not None
    }


def _namespace(entry: Mapping[str, Any], where: str, port: int) -> NamespaceConfig:
    if _list(entry, "Topics", where):
        raise OptionError(f"{where}.Topics", "given", "left out: this broker has queues only")
    queues: dict[str, QueueSettings] = {}
    for index, queue in enumerate(_list(entry, "Queues", where)):
        here = f"{where}.Queues[{index}]"
        table = _table(queue, here)
        queues[_text(table, "Name", here)] = _settings(_table(table.get("Properties") or {}, here), here)
    own = entry.get("Port", port)
    if not isinstance(own, int) or isinstance(own, bool) or not 0 <= own <= MAX_PORT:
        raise OptionError(f"{where}.Port", own, f"0 to {MAX_PORT}; 0 is any that is free")
    return NamespaceConfig(_text(entry, "Name", where), own, queues)


_PROPERTIES: Final[Mapping[str, tuple[str, type | str]]] = {
    "AutoDeleteOnIdle": ("auto_delete_on_idle", "duration"),
    "DeadLetteringOnMessageExpiration": ("dead_lettering_on_message_expiration", bool),
    "DefaultMessageTimeToLive": ("default_message_time_to_live", "duration"),
    "DuplicateDetectionHistoryTimeWindow": ("duplicate_detection_history_time_window", "duration"),
    "EnableBatchedOperations": ("enable_batched_operations", bool),
    "ForwardDeadLetteredMessagesTo": ("forward_dead_lettered_messages_to", str),
    "ForwardTo": ("forward_to", str),
    "LockDuration": ("lock_duration", "duration"),
    "MaxDeliveryCount": ("max_delivery_count", int),
    "MaxMessageSizeInKilobytes": ("max_message_size_in_kilobytes", int),
    "MaxSizeInMegabytes": ("max_size_in_megabytes", int),
    "RequiresDuplicateDetection": ("requires_duplicate_detection", bool),
    "RequiresSession": ("requires_session", bool),
    "Status": ("status", EntityStatus),
    "UserMetadata": ("user_metadata", str),
}


def _settings(properties: Mapping[str, Any], where: str) -> QueueSettings:
    values: dict[str, Any] = {}
    for name, value in properties.items():
        if name not in _PROPERTIES:
            raise OptionError(f"{where}.{name}", value, "one of " + ", ".join(_PROPERTIES))
        setting, kind = _PROPERTIES[name]
        if value in ("", None):
            continue  # the emulator writes what is not set as an empty text
        if kind == "duration":
            values[setting] = _milliseconds(value, f"{where}.{name}")
        elif kind is EntityStatus and value in set(EntityStatus):
            values[setting] = EntityStatus(value)
        elif isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
            values[setting] = value
        else:
            raise OptionError(f"{where}.{name}", value, f"a value of type {getattr(kind, '__name__', kind)}")
    return QueueSettings(**values)


def _milliseconds(value: object, where: str) -> int:
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None or value in ("P", "PT"):
        raise OptionError(where, value, "a duration of ISO 8601, such as PT1M")
    return round(sum(float(match[unit] or 0) * length for unit, length in _MILLISECONDS.items()))


def _table(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise OptionError(where, value, "an object with named entries")
    return cast("Mapping[str, Any]", value)


def _list(table: Mapping[str, Any], name: str, where: str) -> Sequence[object]:
    value: object = table.get(name) or []
    if not isinstance(value, list):
        raise OptionError(f"{where}.{name}", value, "a list")
    return cast("Sequence[object]", value)


def _text(table: Mapping[str, Any], name: str, where: str) -> str:
    value = table.get(name)
    if not isinstance(value, str) or not value:
        raise OptionError(f"{where}.{name}", value, "a name")
    return value
