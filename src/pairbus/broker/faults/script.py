"""Faults from words: of a command, of a YAML file, of Python."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from pairbus.broker.faults.board import Fault, FaultKind
from pairbus.errors import OptionError

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)?")
_MILLISECONDS: Final = {"ms": 1, "s": 1000, None: 1000, "m": 60_000, "h": 3_600_000}
_RATE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(B|KB|MB)?(?:/s)?", re.IGNORECASE)
_BYTES: Final = {"B": 1, None: 1, "KB": 1024, "MB": 1024 * 1024}
_ENTRIES: Final = frozenset({"at", "where", "fault", "for", "latency", "rate"})
CLEAR: Final = "clear"


@dataclass(frozen=True, slots=True)
class Order:
    """What somebody wants to fail.

    :ivar namespace: whose it is.
    :ivar entity: the path of the entity, None: the whole namespace.
    :ivar kind: None: clear what there is.
    :ivar lasts: milliseconds; None: until it is cleared.
    """

    namespace: str
    entity: str | None
    kind: FaultKind | None
    lasts: int | None = None
    latency: int = 0
    rate: int | None = None

    def fault(self, now: int) -> Fault:
        """Return the fault, which begins now."""
        if self.kind is None:
            raise OptionError("kind", CLEAR, "a fault")
        until = None if self.lasts is None else now + self.lasts
        return Fault(kind=self.kind, entity=self.entity, until=until, latency=self.latency, rate=self.rate)


@dataclass(frozen=True, slots=True)
class TimedOrder:
    """A part of a script: what is to fail, and when, in milliseconds from its beginning."""

    at: int
    order: Order


def read_order(
    where: str,
    kind: str,
    *,
    lasts: str | float | None = None,
    latency: str | float | None = None,
    rate: str | None = None,
) -> Order:
    """Read an order: ``contoso/orders``, ``slow``, ``30s``, ``200ms``, ``10KB``."""
    namespace, _, entity = where.strip("/").partition("/")
    if not namespace:
        raise OptionError("where", where, "a namespace, or an entity of one: contoso/orders")
    if kind != CLEAR and kind not in set(FaultKind):
        raise OptionError("kind", kind, "one of " + ", ".join((*FaultKind, CLEAR)))
    order = Order(
        namespace,
        entity or None,
        None if kind == CLEAR else FaultKind(kind),
        None if lasts is None else read_duration("for", lasts),
        0 if latency is None else read_duration("latency", latency),
        None if rate is None else _read_rate(rate),
    )
    if order.kind is not None:
        order.fault(0)  # refuses what does not go together
    return order


def read_duration(option: str, value: str | float) -> int:
    """Return milliseconds: of ``30s``, ``200ms``, ``2m``, or a number of seconds."""
    match = _DURATION.fullmatch(str(value).strip())
    if match is None:
        raise OptionError(option, value, "a duration such as 200ms, 30s or 2m")
    return round(float(match[1]) * _MILLISECONDS[match[2]])


def _read_rate(value: str) -> int:
    match = _RATE.fullmatch(str(value).strip())
    if match is None:
        raise OptionError("rate", value, "bytes a second, such as 500, 10KB or 1MB")
    return round(float(match[1]) * _BYTES[match[2].upper() if match[2] else None])


def read_script(file: Path) -> list[TimedOrder]:
    """Read a YAML file: a list of entries with ``at``, ``where``, ``fault`` and, if wanted, ``for``."""
    import yaml  # noqa: PLC0415 (a broker without a script starts faster without it)

    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise OptionError("script", str(file), f"a YAML file that can be read ({error})") from None
    if not isinstance(document, list):
        raise OptionError("script", str(file), "a list of entries: - {at: 5s, where: contoso, fault: down, for: 30s}")
    timed_orders = [
        _timed_order(entry, f"entry {index}") for index, entry in enumerate(cast("list[object]", document), 1)
    ]
    return sorted(timed_orders, key=lambda timed: timed.at)


def _timed_order(entry: object, name: str) -> TimedOrder:
    if not isinstance(entry, dict):
        raise OptionError(name, entry, "an entry with at, where and fault")
    values = cast("Mapping[str, Any]", entry)
    unknown = set(values) - _ENTRIES
    if unknown or not {"where", "fault"} <= set(values):
        raise OptionError(name, dict(values), "where and fault, and no others than " + ", ".join(sorted(_ENTRIES)))
    try:
        order = read_order(
            str(values["where"]),
            str(values["fault"]),
            lasts=values.get("for"),
            latency=values.get("latency"),
            rate=None if values.get("rate") is None else str(values["rate"]),
        )
        return TimedOrder(read_duration("at", values.get("at", 0)), order)
    except OptionError as error:
        raise OptionError(f"{name}: {error.option}", error.value, error.valid) from None
