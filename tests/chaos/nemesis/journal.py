"""What the callers did: every call, what it wanted to send, and how it ended. The checker believes only this."""

import asyncio
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from azure.servicebus import ServiceBusMessage


@dataclass(eq=False, slots=True)
class Call:
    """One call of the application, from opening its sender (where it has one of its own) to the answer.

    :ivar client: which client made it: ``aio``, ``sync``, ``aio-native``, ``sync-native``.
    :ivar caller: which caller, for the table.
    :ivar ids: the ids of its messages.
    :ivar timeout: what the caller gave to the send, in seconds; None: nothing.
    :ivar began: when the call began, by ``time.monotonic``.
    :ivar send_began: when the send itself began, which is what ``timeout`` bounds.
    :ivar step: what was under way last: ``enter``, ``batch``, ``send``, ``close``.
    :ivar error: what was raised; None: acknowledged, or not ended yet.
    """

    client: str
    caller: str
    entity: str
    ids: tuple[str, ...]
    size: int
    timeout: float | None
    began: float
    send_began: float = 0.0
    ended: float | None = None
    step: str = "enter"
    error: BaseException | None = None

    @property
    def acknowledged(self) -> bool:
        return self.ended is not None and self.error is None

    @property
    def maybe_sent(self) -> bool:
        """Whether the error says that something of it may have arrived (S7)."""
        return bool(getattr(self.error, "maybe_sent", False))

    def __str__(self) -> str:
        first = self.ids[0] if len(self.ids) == 1 else f"{self.ids[0]} and {len(self.ids) - 1} more"
        ended = "has not ended" if self.ended is None else f"after {self.ended - self.began:.2f} s"
        how = "acknowledged" if self.acknowledged else f"at {self.step!r}: {self.error!r}"
        notes = "; ".join(getattr(self.error, "__notes__", ()))
        limit = "no time-out" if self.timeout is None else f"timeout={self.timeout:g}"
        return (
            f"{self.client} {self.caller} -> {self.entity}, {first}, {self.size} bytes, {limit}, {ended} {how}"
            f"{f' ({notes})' if notes else ''}"
        )


@dataclass(eq=False)
class Turn:
    """A turn of an entity's health, as a factory told it."""

    client: str
    entity: str
    state: str
    at: float


@dataclass
class Journal:
    """Everything that was called, and the turns of health that the factories told of."""

    calls: list[Call] = field(default_factory=list[Call])
    turns: list[Turn] = field(default_factory=list[Turn])
    lags: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """When the harness's own event loop came late, and by how many seconds."""
    ended: bool = False
    """Whether the harness gives up the calls that are still under way, by cancelling them."""
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def begin(
        self, client: str, caller: str, entity: str, *, count: int = 1, size: int = 100, timeout: float | None = None
    ) -> tuple[Call, list[ServiceBusMessage]]:
        """Note that a call begins, and return it with its messages. Each says its own id in its body."""
        number = next(self._numbers)
        ids = tuple(f"{client}-{number}" if count == 1 else f"{client}-{number}.{index}" for index in range(count))
        messages = [ServiceBusMessage(body_of(each, size), message_id=each) for each in ids]
        call = Call(client, caller, entity, ids, size, timeout, time.monotonic())
        self.calls.append(call)
        return call, messages

    def turned(self, client: str, entity: str, state: str) -> None:
        self.turns.append(Turn(client, entity, state, time.monotonic()))

    def lag(self, began: float, ended: float) -> float:
        """Return by how much the harness itself was late in a period: what the machine's load did to it."""
        return sum(late for at, late in self.lags if began - 1 <= at <= ended + 1)

    async def watch_lag(self) -> None:
        """Notice when the event loop comes late. It runs until it is cancelled."""
        while True:
            due = time.monotonic() + 0.1
            await asyncio.sleep(0.1)
            late = time.monotonic() - due
            if late > 0.1:
                self.lags.append((time.monotonic(), late))


def body_of(message_id: str, size: int) -> bytes:
    """Return what a message says: its id, repeated to its size, so that a mixed-up body is noticed."""
    text = f"{message_id} ".encode()
    return (text * (size // len(text) + 1))[: max(size, len(text))]
