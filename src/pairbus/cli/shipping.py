"""Sending many messages in their order: together where they may travel together, and counted one by one."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pairbus.cli.inputs import BadLine, InputMessage
from pairbus.core.ledger import Kind, Outcome, Record, Stage
from pairbus.core.verdict import Cause
from pairbus.errors import MessageError
from pairbus.links.deadlines import within
from pairbus.links.errors import facts
from pairbus.messages.sdk_messages import group_key

if TYPE_CHECKING:
    from pairbus.aio import MessageSender

BATCH_MESSAGES: Final = 250
BATCH_BYTES: Final = 200 * 1024
"""The least of the tiers takes 256 KB, and a parked message is larger."""
GRACE: Final = 5.0
"""How much longer than its time-out a send may take before it is given up."""

_ITS_OWN: Final = frozenset((Cause.TOO_LARGE, Cause.BAD_ARGUMENT))
"""What is wrong with one message says nothing about the others."""


class ParkedCount:
    """A sink that counts what was parked: of the others, the primary has taken all that were accepted."""

    def __init__(self) -> None:
        self.messages = 0

    def record(self, record: Record) -> None:
        """Take a record."""
        if record.kind is Kind.SEND and record.stage is Stage.PARK and record.outcome is Outcome.DONE:
            self.messages += record.messages


@dataclass(slots=True)
class SendCounts:
    """What became of the messages.

    :ivar unknown: no answer came: they may have arrived.
    """

    sent: int = 0
    parked: int = 0
    failed: int = 0
    unknown: int = 0
    not_tried: int = 0

    @property
    def tried(self) -> int:
        """How many messages have had their turn."""
        return self.sent + self.parked + self.failed + self.unknown

    @property
    def is_complete(self) -> bool:
        """Whether a broker has accepted all of them."""
        return not (self.failed or self.unknown or self.not_tried)


@dataclass(slots=True)
class Shipper:
    """Sends lines one group after the other.

    :param parked: counts what the sender has parked.
    :param refused: told of each line that was not accepted, and why.
    :param moved: told each time that the counts have changed.
    """

    sender: "MessageSender"
    timeout: float
    parked: ParkedCount
    refused: Callable[[InputMessage | BadLine, BaseException | None], None]
    moved: Callable[[], None]
    counts: SendCounts = field(default_factory=SendCounts)
    broken: BaseException | None = None
    """What has ended it before its time."""
    is_open: bool = False
    """Whether the link is: before that, nothing can have been sent."""

    async def ship(
        self, chunks: AsyncIterator[list[InputMessage | BadLine]], *, keep_going: bool, endless: bool
    ) -> None:
        """Send everything, until something hinders all that follow; those are refused too, unless they are endless."""
        async for chunk in chunks:
            for group in grouped(chunk):
                if isinstance(group, BadLine):
                    self.counts.failed += 1
                    self.refused(group, None)
                    if not keep_going:
                        self.broken = MessageError(f"{group.where}: {group.problem}")
                elif self.broken is not None:
                    for line in group:
                        self.counts.not_tried += 1
                        self.refused(line, None)
                else:
                    await self._send(group)
                self.moved()
            if self.broken is not None and endless:
                return

    async def _send(self, group: list[InputMessage]) -> None:
        before = self.parked.messages
        try:
            await self._attempt(group)
        except Exception as error:  # noqa: BLE001 (counted, and told to the user)
            self._parked_of(group, before)
            rest = group[self.parked.messages - before :]
            mine = isinstance(error, MessageError) or facts(error).cause in _ITS_OWN
            if mine and len(group) > 1:
                for line in rest:
                    if self.broken is None:
                        await self._send([line])
                return
            self._failed(rest, error)
            if not mine:
                self.broken = error
        except BaseException:  # interrupted: what is under way may arrive
            self._parked_of(group, before)
            rest = group[self.parked.messages - before :]
            self.counts.unknown += len(rest)
            for line in rest:
                self.refused(line, None)
            raise
        else:
            self._parked_of(group, before)
            self.counts.sent += len(group) - (self.parked.messages - before)

    async def _attempt(self, group: list[InputMessage]) -> None:
        if not self.is_open:
            await within(self.timeout + GRACE, self.sender.__aenter__())
            self.is_open = True
        messages: Any = [line.message for line in group] if len(group) > 1 else group[0].message
        await within(self.timeout + GRACE, self.sender.send_messages(messages, timeout=self.timeout))

    def _parked_of(self, group: list[InputMessage], before: int) -> None:
        self.counts.parked += min(len(group), self.parked.messages - before)

    def _failed(self, lines: Iterable[InputMessage], error: Exception) -> None:
        maybe_sent: bool | None = getattr(error, "maybe_sent", None)  # which all errors of a paired send know (S7)
        in_doubt = facts(error, begun=self.is_open).in_doubt if maybe_sent is None else maybe_sent
        for line in lines:
            if in_doubt:
                self.counts.unknown += 1
            else:
                self.counts.failed += 1
            self.refused(line, error)


def grouped(lines: Iterable[InputMessage | BadLine]) -> Iterator[list[InputMessage] | BadLine]:
    """Cut lines into groups that can be sent as one: of one session and partition, and not too large."""
    group: list[InputMessage] = []
    size, key = 0, None
    for line in lines:
        if isinstance(line, BadLine):
            if group:
                yield group
                group = []
            yield line
            continue
        mine, more = group_key(line.message), line.size
        if group and (mine != key or size + more > BATCH_BYTES or len(group) >= BATCH_MESSAGES):
            yield group
            group = []
        if not group:
            size, key = 0, mine
        group.append(line)
        size += more
    if group:
        yield group
