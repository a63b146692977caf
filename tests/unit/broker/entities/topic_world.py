"""A namespace with a topic on a store in memory that can refuse, and a clock that is moved by hand."""

from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

from tests.unit.broker.entities.conftest import START, RefusingStore, name_of, payload, properties_of

from pairbus.broker.entities.message import Held, read_incoming
from pairbus.broker.entities.settings import SubscriptionSettings, TopicSettings
from pairbus.broker.filters import Rule
from pairbus.broker.namespace.namespace import Namespace
from pairbus.broker.refusals import RefusedError
from pairbus.broker.store.base import Journal, Row


class World:
    """A namespace with the topic ``orders``; every step is committed unless it says otherwise."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401
        self.now = START
        self.inbox: deque[Callable[[], None]] = deque()
        self.store = RefusingStore(self.inbox.append)
        self.answers: list[RefusedError | None] = []
        self._tokens = count(1)
        self.restart()
        self.topics.create("orders", TopicSettings(**settings), self.answer)
        self.commit()

    def restart(self) -> None:
        """Forget everything that is not durable."""
        self.inbox.clear()
        self.store.journal = Journal()
        self.namespace = Namespace(
            "contoso", self.store, clock=lambda: self.now, tokens=lambda: next(self._tokens).to_bytes(16)
        )
        self.topics = self.namespace.topics

    def answer(self, refused: RefusedError | None) -> None:
        self.answers.append(refused)

    def flush(self, *, full: bool = False) -> None:
        """Hand over what has gathered; nobody is answered yet."""
        self.store.full = full
        self.store.flush()
        self.store.full = False

    def commit(self, *, full: bool = False) -> None:
        self.flush(full=full)
        while self.inbox:
            self.inbox.popleft()()

    def settle(self) -> None:
        """Commit until nothing more comes of it."""
        while not self.store.journal.is_empty():
            self.commit()

    def subscribe(self, name: str, *rules: Rule, **settings: Any) -> None:  # noqa: ANN401
        self.topics.create_subscription("orders", name, SubscriptionSettings(**settings), self.answer, *rules[:1])
        for rule in rules[1:]:
            self.topics.create_rule("orders", name, rule, self.answer)
        self.commit()

    def send(self, *names: str, to: str = "orders", full: bool = False, **sections: Any) -> list[int]:  # noqa: ANN401
        messages = [read_incoming(payload(name, **sections)) for name in names]
        numbers = self.namespace.entities.get_destination(to).send(messages, self.now, self.answer)
        self.commit(full=full)
        return numbers

    def held(self, subscription: str, dead: str = "") -> list[Held]:
        """Look at what a subscription has."""
        path = f"orders/subscriptions/{subscription}{dead}"
        return self.namespace.entities.get(path).queue.peek(0, 1000, self.now)

    def names(self, subscription: str, dead: str = "") -> list[str]:
        return [name_of(held) for held in self.held(subscription, dead)]

    def dead(self, subscription: str) -> list[tuple[str, object]]:
        held = self.held(subscription, "/$deadletterqueue")
        return [(name_of(each), properties_of(each)["DeadLetterReason"]) for each in held]

    def tick(self, passed: int = 0, *, full: bool = False) -> None:
        self.now += passed
        self.namespace.tick()
        self.commit(full=full)

    def is_balanced(self) -> bool:
        """Tell whether the counts are those of the store, once all is durable."""
        topic = self.topics.get("orders")
        scheduled = self.store.rows(topic.id)
        sizes = [len(row.payload) for row in scheduled]
        for node in self.namespace.entities:
            rows: list[Row] = self.store.rows(node.queue.id)
            if node.queue.size != sum(len(row.payload) for row in rows):
                return False
            sizes += [len(row.payload) for row in rows]
        return topic.size == sum(sizes) and topic.scheduled_count == len(scheduled)
