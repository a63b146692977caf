"""What a broker is to serve: from options, or from a file in the format of Microsoft's emulator."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast

from pairbus.broker.entities.settings import QueueSettings
from pairbus.errors import OptionError

DEFAULT_PORT: Final = 5672

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
class BrokerConfig:
    """All that a broker serves.

    :ivar data: the directory in which namespaces are stored; None: in memory.
    """

    namespaces: Sequence[NamespaceConfig]
    host: str = "127.0.0.1"
    data: Path | None = None


def from_options(
    namespaces: Sequence[str],
    queues: Sequence[str],
    *,
    port: int = DEFAULT_PORT,
    host: str = "127.0.0.1",
    data: Path | None = None,
) -> BrokerConfig:
    """Read namespaces, as ``contoso`` or ``contoso:5700``, and queues, as ``contoso/orders`` or just ``orders``.

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
    for text in queues:
        name, separator, path = text.partition("/")
        if not separator or name.lower() not in made:
            if len(made) > 1:
                raise OptionError("queue", text, "with several namespaces, namespace/queue: contoso/orders")
            name, path = next(iter(made)), text
        namespace = made[name.lower()]
        made[name.lower()] = replace(namespace, queues={**namespace.queues, path: QueueSettings()})
    return BrokerConfig(tuple(made.values()), host, data)


def from_file(
    file: Path, *, port: int = DEFAULT_PORT, host: str = "127.0.0.1", data: Path | None = None
) -> BrokerConfig:
    """Read a ``Config.json`` of Microsoft's emulator: ``UserConfig``, ``Namespaces``, ``Queues``, ``Properties``."""
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


def _namespace(entry: Mapping[str, Any], where: str, port: int) -> NamespaceConfig:
    if _list(entry, "Topics", where):
        raise OptionError(f"{where}.Topics", "given", "left out: this broker has queues only")
    queues: dict[str, QueueSettings] = {}
    for index, queue in enumerate(_list(entry, "Queues", where)):
        here = f"{where}.Queues[{index}]"
        table = _table(queue, here)
        queues[_text(table, "Name", here)] = _settings(_table(table.get("Properties") or {}, here), here)
    return NamespaceConfig(_text(entry, "Name", where), port, queues)


_PROPERTIES: Final = {
    "DeadLetteringOnMessageExpiration": ("dead_lettering_on_message_expiration", bool),
    "DefaultMessageTimeToLive": ("default_message_time_to_live", "duration"),
    "DuplicateDetectionHistoryTimeWindow": ("duplicate_detection_history_time_window", "duration"),
    "ForwardDeadLetteredMessagesTo": ("forward_dead_lettered_messages_to", str),
    "ForwardTo": ("forward_to", str),
    "LockDuration": ("lock_duration", "duration"),
    "MaxDeliveryCount": ("max_delivery_count", int),
    "RequiresDuplicateDetection": ("requires_duplicate_detection", bool),
    "RequiresSession": ("requires_session", bool),
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
        elif isinstance(kind, type) and isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
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
