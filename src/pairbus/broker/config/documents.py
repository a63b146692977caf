"""Reading and writing a ``Config.json`` of Microsoft's emulator: tables, lists, and the properties of entities."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

from pairbus.broker.entities.settings import EntityStatus
from pairbus.errors import OptionError

_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_MILLISECONDS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000}

DURATION: Final = "duration"
Properties: TypeAlias = Mapping[str, tuple[str, type | str]]
"""The properties that an entity may have: the setting that each is, and its type, or :data:`DURATION`."""


def read_properties(properties: Mapping[str, Any], known: Properties, where: str) -> dict[str, Any]:
    """Return settings by their names."""
    values: dict[str, Any] = {}
    for name, value in properties.items():
        if name not in known:
            raise OptionError(f"{where}.{name}", value, "one of " + ", ".join(known))
        setting, kind = known[name]
        if value in ("", None):
            continue  # the emulator writes what is not set as an empty text
        if isinstance(kind, str):
            values[setting] = milliseconds(value, f"{where}.{name}")
        elif kind is EntityStatus and value in set(EntityStatus):
            values[setting] = EntityStatus(value)
        elif isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
            values[setting] = value
        else:
            raise OptionError(f"{where}.{name}", value, f"a value of type {kind.__name__}")
    return values


def write_properties(settings: object, known: Properties) -> dict[str, Any]:
    """Return what :func:`read_properties` reads."""
    values = {name: (getattr(settings, setting), kind) for name, (setting, kind) in known.items()}
    return {
        name: f"PT{value / 1000:f}S" if kind == DURATION else value
        for name, (value, kind) in values.items()
        if value is not None
    }


def milliseconds(value: object, where: str) -> int:
    """Read a duration."""
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None or value in ("P", "PT"):
        raise OptionError(where, value, "a duration of ISO 8601, such as PT1M")
    return round(sum(float(match[unit] or 0) * length for unit, length in _MILLISECONDS.items()))


def table(value: object, where: str) -> Mapping[str, Any]:
    """Read an object."""
    if not isinstance(value, dict):
        raise OptionError(where, value, "an object with named entries")
    return cast("Mapping[str, Any]", value)


def tables(parent: Mapping[str, Any], name: str, where: str) -> Sequence[tuple[Mapping[str, Any], str]]:
    """Read a list of objects that an object has, or has not; return each with where it is."""
    return [
        (table(entry, f"{where}.{name}[{index}]"), f"{where}.{name}[{index}]")
        for index, entry in enumerate(a_list(parent, name, where))
    ]


def a_list(parent: Mapping[str, Any], name: str, where: str) -> Sequence[object]:
    """Read a list that an object has, or has not."""
    value: object = parent.get(name) or []
    if not isinstance(value, list):
        raise OptionError(f"{where}.{name}", value, "a list")
    return cast("Sequence[object]", value)


def text(parent: Mapping[str, Any], name: str, where: str) -> str:
    """Read a text that an object must have."""
    value = parent.get(name)
    if not isinstance(value, str) or not value:
        raise OptionError(f"{where}.{name}", value, "a name")
    return value
