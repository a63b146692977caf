"""What becomes of one message in the subscriptions of a topic."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from pairbus.broker.entities.message import Incoming, dead_lettered, read_incoming
from pairbus.broker.entities.queue import Queue
from pairbus.broker.entities.subscription import Subscription
from pairbus.broker.filters import EvaluationError, Facts, Selected, apply_action
from pairbus.broker.refusals import no_answer
from pairbus.broker.store.base import Journal, Row

UNFILTERED: Final = "FilterEvaluationException"
"""Why a message is dead-lettered that a rule has failed on."""
WITHOUT_SESSION: Final = (
    "Session ID is null.",
    "Session enabled entity doesn't allow a message whose session identifier is null.",
)


@dataclass(slots=True)
class Copies:
    """The copies of a message.

    :ivar original: the message as the topic took it.
    :ivar key: where its payload is stored, for all copies that have no other.
    :ivar alive: what goes into which subscription: the original, or a message that an action has made of it.
    :ivar dead: what goes into the dead-letter queue of which subscription, with reason and description.
    """

    original: Incoming
    key: int
    alive: list[tuple[Subscription, Incoming]] = field(default_factory=list[tuple[Subscription, Incoming]])
    dead: list[tuple[Subscription, Incoming, str, str]] = field(
        default_factory=list[tuple[Subscription, Incoming, str, str]]
    )

    def journal(self, journal: Journal, now: int, stored: dict[Queue, list[Row]]) -> None:
        """Write the copies, and add the rows that are to arrive in queues when they are durable."""
        original, key = self.original, self.key
        for subscription, message in self.alive:
            queue = subscription.queue
            row = queue.expect_copy(message, now)
            if message is original:
                journal.copies.append((row, key))
            else:
                journal.rows.append(row)
            rows = stored.get(queue)
            if rows is None:
                stored[queue] = [row]
            else:
                rows.append(row)
        for subscription, message, reason, description in self.dead:
            if subscription.queue.dead is not None:
                payload = dead_lettered(message.payload, reason, description, subscription.path)
                subscription.queue.dead.receive_dead(payload, 0, now, no_answer)


def copies_of(
    original: Incoming, key: int, facts: Facts, matches: Mapping[Subscription, Selected], longest: int | None
) -> Copies:
    """Return what rules make of a message.

    :param longest: how long a message lives at most that an action has made; None: as long as it says.
    """
    copies = Copies(original, key)
    for subscription, selected in matches.items():
        settings = subscription.settings
        try:
            if selected.errors and settings.dead_lettering_on_filter_evaluation_exceptions:
                raise selected.errors[0][1]
            made = list(_made(original, facts, selected, longest))
        except EvaluationError as error:
            if settings.dead_lettering_on_filter_evaluation_exceptions:
                copies.dead.append((subscription, original, UNFILTERED, str(error)))
            continue
        for message in made:
            if settings.requires_session and message.session_id is None:
                copies.dead.append((subscription, message, *WITHOUT_SESSION))
            else:
                copies.alive.append((subscription, message))
    return copies


def _made(original: Incoming, facts: Facts, selected: Selected, longest: int | None) -> Iterator[Incoming]:
    """Give one copy for all rules without an action, and one for each rule that has one, as the cloud does."""
    if any(rule.action is None for rule in selected.rules):
        yield original
    for rule in selected.rules:
        if rule.action is not None:
            message = read_incoming(apply_action(rule, facts))
            if longest is not None and (message.time_to_live is None or message.time_to_live > longest):
                message.time_to_live = longest
            yield message
