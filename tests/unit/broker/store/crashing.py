"""Writes to a store until it is killed, and says on stdout what it began and what was called back as durable.

``+key`` a row is durable, ``-key`` its removal is, ``?key`` its removal has begun, ``*key`` its first
delivery is durable.
"""

import os
import random
import sys
from collections import deque
from itertools import islice
from queue import SimpleQueue
from typing import TYPE_CHECKING

from pairbus.broker.store.base import EntityKind, EntityRow, Row, StoreError, entity_of, key_of, sequence_of
from pairbus.broker.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Callable


TOPIC = 4
SUBSCRIPTIONS = (5, 6)


def body_of(key: int) -> int:
    """Return where the payload of a message is: copies in subscriptions have the number of the topic's message."""
    return key_of(TOPIC, sequence_of(key)) if entity_of(key) in SUBSCRIPTIONS else key


def payload_of(key: int) -> bytes:
    key = body_of(key)
    return random.Random(key).randbytes(1 + key % 3000)


def say(sign: str, keys: list[int]) -> None:
    os.write(1, b"".join(b"%s%d " % (sign.encode("ascii"), key) for key in keys) + b"\n")


class Writer:
    """Sends to three queues and a topic with two subscriptions, delivers and removes, the oldest first."""

    def __init__(self, path: str, seed: int) -> None:
        self.inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.store = SqliteStore(path, self.inbox.put)
        self.choice = random.Random(seed)
        self.next = {entity.id: entity.next_sequence for entity in self.store.entities()}
        self.there = deque(row.key for number in self.next for row in self.store.index(number))
        self.waiting = 0
        for number in {1, 2, 3, TOPIC, *SUBSCRIPTIONS} - self.next.keys():
            self.next[number] = 1
            kind = EntityKind.SUBSCRIPTION if number in SUBSCRIPTIONS else EntityKind.QUEUE
            self.store.journal.entities.append(EntityRow(number, f"entity {number}", "{}", 1, kind))

    def tell(self, sign: str, keys: list[int]) -> None:
        def durable(error: StoreError | None) -> None:
            assert error is None
            self.waiting -= 1
            say(sign, keys)
            if sign == "+":
                self.there.extend(keys)

        self.waiting += 1
        self.store.journal.durable.append(durable)

    def publish(self, count: int) -> None:
        bodies = [key_of(TOPIC, self.next[TOPIC] + step) for step in range(count)]
        self.next[TOPIC] += count
        copies = [(key_of(number, sequence_of(body)), body) for body in bodies for number in SUBSCRIPTIONS]
        self.store.journal.copies += [
            (Row(key, 0, 0, None, None, None, 0, payload_of(key)), body) for key, body in copies
        ]
        self.tell("+", [key for key, _ in copies])

    def step(self) -> None:
        journal = self.store.journal
        number = self.choice.choice((1, 2, 3))
        new = [key_of(number, self.next[number] + step) for step in range(self.choice.choice((1, 3, 40)))]
        self.next[number] += len(new)
        journal.rows += [Row(key, 0, 0, None, None, None, 0, payload_of(key)) for key in new]
        self.tell("+", new)
        self.publish(self.choice.choice((0, 1, 20)))
        gone = [self.there.popleft() for _ in range(min(len(self.there), self.choice.choice((0, 1, 30))))]
        say("?", gone)
        journal.removed += gone
        self.tell("-", gone)
        first = list(islice(self.there, self.choice.choice((0, 5))))
        journal.deliveries += [(key, 1) for key in first]
        self.tell("*", first)
        self.store.flush()
        # Some of it gathers while a commit is under way, as in a broker.
        while self.waiting > 15 or not self.inbox.empty():
            self.inbox.get()()


if __name__ == "__main__":
    writer = Writer(sys.argv[1], int(sys.argv[2]))
    while True:
        writer.step()
