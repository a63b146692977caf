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

from pairbus.broker.store.base import EntityRow, Row, StoreError, key_of
from pairbus.broker.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Callable


def payload_of(key: int) -> bytes:
    return random.Random(key).randbytes(1 + key % 3000)


def say(sign: str, keys: list[int]) -> None:
    os.write(1, b"".join(b"%s%d " % (sign.encode("ascii"), key) for key in keys) + b"\n")


class Writer:
    """Sends to three queues, delivers and removes, the oldest first."""

    def __init__(self, path: str, seed: int) -> None:
        self.inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.store = SqliteStore(path, self.inbox.put)
        self.choice = random.Random(seed)
        self.next = {entity.id: entity.next_sequence for entity in self.store.entities()}
        self.there = deque(row.key for number in self.next for row in self.store.index(number))
        self.waiting = 0
        for number in {1, 2, 3} - self.next.keys():
            self.next[number] = 1
            self.store.journal.entities.append(EntityRow(number, f"queue {number}", "{}", 1))

    def tell(self, sign: str, keys: list[int]) -> None:
        def durable(error: StoreError | None) -> None:
            assert error is None
            self.waiting -= 1
            say(sign, keys)
            if sign == "+":
                self.there.extend(keys)

        self.waiting += 1
        self.store.journal.durable.append(durable)

    def step(self) -> None:
        journal = self.store.journal
        number = self.choice.choice((1, 2, 3))
        new = [key_of(number, self.next[number] + step) for step in range(self.choice.choice((1, 3, 40)))]
        self.next[number] += len(new)
        journal.rows += [Row(key, 0, 0, None, None, None, 0, payload_of(key)) for key in new]
        self.tell("+", new)
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
