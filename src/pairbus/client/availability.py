"""What can be known of a factory's availability: read, subscribed to, exported."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from pairbus.core.health import State
from pairbus.core.naming import entity_key

if TYPE_CHECKING:
    from pairbus.client.factory import MessagingFactory

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Turn:
    """The health of an entity has turned.

    :ivar state: what it is now.
    :ivar at: when, UTC.
    """

    entity: str
    state: State
    at: datetime


@dataclass(frozen=True, slots=True)
class EntityAvailability:
    """The health of one entity.

    :ivar since: when it became so, UTC; None: it was never anything but healthy.
    """

    entity: str
    state: State
    since: datetime | None


@dataclass(frozen=True, slots=True)
class BacklogQueue:
    """One backlog queue of the pairing.

    :ivar in_play: whether messages may be parked in it now.
    :ivar out_for: for how many seconds it is not, if it was pulled from the rotation (S5).
    :ivar problem: why it could not be made or reached when the factory was paired (B5).
    """

    path: str
    in_play: bool
    out_for: float | None = None
    problem: str | None = None


OnTurn: TypeAlias = Callable[[Turn], None]


class Availability:
    """The state of a factory, its pairing and its entities, as it is when it is asked."""

    def __init__(self, factory: "MessagingFactory") -> None:
        self._factory = factory
        self._callbacks: list[OnTurn] = []

    @property
    def state(self) -> str:
        """The factory is ``open``, ``closed`` or ``faulted``."""
        return self._factory.lifecycle.state.value

    @property
    def paired_with(self) -> str | None:
        """The host name of the secondary; None: not paired."""
        pairing = self._factory.pairing
        return None if pairing is None else pairing.ends.secondary

    @property
    def entities(self) -> Mapping[str, EntityAvailability]:
        """Every entity that was sent to since the pairing, by name, case-insensitively (S1)."""
        pairing = self._factory.pairing
        if pairing is None:
            return {}
        now = time.monotonic()
        return {
            entity_key(monitor.health.entity): EntityAvailability(
                monitor.health.entity,
                monitor.health.state,
                None if monitor.since is None else _ago(now - monitor.since),
            )
            for monitor in pairing.monitors
        }

    def entity(self, name: str) -> EntityAvailability:
        """The health of one entity, which is healthy unless it is known not to be."""
        return self.entities.get(entity_key(name), EntityAvailability(name, State.HEALTHY, None))

    @property
    def backlog_queues(self) -> tuple[BacklogQueue, ...]:
        """The backlog queues of the pairing, those that had to be left out too (B5)."""
        pairing = self._factory.pairing
        if pairing is None:
            return ()
        now = time.monotonic()
        pulled = pairing.rotation.pulled(now)
        there = [
            BacklogQueue(path, path not in pulled, pulled[path] - now if path in pulled else None)
            for path in pairing.rotation.queues
        ]
        return (
            *there,
            *(BacklogQueue(path, in_play=False, problem=repr(why)) for path, why in pairing.missing.items()),
        )

    def subscribe(self, callback: OnTurn) -> Callable[[], None]:
        """Have a function called at each turn of an entity's health, in the factory's event loop: it must not block.

        :return: a function that ends it.
        """
        self._callbacks.append(callback)

        def unsubscribe() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return unsubscribe

    def export(self) -> dict[str, Any]:
        """Return all of it as plain data, which JSON can carry."""
        return {
            "namespace": self._factory.fully_qualified_namespace,
            "state": self.state,
            "paired_with": self.paired_with,
            "entities": [
                {"entity": each.entity, "state": each.state.value, "since": _plain(each.since)}
                for each in self.entities.values()
            ],
            "backlog_queues": [asdict(queue) for queue in self.backlog_queues],
        }

    def turned(self, entity: str, state: State) -> None:
        """Tell the subscribers; called by the factory."""
        turn = Turn(entity, state, datetime.now(UTC))
        for callback in tuple(self._callbacks):
            try:
                callback(turn)
            except Exception:  # the application's own: a send must not fail for it
                _LOGGER.exception("a callback failed on %s", turn)


def _ago(seconds: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)


def _plain(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="milliseconds")
