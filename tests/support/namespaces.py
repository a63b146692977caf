"""A namespace in memory, with transports to it that fail, hang and crash as a test says."""

# ruff: noqa: ANN401 (arguments are handed on)

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tests.support.virtual import BEGINNING, monotonic, utc

from pairbus.amqp.message import Message, build_message, encode_data_section
from pairbus.amqp.sections import Header, Properties
from pairbus.amqp.types import Symbol, Timestamp
from pairbus.core.burst import Parked
from pairbus.core.envelope import Label, park
from pairbus.core.routing import DeadLetter
from pairbus.core.verdict import ErrorFacts, facts_of
from pairbus.links.transport import Answers, Outgoing, Received, Settlement
from pairbus.messages.encoded_labels import read

LOCK_SECONDS = 60.0


class MessageLockLostError(Exception):
    """Stands for the SDK's error of that name."""


@dataclass
class Stored:
    """A message in a queue."""

    payload: bytes
    enqueued: float
    locked_until: float = 0.0
    token: int = 0


@dataclass(slots=True, eq=False, kw_only=True)
class Taken(Received):
    """A message under lock."""

    token: int


@dataclass
class Namespace:
    """Queues that can be received from, and destinations that take whatever is sent."""

    name: str
    queues: dict[str, dict[int, Stored]] = field(default_factory=lambda: defaultdict[str, dict[int, Stored]](dict))
    dead: list[tuple[str, DeadLetter]] = field(default_factory=list[tuple[str, DeadLetter]])
    arrived: dict[str, list[list[str]]] = field(default_factory=lambda: defaultdict[str, list[list[str]]](list))
    """The ids of each batch, by destination."""
    numbers: Any = field(default_factory=lambda: itertools.count(1))
    tokens: Any = field(default_factory=lambda: itertools.count(1))
    came: asyncio.Event = field(default_factory=asyncio.Event)
    put_at: float | None = None
    """What the broker's clock says, in seconds; None: the time."""

    def park(self, queue: str, name: str, destination: str = "orders", **label: Any) -> int:
        """Park a message."""
        return self.put(queue, name, park(Label(**label), destination))

    def put(self, queue: str, name: str, label: Label, body: bytes = b"") -> int:
        """Put a message into a queue as it is."""
        number = next(self.numbers)
        payload = build_message(
            encode_data_section(body),
            header=Header(delivery_count=0),
            properties=Properties(message_id=name),
            application_properties=dict(label.application_properties),
        )
        self.queues[queue][number] = Stored(payload, monotonic() if self.put_at is None else self.put_at)
        self.came.set()
        return number

    def recreate(self, queue: str) -> None:
        """Delete a queue with all that is in it, and create it again: its numbers begin at 1."""
        self.queues[queue] = {}
        self.numbers = itertools.count(1)

    def ids(self, destination: str) -> list[str]:
        """Return the ids of all messages that have arrived."""
        return [name for batch in self.arrived[destination] for name in batch]


def name_of(payload: bytes) -> str:
    """Return a message's id."""
    properties = Message(payload).properties()
    assert properties is not None
    return str(properties.message_id)


class Line:
    """A transport to a namespace.

    :ivar script: what happens at a step, each time it is reached: an error is raised, a number lets time pass.
    :ivar steps: every step that was reached: ``send orders``, and ``sent orders`` once it has had its effect.
    """

    def __init__(self, space: Namespace) -> None:
        self.space = space
        self.script: dict[str, list[Exception | float | None]] = {}
        self.steps: list[str] = []
        self.crash_at: int | None = None
        self.crashed = asyncio.Event()
        self.is_closed = False

    @property
    def namespace(self) -> str:
        return self.space.name

    def facts(self, error: Exception) -> ErrorFacts:
        return facts_of(error, retry_after=getattr(error, "retry_after", None))

    async def _step(self, name: str) -> None:
        await asyncio.sleep(0)
        if self.crashed.is_set() or len(self.steps) == self.crash_at:
            self.crashed.set()
            await asyncio.Event().wait()
        self.steps.append(name)
        planned = self.script.get(name)
        what = planned.pop(0) if planned else None
        if isinstance(what, Exception):
            raise what
        if what is not None:
            await asyncio.sleep(what)

    async def send(self, destination: str, batch: Outgoing) -> None:
        await self._step(f"send {destination}")
        self.space.arrived[destination].append(list(map(name_of, batch.payloads)))
        await self._step(f"sent {destination}")

    async def receive(self, queue: str, most: int, wait: float) -> Sequence[Received]:
        await self._step(f"receive {queue}")
        ends = monotonic() + wait
        while True:
            taken = self._take(queue, most)
            left = ends - monotonic()
            if taken or left <= 0:
                break
            self.space.came.clear()
            free = min((each.locked_until for each in self.space.queues[queue].values()), default=ends)
            try:
                async with asyncio.timeout(min(left, max(0.001, free - monotonic()))):
                    await self.space.came.wait()
            except TimeoutError:
                continue
        await self._step(f"received {queue}")
        return taken

    def _take(self, queue: str, most: int) -> list[Received]:
        taken: list[Received] = []
        for number, stored in sorted(self.space.queues[queue].items()):
            if stored.locked_until <= monotonic() and len(taken) < most:
                stored.locked_until = monotonic() + LOCK_SECONDS
                stored.token = next(self.space.tokens)
                message = Message(
                    Message(stored.payload).rewritten(
                        message_annotations={
                            Symbol("x-opt-sequence-number"): number,
                            Symbol("x-opt-enqueued-time"): Timestamp.of(BEGINNING + timedelta(seconds=stored.enqueued)),
                        }
                    )
                )
                reading = read(message)
                taken.append(
                    Taken(
                        number,
                        reading.label,
                        len(stored.payload),
                        reading.partition_key,
                        payload=message.data,
                        locked_until=utc() + timedelta(seconds=LOCK_SECONDS),
                        enqueued_at=reading.enqueued_at,
                        token=stored.token,
                    )
                )
        return taken

    async def browse(self, queue: str, up_to: int) -> Sequence[Parked]:
        await self._step(f"browse {queue}")
        return [
            Parked(number, read(Message(stored.payload)).label, len(stored.payload))
            for number, stored in sorted(self.space.queues[queue].items())
            if number <= up_to
        ]

    async def settle(self, queue: str, messages: Sequence[Received], settlement: Settlement) -> Answers:
        how = "dead-letter" if isinstance(settlement, DeadLetter) else settlement
        answers: list[Exception | None] = []
        for message in messages:
            try:
                await self._step(f"{how} {name_of(message.payload)}")
                self._settle(queue, message, settlement)
            except Exception as error:  # noqa: BLE001 (its answer)
                answers.append(error)
            else:
                answers.append(None)
        return answers

    def _settle(self, queue: str, message: Received, settlement: Settlement) -> None:
        stored = self._locked(queue, message)
        if settlement == "abandon":
            stored.locked_until = 0.0
            self.space.came.set()
            return
        del self.space.queues[queue][message.sequence_number]
        if isinstance(settlement, DeadLetter):
            self.space.dead.append((name_of(message.payload), settlement))

    async def renew(self, queue: str, messages: Sequence[Received]) -> Answers:
        answers: list[Exception | None] = []
        for message in messages:
            try:
                await self._step(f"renew {name_of(message.payload)}")
                self._locked(queue, message).locked_until = monotonic() + LOCK_SECONDS
            except Exception as error:  # noqa: BLE001 (its answer)
                answers.append(error)
            else:
                answers.append(None)
        return answers

    def _locked(self, queue: str, message: Received) -> Stored:
        stored = self.space.queues[queue].get(message.sequence_number)
        assert isinstance(message, Taken)
        if stored is None or stored.token != message.token or stored.locked_until <= monotonic():
            raise MessageLockLostError
        return stored

    async def close(self) -> None:
        self.is_closed = True
