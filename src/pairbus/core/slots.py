"""How a backlog is shared out: how many movers empty each queue at once, and which worker has which of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

SLOT_DEPTH: Final = 2_000
"""A queue with less than this is not worth a second slot: opening its links takes longer than emptying it."""


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the work: one of the slots at a queue.

    :ivar quota: how many messages it may move before the work is shared out again.
    :ivar weight: how many messages it is expected to move; 0: not known.
    """

    queue: str
    slot: int
    quota: float
    weight: int = 0

    def once(self) -> "Share":
        """Return the share with what it is expected to move as its quota: then it need not wait to see the end."""
        return replace(self, quota=min(self.quota, self.weight)) if self.weight else self


def share_out(depths: Mapping[str, int | None], parallelism: int, *, quota: float) -> list[Share]:
    """Give each queue a slot, and one that is deeper than the fair part of a worker as many as it takes.

    So a backlog that is all in one queue still keeps every worker busy.

    :param depths: how many messages are in each queue; None: not known.
    :param parallelism: how many can work at once.
    """
    fair = max(SLOT_DEPTH, sum(depth or 0 for depth in depths.values()) / parallelism)
    shares: list[Share] = []
    for queue, depth in depths.items():
        slots = min(parallelism, max(1, round((depth or 0) / fair)))
        shares += [Share(queue, slot, quota, -(-(depth or 0) // slots)) for slot in range(slots)]
    return shares


def pack(shares: Sequence[Share], tasks: int) -> list[list[Share]]:
    """Deal the shares to at most so many tasks: the heaviest first, each to the task that has the least."""
    dealt: list[list[Share]] = [[] for _ in range(min(tasks, len(shares)))]
    for share in sorted(shares, key=lambda share: -share.weight):
        min(dealt, key=lambda task: (sum(each.weight for each in task), len(task))).append(share)
    return dealt
