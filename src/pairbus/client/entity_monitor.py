"""One entity's health at work: its timer, its pings, and who is to be told when it turns (S1, S3, S4, G2)."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from pairbus.client.send_link import SendLink
from pairbus.core.health import Action, EntityHealth, State
from pairbus.core.sending import BacklogChoice
from pairbus.links.deadlines import BackgroundTasks

_STATE_AFTER: Final = {
    Action.PREPARE_BACKLOG: State.SUSPECT,
    Action.ENGAGE: State.ENGAGED,
    Action.RESUME: State.HEALTHY,
}


@dataclass(eq=False, slots=True)
class SenderState:
    """What one sender has at an entity: its link, and the backlog queue that it has picked and keeps (S5)."""

    link: SendLink
    choice: BacklogChoice = field(default_factory=BacklogChoice)


class EntityMonitor:
    """Carries out what an entity's health asks for, and wakes it when its time has come.

    :param ping: sends one ping and reports how it ended.
    :param turned: told of each turn.
    """

    def __init__(
        self,
        health: EntityHealth,
        chores: BackgroundTasks,
        *,
        ping: "Callable[[EntityMonitor], Coroutine[Any, Any, None]]",
        turned: "Callable[[EntityMonitor, State], None]",
    ) -> None:
        self.health: Final = health
        self.senders: set[SenderState] = set()
        self.since: float | None = None
        """When the state began, by the loop's clock; None: healthy from the beginning."""
        self.demands_sessions = False
        """Whether the entity has refused a ping without a session (G4)."""
        self.left_behind: SendLink | None = None
        """A link whose sender was closed while an attempt was under way: how it ends tells of the entity's health."""
        self._chores = chores
        self._ping = ping
        self._tell = turned
        self._turned = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._stopped = False

    def act(self, actions: Iterable[Action]) -> None:
        """Carry out what the health has asked for."""
        if self._stopped:
            return
        for action in actions:
            if action is Action.PING:
                self._chores.start(self._ping(self), f"ping of {self.health.entity}")
            else:
                self._turn(action)
        self._set_timer()

    def _turn(self, action: Action) -> None:
        self.since = self._loop.time()
        if action is Action.ENGAGE:
            why = f"failover of {self.health.entity!r} has engaged"
            for sender_state in self.senders:  # S4: no application send goes to the primary any more
                if self.health.answers:
                    sender_state.link.withdraw(why)
                else:
                    sender_state.link.abandon(why)
        self._tell(self, _STATE_AFTER[action])
        if action is not Action.PREPARE_BACKLOG:
            self.wake()

    async def wait(self, until: float) -> bool:
        """Wait until then, or until failover engages or ends; tell whether it did."""
        turned = self._turned
        try:
            async with asyncio.timeout_at(until):
                await turned.wait()
        except TimeoutError:
            return False
        return True

    def wake(self) -> None:
        """Let all who wait look again."""
        turned, self._turned = self._turned, asyncio.Event()
        turned.set()

    def stop(self) -> None:
        """Do nothing any more: no timer, no ping."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.wake()

    def _set_timer(self) -> None:
        wake_at = self.health.wake_at
        if self._timer is not None:
            if self._timer.when() == wake_at:
                return
            self._timer.cancel()
            self._timer = None
        if wake_at is not None:
            self._timer = self._loop.call_at(wake_at, self._tick)

    def _tick(self) -> None:
        self._timer = None
        # The loop may wake a little early, by its clock's resolution: what was set for this time is due.
        due = self.health.wake_at
        self.act(self.health.tick(max(self._loop.time(), due if due is not None else 0.0)))
