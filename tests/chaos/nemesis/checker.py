"""What must hold, judged from the callers' journal, the log of the nemesis, and what the SDK has read."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from azure.servicebus.exceptions import OperationTimeoutError
from tests.chaos.nemesis.brokers import Troubles
from tests.chaos.nemesis.journal import Call, Journal
from tests.chaos.nemesis.reader import Found

from pairbus.errors import BacklogUnavailableError

GRACE = 2.0
"""Seconds that a loaded machine may add to anything."""


@dataclass(frozen=True)
class Violation:
    """Something that must not be.

    :ivar what: which promise it breaks.
    :ivar call: the call that it is about, if there is one.
    """

    what: str
    call: Call | None
    copies: tuple[Found, ...] = ()
    detail: str = ""


@dataclass
class Checker:
    """Judges a run that has ended.

    :param attempt_timeout: of the pairing, in seconds.
    :param notice: how long a sender may go without noticing that the primary is back: ping interval and an attempt.
    :param destroyed: ids of the messages that the nemesis deleted itself, with their backlog queue.
    """

    journal: Journal
    troubles: Troubles
    there: Sequence[Found]
    attempt_timeout: float
    notice: float
    destroyed: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        self._epoch = time.time() - time.monotonic()
        self._copies: dict[str, list[Found]] = {}
        for one in self.there:
            self._copies.setdefault(one.message_id, []).append(one)

    def violations(self) -> list[Violation]:
        """Return everything that is wrong."""
        return [
            *(found for call in self.journal.calls for found in self._of(call)),
            *self._strangers(),
        ]

    def _of(self, call: Call) -> Iterator[Violation]:
        if call.ended is None:
            yield Violation("a call never ended", call)
            return
        if call.error is not None and not self.is_allowed(call):
            yield Violation(f"{type(call.error).__name__} at {call.step!r}", call)
        if self._is_late(call):
            yield Violation("past its time-out", call)
        for message_id in call.ids:
            yield from self._of_message(call, message_id)

    def _of_message(self, call: Call, message_id: str) -> Iterator[Violation]:
        copies = self._copies.get(message_id, [])
        if call.acknowledged and not copies and message_id not in self.destroyed:
            yield Violation("lost", call, detail=message_id)
        if any(not each.sound for each in copies):
            yield Violation("damaged", call, tuple(copies))
        if any("dead letters" in each.queue for each in copies):
            yield Violation("dead-lettered", call, tuple(copies))
        if len(copies) > 1 and not self._may_be_twice(call, copies):
            yield Violation("twice without an unknown outcome", call, tuple(copies), message_id)
        if call.error is not None and copies and not call.maybe_sent and not self._said_parked(call):
            yield Violation("said to be not sent, and was", call, tuple(copies), message_id)

    @staticmethod
    def _said_parked(call: Call) -> bool:
        """Whether the error says that a part was parked (S14)."""
        return bool(getattr(call.error, "__notes__", ()))

    def is_allowed(self, call: Call) -> bool:
        """Tell whether an error is the caller's own time-out, or neither namespace took messages."""
        error, ended = call.error, call.ended
        if error is None or ended is None:
            return True
        if isinstance(error, TimeoutError | OperationTimeoutError) and call.timeout is not None:
            return call.step == "send" and ended - call.send_began >= call.timeout - 0.05
        if isinstance(error, BacklogUnavailableError):
            began = max(call.began, ended - self.attempt_timeout - self._grace(call))
            return self.troubles.neither_took(call.entity, began, ended, notice=self.notice)
        return False

    def _is_late(self, call: Call) -> bool:
        if call.timeout is None or call.ended is None or call.step != "send":
            return False
        return call.ended - call.send_began > call.timeout + self._grace(call)

    def _grace(self, call: Call) -> float:
        return GRACE + self.journal.lag(call.began, call.ended or call.began)

    def _may_be_twice(self, call: Call, copies: Sequence[Found]) -> bool:
        """Tell whether an answer may have been lost: during the call, or when the first copy was taken.

        A copy that the primary took and did not answer for, or that the syphon could not complete, is followed by
        another one; the fault was there at that time.
        """
        assert call.ended is not None
        margin = self.attempt_timeout + GRACE
        periods = [(call.began - GRACE, call.ended + GRACE)]
        for each in sorted(copies, key=lambda copy: copy.enqueued_at)[:-1]:
            at = each.enqueued_at - self._epoch
            periods.append((at - GRACE, at + margin))
        return any(self.troubles.doubt_in(*period) for period in periods)

    def _strangers(self) -> Iterator[Violation]:
        known = {each for call in self.journal.calls for each in call.ids}
        for message_id, copies in self._copies.items():
            if message_id not in known:
                yield Violation("never sent, and there", None, tuple(copies), message_id)

    # --- telling --------------------------------------------------------------------------------------------------

    def table(self) -> str:
        """Say what happened."""
        calls = self.journal.calls
        errors = Counter(
            (type(call.error).__name__, call.step, "allowed" if self.is_allowed(call) else "NOT ALLOWED")
            for call in calls
            if call.error is not None
        )
        twice = sum(len(copies) > 1 for copies in self._copies.values())
        turns = Counter((turn.client, turn.entity, turn.state) for turn in self.journal.turns)
        rows = [
            (
                f"{len(calls)} calls with {sum(len(call.ids) for call in calls)} messages, "
                f"{sum(call.acknowledged for call in calls)} calls acknowledged"
            ),
            f"{len(self._copies)} messages found, {twice} of them twice or more, {len(self.destroyed)} deleted by hand",
            *_rows("client", Counter((call.client,) for call in calls)),
            *_rows("error", errors),
            *_rows("fault", Counter((each.side, each.kind) for each in self.troubles)),
            *_rows("turn", turns),
            f"the harness itself was late by {max((late for _, late in self.journal.lags), default=0.0):.2f} s at most",
        ]
        return "\n".join(rows)

    def story(self, violation: Violation) -> str:
        """Tell all that is known about a violation."""
        lines = [f"{violation.what}: {violation.detail} {violation.call or ''}"]
        for each in violation.copies:
            at = each.enqueued_at - self._epoch
            lines.append(f"  copy of {each.message_id} in {each.side} {each.queue}, taken at {at:.3f}")
        call = violation.call
        if call is not None:
            ended = call.ended or time.monotonic()
            lines.append(f"  the call began at {call.began:.3f}, sent at {call.send_began:.3f}, ended at {ended:.3f}")
            causes = ("primary_cause", "backlog_cause", "cause")
            lines += [f"  {name}: {getattr(call.error, name)!r}" for name in causes if hasattr(call.error, name)]
            began, ended = call.began - 15, ended + 15
            lines += [f"  {each.began:.3f} {each}" for each in self.troubles.around(began, ended)]
            lines += [
                f"  {turn.at:.3f} {turn.client} {turn.entity} is {turn.state}"
                for turn in self.journal.turns
                if began <= turn.at <= ended and (turn.client, turn.entity) == (call.client, call.entity)
            ]
        return "\n".join(lines)

    def check(self, *, stories: int = 5) -> None:
        """Print the table, and fail if there are violations, with the stories of a few of each kind."""
        violations = self.violations()
        print(self.table())
        told: Counter[str] = Counter()
        for violation in violations:
            told[violation.what] += 1
            if told[violation.what] <= stories:
                print(self.story(violation))
        assert not violations, ", ".join(f"{count} times: {what}" for what, count in told.items())


def _rows(title: str, counts: "Counter[tuple[str, ...]]") -> Iterable[str]:
    return (f"  {title} {' '.join(key)}: {count}" for key, count in sorted(counts.items()))
