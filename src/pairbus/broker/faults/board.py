"""Which faults are switched on. Pure: it is told the time, and tells what is to be refused."""

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pairbus.amqp.conditions import RESOURCE_LIMIT_EXCEEDED
from pairbus.broker.access.policies import Right
from pairbus.broker.refusals import SERVER_BUSY, RefusedError, denied, disabled
from pairbus.errors import OptionError


class FaultKind(enum.StrEnum):
    """What can be made to fail."""

    DOWN = "down"
    """New connections are refused, and those that there are end: the namespace is gone."""
    CUT = "cut"
    """The connections that there are, are reset, once."""
    SILENT = "silent"
    """Connections are accepted, and never answered."""
    STALL = "stall"
    """Connections stop in the middle of what they say, and what they hear."""
    SLOW = "slow"
    """Everything takes longer: ``latency``, ``rate``."""
    LOSE_ANSWERS = "lose-answers"
    """Messages are accepted and stored, settlements carried out, and nobody is told."""
    BUSY = "busy"
    """The broker says that it is too busy."""
    FULL = "full"
    """Messages are refused: the quota is reached."""
    DISABLED = "disabled"
    """The entity is disabled."""
    DENY = "deny"
    """Every token lacks the claim that is needed."""
    EXPIRE_TOKENS = "expire-tokens"
    """The tokens that were given so far expire, once."""


ONCE: Final = frozenset({FaultKind.CUT, FaultKind.EXPIRE_TOKENS})
"""These happen, and are over."""
ON_THE_WIRE: Final = frozenset({FaultKind.SILENT, FaultKind.STALL, FaultKind.SLOW})
"""These disturb whole connections: those of a namespace, or those with a link to the entity."""
SEVERS: Final = frozenset({FaultKind.DISABLED, FaultKind.DENY})
"""Links that there are end when these begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that fails.

    :ivar entity: the path of the entity, None: the whole namespace.
    :ivar until: when it ends by itself, in milliseconds since the epoch; None: when it is cleared.
    :ivar latency: of a slow connection: milliseconds that each piece takes longer, each way.
    :ivar rate: of a slow connection: bytes a second, each way; None: no limit.
    """

    kind: FaultKind
    entity: str | None = None
    until: int | None = None
    latency: int = 0
    rate: int | None = None

    def __post_init__(self) -> None:
        if self.kind is FaultKind.DOWN and self.entity is not None:
            valid = f"for a namespace, not for {self.entity!r}, which can be silent, busy or disabled"
            raise OptionError("kind", self.kind.value, valid)
        if self.kind in ONCE and self.until is not None:
            raise OptionError("for", "given", f"nothing with {self.kind.value!r}, which happens at once and is over")
        is_slow = self.latency > 0 or self.rate is not None
        if is_slow != (self.kind is FaultKind.SLOW):
            raise OptionError(
                "kind", self.kind.value, "slow with a latency above 0 or a rate, and no other kind with either"
            )
        if self.rate is not None and self.rate <= 0:
            raise OptionError("rate", self.rate, "bytes a second, above 0")

    def covers(self, path: str | None) -> bool:
        """Tell whether it concerns an entity, or, with None, the namespace as a whole."""
        return self.entity is None or (path is not None and is_under(path, self.entity))

    def to_document(self) -> dict[str, Any]:
        """Return it as plain values."""
        values = {"kind": self.kind.value, "entity": self.entity, "until": self.until, "rate": self.rate}
        return {name: value for name, value in values.items() if value is not None} | (
            {"latency": self.latency} if self.latency else {}
        )


def is_under(path: str, entity: str) -> bool:
    """Tell whether a path is an entity or a part of it: its dead-letter queue, a subscription."""
    path, entity = path.strip("/").lower(), entity.strip("/").lower()
    return path == entity or path.startswith(entity + "/")


class Faults:
    """The faults of one namespace that are switched on. False when there are none, which is what a hot path asks."""

    def __init__(self) -> None:
        self._faults: dict[tuple[FaultKind, str | None], Fault] = {}

    def __bool__(self) -> bool:
        return bool(self._faults)

    def __iter__(self) -> Iterator[Fault]:
        return iter(list(self._faults.values()))

    def put(self, fault: Fault) -> None:
        """Switch one on, in place of one of the same kind in the same place."""
        self._faults[_key(fault.kind, fault.entity)] = fault

    def clear(self, kind: FaultKind | None = None, entity: str | None = None) -> list[Fault]:
        """Switch faults off, of one kind or all, of one entity or all, and return them."""
        over = [
            fault
            for fault in self._faults.values()
            if (kind is None or fault.kind is kind)
            and (entity is None or (fault.entity is not None and is_under(fault.entity, entity)))
        ]
        return self._remove(over)

    def take_ended(self, now: int) -> list[Fault]:
        """Switch off those whose time is over, and return them."""
        return self._remove([fault for fault in self if fault.until is not None and fault.until <= now])

    def _remove(self, over: list[Fault]) -> list[Fault]:
        for fault in over:
            del self._faults[_key(fault.kind, fault.entity)]
        return over

    @property
    def wake_at(self) -> int | None:
        """When :meth:`take_ended` has something to give; None: not by itself."""
        return min((fault.until for fault in self if fault.until is not None), default=None)

    def find(self, kind: FaultKind, path: str | None = None) -> Fault | None:
        """Return a fault of a kind that concerns an entity, or the namespace as a whole."""
        return next((fault for fault in self if fault.kind is kind and fault.covers(path)), None)

    def refusal(self, path: str, *, sends: bool = False) -> RefusedError | None:
        """Return why an operation on an entity is to be refused, if it is.

        :param sends: whether it brings messages, which a full entity does not take.
        """
        if not self._faults:
            return None
        if self.find(FaultKind.DENY, path):
            return denied(path, tuple(Right))
        if self.find(FaultKind.DISABLED, path):
            return disabled(path)
        if self.find(FaultKind.BUSY, path):
            return RefusedError(SERVER_BUSY, f"The request for '{path}' was ended: too busy. Retry in 10 seconds.")
        if sends and self.find(FaultKind.FULL, path):
            return RefusedError(
                RESOURCE_LIMIT_EXCEEDED, f"The maximum entity size has been reached or exceeded for '{path}'."
            )
        return None

    def check(self, path: str, *, sends: bool = False) -> None:
        """Refuse an operation that is to be refused."""
        refused = self.refusal(path, sends=sends)
        if refused is not None:
            raise refused


def _key(kind: FaultKind, entity: str | None) -> tuple[FaultKind, str | None]:
    return kind, None if entity is None else entity.strip("/").lower()
