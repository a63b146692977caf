"""Simulated applications: senders and pings, driven by the rules of ``core/``."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from random import Random

from pairbus.core.envelope import park
from pairbus.core.health import Action, EntityHealth, HealthBook
from pairbus.core.ledger import Kind
from pairbus.core.naming import entity_key
from pairbus.core.rotation import Rotation
from pairbus.core.sending import BacklogChoice, Done, Failed, Pause, Sending, SendPolicy, ToBacklog, ToPrimary
from pairbus.core.verdict import ErrorFacts
from pairbus.simulate.brokers import Message, Namespace
from pairbus.simulate.checker import Checker
from pairbus.simulate.history import (
    ACCEPTED,
    NOT_SENT,
    NOT_TAKEN,
    PARKED,
    PARKING,
    PINGED,
    PULLED,
    TRIED,
    TURNED,
    History,
)
from pairbus.simulate.kernel import TIMED_OUT, Future, Kernel, Process, Running, Wait


@dataclass(frozen=True, slots=True)
class Pair:
    """Two namespaces, the backlog queues, and who watches."""

    kernel: Kernel
    primary: Namespace
    secondary: Namespace
    backlog: tuple[str, ...]
    checker: Checker
    history: History


class Client:
    """One application with its factory: the health of its entities and its rotation."""

    def __init__(self, name: str, pair: Pair, policy: SendPolicy, random: Random) -> None:
        self.name = name
        self.alive = True
        self.processes: list[Process] = []
        self._pair = pair
        self._policy = policy
        self._random = random
        self._health = HealthBook(
            failover_interval=pair.checker.failover_interval, ping_interval=pair.checker.ping_interval
        )
        self._rotation = Rotation(pair.backlog, random)
        self._turned: dict[str, Future[None]] = {}
        self._sending: list[Message] = []

    def start_sender(
        self, entity: str, messages: Iterable[Message], gap: float, timeout: float | None, *, starts: float = 0.0
    ) -> None:
        """Have a sender of its own send messages one after the other."""
        self.processes.append(self._pair.kernel.spawn(self._send_all(entity, messages, gap, timeout, starts)))

    def crash(self) -> None:
        """End the application where it stands."""
        self._pair.history.add(self.name, "crashes")
        self.alive = False
        for process in self.processes:
            process.kill()
        self._pair.checker.client_crashed(self.name, self._sending)
        self._sending.clear()

    @property
    def ended(self) -> bool:
        """Whether all sends have ended."""
        return not any(process.alive for process in self.processes)

    def _send_all(
        self, entity: str, messages: Iterable[Message], gap: float, timeout: float | None, starts: float
    ) -> Running[None]:
        yield starts
        choice = BacklogChoice()
        for message in messages:
            yield self._random.expovariate(1 / gap)
            self._pair.checker.created(message, entity)
            self._sending.append(message)
            outcome = yield from self._send(entity, message, choice, timeout)
            self._sending.remove(message)
            self._pair.checker.ended(message, outcome)
            self._tell(message, outcome)

    def _tell(self, message: Message, outcome: Done | Failed) -> None:
        match outcome:
            case Done(None):
                self._pair.history.add(self.name, ACCEPTED, message.id)
            case Done(queue):
                self._pair.history.add(self.name, PARKED, message.id, queue)
            case Failed(error):
                self._pair.history.add(self.name, NOT_SENT, message.id, error)

    def _send(
        self, entity: str, message: Message, choice: BacklogChoice, timeout: float | None
    ) -> Running[Done | Failed]:
        kernel = self._pair.kernel
        health = self._health[entity]
        sending = Sending(health, self._rotation, choice, self._policy, self._random, kernel.now, timeout)
        while True:
            match sending.step(kernel.now):
                case ToPrimary(deadline):
                    yield from self._to_primary(sending, entity, message, deadline)
                case ToBacklog(queue, deadline):
                    yield from self._to_backlog(sending, queue, message, deadline)
                case Pause(until):
                    turned = self._turned.setdefault(entity_key(entity), Future[None]())
                    if (yield Wait(turned, until)) is not TIMED_OUT:
                        sending.health_changed()
                case Done() | Failed() as outcome:
                    return outcome

    def _to_primary(self, sending: Sending, entity: str, message: Message, deadline: float) -> Running[None]:
        pair = self._pair
        pair.checker.to_primary(self.name, entity, message)
        pair.history.add(self.name, TRIED, message.id, entity)
        answer = yield from pair.primary.call(
            entity, Kind.SEND, lambda _queue: pair.checker.arrived(entity, message, None), deadline
        )
        pair.checker.primary_answered(self.name, entity, message, answer)
        if answer is None:
            self._act(sending.health, sending.primary_accepted())
        else:
            pair.history.add(self.name, NOT_TAKEN, message.id, answer.error)
            self._act(sending.health, sending.primary_failed(answer, pair.kernel.now))

    def _to_backlog(self, sending: Sending, queue: str, message: Message, deadline: float) -> Running[None]:
        pair, entity = self._pair, sending.health.entity
        parked = replace(message, label=park(message.label, entity))
        pair.checker.to_backlog(self.name, entity, queue, message)
        pair.history.add(self.name, PARKING, message.id, queue)
        answer = yield from pair.secondary.call(
            queue, Kind.SEND, lambda stored: pair.checker.parked(queue, stored.send([parked]), [message]), deadline
        )
        pair.checker.backlog_answered(self.name, queue, message, answer)
        if answer is None:
            sending.backlog_accepted(queue)
        else:
            pair.history.add(self.name, PULLED, message.id, queue, answer.error)
            sending.backlog_failed(queue, answer, pair.kernel.now)

    def _act(self, health: EntityHealth, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Action.PING:
                    self.processes.append(self._pair.kernel.spawn(self._ping(health)))
                case Action.ENGAGE | Action.RESUME:
                    self._pair.history.add(self.name, TURNED, health.entity, health.state.value)
                    turned = self._turned.pop(entity_key(health.entity), None)
                    if turned is not None:
                        turned.resolve(None)
                case Action.PREPARE_BACKLOG:
                    self._pair.history.add(self.name, TURNED, health.entity, health.state.value)
        if health.wake_at is not None:
            self._pair.kernel.at(health.wake_at, lambda: self._act_if_alive(health))

    def _act_if_alive(self, health: EntityHealth) -> None:
        if self.alive:
            actions = health.tick(self._pair.kernel.now)
            if actions:
                self._act(health, actions)

    def _ping(self, health: EntityHealth) -> Running[None]:
        pair = self._pair
        pair.checker.pinged(self.name, health.entity)
        pair.history.add(self.name, PINGED, health.entity)
        answer: ErrorFacts | None = yield from pair.primary.call(
            health.entity, Kind.PING, lambda _queue: None, pair.kernel.now + self._policy.attempt_timeout
        )
        pair.checker.ping_answered(self.name, health.entity, answer)
        if answer is None:
            self._act(health, health.ping_accepted())
        else:
            self._act(health, health.ping_failed(pair.kernel.now))
