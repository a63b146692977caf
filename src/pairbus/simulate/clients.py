"""Simulated applications: senders and pings, driven by the rules of ``core/``."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random

from pairbus.core.envelope import park
from pairbus.core.health import Action, EntityHealth, HealthBook
from pairbus.core.ledger import Kind
from pairbus.core.naming import entity_key
from pairbus.core.rotation import Rotation
from pairbus.core.sending import (
    BacklogChoice,
    Done,
    Failed,
    Pause,
    Sending,
    SendPolicy,
    ToBacklog,
    ToPrimary,
    note_backlog_failure,
    note_primary_failure,
)
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
from pairbus.simulate.setting import SenderSetting


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

    def start_sender(self, setting: SenderSetting) -> None:
        """Have a sender of its own send messages one after the other, or so many together."""
        self.processes.append(self._pair.kernel.spawn(self._send_all(setting)))

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

    def _send_all(self, setting: SenderSetting) -> Running[None]:
        yield setting.starts
        choice = BacklogChoice()
        for first in range(0, len(setting.messages), setting.batch):
            messages = setting.messages[first : first + setting.batch]
            yield self._random.expovariate(1 / setting.gap)
            for message in messages:
                self._pair.checker.created(message, setting.entity)
            self._sending.extend(messages)
            outcome = yield from self._send(setting.entity, messages, choice, setting.timeout)
            for index, message in enumerate(messages):
                self._sending.remove(message)
                self._pair.checker.ended(message, outcome, parked=index < outcome.parked)
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
        self, entity: str, messages: Sequence[Message], choice: BacklogChoice, timeout: float | None
    ) -> Running[Done | Failed]:
        kernel = self._pair.kernel
        health = self._health[entity]
        sending = Sending(
            health, self._rotation, choice, self._policy, self._random, kernel.now, timeout, len(messages)
        )
        while True:
            match sending.step(kernel.now):
                case ToPrimary(deadline, first):
                    yield from self._to_primary(sending, entity, messages[first:], deadline)
                case ToBacklog(queue, deadline, first):
                    run = messages[first : first + self._random.randint(1, len(messages))]
                    yield from self._to_backlog(sending, queue, run, deadline)
                case Pause(until):
                    turned = self._turned.setdefault(entity_key(entity), Future[None]())
                    if (yield Wait(turned, until)) is not TIMED_OUT:
                        sending.health_changed()
                case Done() | Failed() as outcome:
                    return outcome

    def _attempt(self, call: Running[object | ErrorFacts]) -> Future[ErrorFacts | None]:
        """Make an attempt, which goes on to its own deadline whether its caller waits for it or not."""
        ended = Future[ErrorFacts | None]()

        def attempt() -> Running[None]:
            answer = yield from call
            ended.resolve(answer if isinstance(answer, ErrorFacts) else None)

        self.processes.append(self._pair.kernel.spawn(attempt()))
        return ended

    def _to_primary(self, sending: Sending, entity: str, messages: Sequence[Message], deadline: float) -> Running[None]:
        pair = self._pair

        def store(_queue: object) -> None:
            for message in messages:
                pair.checker.arrived(entity, message, None)

        def answered(answer: ErrorFacts | None) -> None:
            pair.checker.primary_answered(self.name, entity, messages, answer)

        pair.checker.to_primary(self.name, entity, messages[0])
        for message in messages:
            pair.history.add(self.name, TRIED, message.id, entity)
        attempt = self._attempt(pair.primary.call(entity, Kind.SEND, store, deadline))
        attempt.then(answered)
        answer = yield Wait(attempt, sending.ends)
        if answer is TIMED_OUT:
            sending.gave_up(begun=True)
            attempt.then(lambda late: self._primary_unheard(sending.health, late))
        elif answer is None:
            self._act(sending.health, sending.primary_accepted())
        else:
            pair.history.add(self.name, NOT_TAKEN, messages[0].id, answer.error)
            self._act(sending.health, sending.primary_failed(answer, pair.kernel.now))

    def _primary_unheard(self, health: EntityHealth, answer: ErrorFacts | None) -> None:
        if self.alive:
            now = self._pair.kernel.now
            self._act(
                health,
                health.attempt_accepted()
                if answer is None
                else note_primary_failure(health, self._policy, answer, now),
            )

    def _to_backlog(self, sending: Sending, queue: str, messages: Sequence[Message], deadline: float) -> Running[None]:
        pair, entity, began = self._pair, sending.health.entity, self._pair.kernel.now
        parked = [replace(message, label=park(message.label, entity)) for message in messages]

        def answered(answer: ErrorFacts | None) -> None:
            pair.checker.backlog_answered(self.name, queue, messages, answer, began)

        pair.checker.to_backlog(self.name, entity, queue, messages[0], pair.backlog)
        for message in messages:
            pair.history.add(self.name, PARKING, message.id, queue)
        attempt = self._attempt(
            pair.secondary.call(
                queue, Kind.SEND, lambda stored: pair.checker.parked(stored.send(parked), messages), deadline
            )
        )
        attempt.then(answered)
        answer = yield Wait(attempt, sending.ends)
        if answer is TIMED_OUT:
            sending.gave_up(begun=True)
            attempt.then(lambda late: self._backlog_unheard(queue, late, began))
        elif answer is None:
            sending.backlog_accepted(queue, len(messages))
        else:
            pair.history.add(self.name, PULLED, messages[0].id, queue, answer.error)
            sending.backlog_failed(queue, answer, pair.kernel.now)

    def _backlog_unheard(self, queue: str, answer: ErrorFacts | None, began: float) -> None:
        if answer is None:
            self._rotation.accepted(queue, began=began)
        else:
            note_backlog_failure(self._rotation, queue, answer, began=began, now=self._pair.kernel.now)

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
            health.entity,
            Kind.PING,
            lambda _queue: None,
            pair.kernel.now + self._policy.attempt_timeout,
            size=health.ping_bytes,
        )
        pair.checker.ping_answered(self.name, health.entity, answer)
        if answer is None:
            self._act(health, health.ping_accepted())
        else:
            self._act(health, health.ping_failed(pair.kernel.now, answer.error))
