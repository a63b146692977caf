"""What became of every message of the demo: sent, refused, arrived."""

from collections import defaultdict
from collections.abc import Mapping, Sequence


class OrderCounts:
    """Counts messages by their ids.

    A message has been received when it has come to every place where it belongs, and it has come twice when it was
    stored twice there: under two sequence numbers. One that is delivered again under its own was only not completed.

    :param places: for each entity that is sent to, where its messages arrive: a topic's subscriptions.
    """

    def __init__(self, places: Mapping[str, Sequence[str]]) -> None:
        self._places = places
        self._sent: dict[str, set[str]] = {entity: set() for entity in places}
        self._refused: dict[str, set[str]] = {entity: set() for entity in places}
        self._came: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))

    def accepted(self, entity: str, message_id: str) -> None:
        """Note that a send has returned."""
        self._sent[entity].add(message_id)

    def refused(self, entity: str, message_id: str) -> None:
        """Note that a send has raised, or came too late to be tried."""
        self._refused[entity].add(message_id)

    def came(self, place: str, message_id: str, sequence_number: int) -> None:
        """Note that a consumer has got a message."""
        self._came[place][message_id].add(sequence_number)

    def sent_to(self, entity: str) -> int:
        """How many sends to an entity have returned."""
        return len(self._sent[entity])

    @property
    def sent(self) -> int:
        """How many sends have returned."""
        return sum(map(len, self._sent.values()))

    @property
    def failed(self) -> int:
        """How many sends have not."""
        return sum(map(len, self._refused.values()))

    @property
    def arrivals(self) -> int:
        """How many messages have come to a place."""
        return sum(map(len, self._came.values()))

    @property
    def lost(self) -> list[str]:
        """Which messages were sent and have not come to every place where they belong, as ``place: id``."""
        return sorted(
            f"{place}: {message_id}"
            for entity, ids in self._sent.items()
            for place in self._places[entity]
            for message_id in ids - self._came[place].keys()
        )

    @property
    def received(self) -> int:
        """How many of the messages that were sent have come to every place where they belong."""
        return sum(
            all(message_id in self._came[place] for place in self._places[entity])
            for entity, ids in self._sent.items()
            for message_id in ids
        )

    @property
    def duplicates(self) -> int:
        """How often a message has come to a place once more than it should."""
        return sum(len(numbers) - 1 for ids in self._came.values() for numbers in ids.values())
