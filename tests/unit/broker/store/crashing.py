"""Writes to a store until it is killed, and says on stdout what it began and what was called back as durable.

``+key`` a row is durable, ``-key`` its removal is, ``?key`` its removal has begun.
"""

import os
import random
import sys
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING

from pairbus.broker.store.base import EntityRow, Row, StoreError, key_of
from pairbus.broker.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Callable


def payload_of(key: int) -> bytes:
    return random.Random(key).randbytes(1 + key % 3000)


def main(path: str, seed: int) -> None:
    inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
    store = SqliteStore(path, inbox.put)
    choice = random.Random(seed)
    known = {entity.id: entity.next_sequence for entity in store.entities()}
    there: deque[int] = deque(row.key for number in known for row in store.index(number))

    def say(line: str) -> None:
        os.write(1, line.encode("ascii") + b"\n")

    def stored(keys: list[int], error: StoreError | None) -> None:
        assert error is None
        there.extend(keys)
        say(" ".join(f"+{key}" for key in keys))

    def removed(keys: list[int], error: StoreError | None) -> None:
        assert error is None
        say(" ".join(f"-{key}" for key in keys))

    for number in (1, 2, 3):
        if number not in known:
            known[number] = 1
            store.journal.entities.append(EntityRow(number, f"queue {number}", "{}", 1))
    while True:
        number = choice.choice((1, 2, 3))
        keys = [key_of(number, known[number] + step) for step in range(choice.choice((1, 3, 40)))]
        known[number] += len(keys)
        store.journal.rows += [Row(key, 0, 0, None, None, None, 0, payload_of(key)) for key in keys]
        store.journal.durable.append(lambda error, keys=keys: stored(keys, error))
        gone = [there.popleft() for _ in range(min(len(there), choice.choice((0, 1, 30))))]
        if gone:
            say(" ".join(f"?{key}" for key in gone))
            store.journal.removed += gone
            store.journal.durable.append(lambda error, gone=gone: removed(gone, error))
        store.flush()
        inbox.get()()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
