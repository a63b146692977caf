"""Which backlog queues are in play (S5), and which of the others is tried when none is (S13)."""

import math
from collections.abc import Mapping, Sequence
from random import Random

from pairbus.core.backoff import Backoff

COOL_DOWN = Backoff(first=10, cap=300)


class Rotation:
    """The backlog queues of one factory. A queue that failed is out for all senders until it has cooled down.

    After its cool-down a queue may be picked again; if it fails once more it is out for longer, up to the cool-down's
    cap. A message that it accepts wipes the slate clean, and brings the queue back if the attempt began after the
    queue was pulled.

    A queue that is out is still within reach: a send that finds none in play asks for :meth:`longest_resting`.
    """

    def __init__(self, queues: Sequence[str], random: Random, *, cool_down: Backoff = COOL_DOWN) -> None:
        self.queues = tuple(queues)
        self.last_failure: BaseException | None = None
        """What the queue failed with that was pulled last."""
        self._random = random
        self._cool_down = cool_down
        self._failures: dict[str, int] = {}
        self._pulled_at: dict[str, float] = {}
        self._out_until: dict[str, float] = {}

    def choose(self, kept: str | None, now: float) -> str | None:
        """Return the queue that a sender keeps, or another at random when that one is not in play.

        :param kept: the sender's queue so far, None before it first needs one.
        :return: a queue in play, or None when none is left.
        """
        in_play = [queue for queue in self.queues if self._in_play(queue, now)]
        if kept in in_play:
            return kept
        return self._random.choice(in_play) if in_play else None

    def longest_resting(self) -> str | None:
        """Return the queue whose last failure is the longest ago (S13); None: there are no queues at all."""
        return min(self.queues, key=lambda queue: self._pulled_at.get(queue, -math.inf), default=None)

    def pull(self, queue: str, now: float, *, began: float | None = None, error: BaseException | None = None) -> None:
        """Take a queue that failed out of the rotation, for every sender of the factory.

        :param began: when the attempt began; None: now. One that began before the queue was pulled says nothing new.
        """
        if (now if began is None else began) <= self._pulled_at.get(queue, -math.inf):
            return
        self.last_failure = error
        self._failures[queue] = self._failures.get(queue, 0) + 1
        self._pulled_at[queue] = now
        self._out_until[queue] = now + self._cool_down.pause(self._failures[queue], self._random)

    def accepted(self, queue: str, *, began: float) -> None:
        """Note that a queue took a message of an attempt that began then."""
        self._failures.pop(queue, None)
        if began >= self._pulled_at.get(queue, -math.inf):
            self._out_until.pop(queue, None)

    def pulled(self, now: float) -> Mapping[str, float]:
        """Return the queues that are out, with the time at which each may be picked again."""
        return {queue: until for queue, until in self._out_until.items() if now < until}

    def _in_play(self, queue: str, now: float) -> bool:
        return now >= self._out_until.get(queue, now)
