"""Which backlog queues are in play (S5)."""

from collections.abc import Mapping, Sequence
from random import Random

from pairbus.core.backoff import Backoff

COOL_DOWN = Backoff(first=10, cap=300)


class Rotation:
    """The backlog queues of one factory. A queue that failed is out for all senders until it has cooled down.

    After its cool-down a queue may be picked again; if it fails once more it is out for longer, up to
    the cool-down's cap. A message that it accepts wipes the slate clean.
    """

    def __init__(self, queues: Sequence[str], random: Random, *, cool_down: Backoff = COOL_DOWN) -> None:
        self.queues = tuple(queues)
        self._random = random
        self._cool_down = cool_down
        self._failures: dict[str, int] = {}
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

    def pull(self, queue: str, now: float) -> None:
        """Take a queue that failed out of the rotation, for every sender of the factory."""
        if not self._in_play(queue, now):
            return  # an attempt that was under way when another one's failure pulled it
        self._failures[queue] = self._failures.get(queue, 0) + 1
        self._out_until[queue] = now + self._cool_down.pause(self._failures[queue], self._random)

    def accepted(self, queue: str) -> None:
        """Note that a queue took a message. It does not bring back a queue that is out."""
        self._failures.pop(queue, None)

    def pulled(self, now: float) -> Mapping[str, float]:
        """Return the queues that are out, with the time at which each may be tried again."""
        return {queue: until for queue, until in self._out_until.items() if now < until}

    def _in_play(self, queue: str, now: float) -> bool:
        return now >= self._out_until.get(queue, now)
