"""Dead letters of both namespaces: looked at when their number changes, sent again or discarded on demand."""

import asyncio
import math
import time
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

from pairbus.dashboard.look import Looker, why
from pairbus.dashboard.snapshot import Look, Queue, Role
from pairbus.dashboard.words import plural
from pairbus.errors import OptionError, PairbusError
from pairbus.links.deadlines import within
from pairbus.links.sdk.browsing import browse
from pairbus.operate.deadletters import Choice, Letter, Outcome, Shelf, discard, letter_of, resubmit

SHOWN: Final = 20
"""Dead letters of one entity that are shown: the oldest ones."""
MOST_PILES: Final = 20
LOOK_SECONDS: Final = 15.0
WORK_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class EntityDeadLetters:
    """The dead letters of one entity.

    :ivar count: how many there are; ``letters`` are the first of them.
    :ivar problem: why they cannot be looked at.
    """

    role: Role
    shelf: Shelf
    count: int
    letters: tuple[Letter, ...] = ()
    problem: str | None = None


class Piles:
    """Knows the dead letters of the namespaces that are looked at."""

    def __init__(self, lookers: Mapping[Role, Looker]) -> None:
        self.piles: tuple[EntityDeadLetters, ...] = ()
        self._lookers = lookers
        self._counts: list[tuple[Role, str, int]] | None = None
        self._retry_at = math.inf
        self._looking = asyncio.Lock()
        self._at_work = asyncio.Lock()

    @property
    def is_informed(self) -> bool:
        """Whether any namespace was seen, so that having no dead letters means that there are none."""
        return any(looker.look.at is not None for looker in self._lookers.values())

    async def again(self) -> None:
        """Look at the dead letters, if their numbers have changed since the last time."""
        async with self._looking:
            found = list(_queues([looker.look for looker in self._lookers.values()]))
            counts = [(role, queue.path, queue.dead_letters) for role, queue in found]
            if counts != self._counts or time.monotonic() > self._retry_at:
                self.piles = tuple(await asyncio.gather(*(self._pile(*each) for each in found[:MOST_PILES])))
                self._counts = counts
                failed = any(pile.problem is not None for pile in self.piles)
                self._retry_at = time.monotonic() + LOOK_SECONDS if failed else math.inf

    async def _pile(self, role: Role, queue: Queue) -> EntityDeadLetters:
        topic, _, subscription = queue.path.partition("/Subscriptions/")
        shelf = Shelf(topic, subscription or None, is_backlog=queue.backlog is not None)
        try:
            letters = await within(LOOK_SECONDS, self._letters(role, shelf))
        except Exception as error:  # noqa: BLE001 (whatever it is, the page says so)
            return EntityDeadLetters(role, shelf, queue.dead_letters, problem=why(error))
        return EntityDeadLetters(role, shelf, queue.dead_letters, letters)

    async def _letters(self, role: Role, shelf: Shelf) -> tuple[Letter, ...]:
        async with aclosing(browse(self._lookers[role].client, shelf.path, most=SHOWN)) as messages:
            return tuple([letter_of(message) async for message in messages])

    async def resubmit(self, pile: EntityDeadLetters, letters: Sequence[Letter] | None, to: str = "") -> str:
        """Send dead letters again, or with None all of the pile; return what became of them, in words.

        :param to: the queue or topic that is to have them; empty: where they came from.
        """
        elsewhere = None
        if to and pile.shelf.is_backlog:  # what was parked belongs to the primary
            if Role.PRIMARY not in self._lookers:
                raise OptionError("to", to, "nothing as long as the dashboard does not know the primary (--primary)")
            elsewhere = self._lookers[Role.PRIMARY].client
        client = self._lookers[pile.role].client
        async with self._at_work:
            work = resubmit(client, pile.shelf, _choice(letters), to=to or None, to_client=elsewhere)
            outcome = await _done(work)
        await self._look_again(pile)
        return _told(outcome, "sent again")

    async def discard(self, pile: EntityDeadLetters, letters: Sequence[Letter] | None) -> str:
        """Remove dead letters for good, or with None all of the pile; return what became of them, in words."""
        async with self._at_work:
            outcome = await _done(discard(self._lookers[pile.role].client, pile.shelf, _choice(letters)))
        await self._look_again(pile)
        return _told(outcome, "discarded")

    async def _look_again(self, pile: EntityDeadLetters) -> None:
        await self._lookers[pile.role].again(afresh=True)
        async with self._looking:
            self._counts = None
        await self.again()


def _queues(looks: Iterable[Look]) -> Iterator[tuple[Role, Queue]]:
    for look in looks:
        for queue in look.with_dead_letters:
            yield look.role, queue


def _choice(letters: Sequence[Letter] | None) -> Choice:
    numbers = None if letters is None else frozenset(letter.sequence_number for letter in letters)
    return Choice(sequence_numbers=numbers)


async def _done(work: Coroutine[Any, Any, Outcome]) -> Outcome:
    """Do something with dead letters; what a broker or a network has against it is told in a few words."""
    try:
        return await within(WORK_SECONDS, work)
    except PairbusError:
        raise
    except Exception as error:
        raise DeadLetterError(f"not all was done: {why(error)}; what was not is a dead letter still") from error


class DeadLetterError(PairbusError):
    """Dead letters could not be sent again or discarded."""


def _told(outcome: Outcome, done: str) -> str:
    told = [f"{plural(len(outcome.done), 'message')} {done}."]
    told += [f"{letter.message_id or letter.sequence_number} is kept: {reason}." for letter, reason in outcome.kept[:3]]
    if outcome.twice:
        told.append(f"{len(outcome.twice)} sent, and still here as well.")
    if outcome.vanished:
        told.append(f"{outcome.vanished} could not be had: somebody else has them.")
    return " ".join(told)
