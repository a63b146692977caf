"""What the broker's store costs: CPU of the writer per message, and how that compares, in one run.

A producer thread that never rests journals messages of 1 KB; it and the writer share one core and the interpreter's
lock, as the broker's event loop and the writer do. ``--rows`` sets how many rows the index has.
"""

import argparse
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue

from pairbus.broker.store.base import EntityRow, Journal, Row, Store, StoreError, key_of
from pairbus.broker.store.memory import MemoryStore
from pairbus.broker.store.opening import open_writer
from pairbus.broker.store.queries import MIGRATIONS, QUERIES, with_rows
from pairbus.broker.store.sqlite import SqliteStore
from pairbus.broker.store.writing import JournalWriter

BODY = os.urandom(1024)
MESSAGES = 60_000
IN_FLIGHT = 400
"""So many messages wait for a commit at most, as with a few dozen clients that wait for their answers."""


def row(number: int, entity: int = 1) -> Row:
    return Row(key_of(entity, number), 0, 1_700_000_000_000, None, None, None, 0, BODY)


class Feeder:
    """The event loop's part: journals one message at a time, flushes, and takes what the store calls back."""

    def __init__(self, make: Callable[[Callable[[Callable[[], None]], None]], Store]) -> None:
        self.inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.store = make(self.inbox.put)
        self.waiting = 0

    def _durable(self, error: StoreError | None) -> None:
        assert error is None, error
        self.waiting -= 1

    def feed(self, count: int, journal_one: Callable[[Journal, int], None]) -> float:
        """Return the seconds that it takes to make so many changes durable, one callback each."""
        began = time.perf_counter()
        for number in range(count):
            journal = self.store.journal
            journal_one(journal, number)
            journal.durable.append(self._durable)
            self.waiting += 1
            self.store.flush()
            while self.waiting >= IN_FLIGHT or not self.inbox.empty():
                self.inbox.get(timeout=30)()
        while self.waiting:
            self.inbox.get(timeout=30)()
        return time.perf_counter() - began


def writer_seconds() -> float:
    """Return the CPU time of the one writer thread that there is."""
    (ident,) = [thread.ident for thread in threading.enumerate() if thread.name.startswith("store ")]
    assert ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(ident))


def put(journal: Journal, number: int) -> None:
    journal.rows.append(row(number))


def remove(journal: Journal, number: int) -> None:
    journal.removed.append(key_of(1, number))


def tell(what: str, count: int, seconds: float, cpu: float | None = None) -> None:
    writer = "" if cpu is None else f"  writer {cpu / count * 1e6:5.2f} µs CPU each"
    print(f"{what:44} {seconds / count * 1e6:8.2f} µs each {count / seconds:12,.0f} /s{writer}")


def sends_and_removes(directory: Path) -> None:
    feeder = Feeder(lambda notify: SqliteStore(directory / "feed.db", notify))
    store = feeder.store
    store.journal.entities.append(EntityRow(1, "orders", "{}", 1))
    at = writer_seconds()
    durable = feeder.feed(MESSAGES, put)
    tell("SQLite: single sends, durable", MESSAGES, durable, writer_seconds() - at)
    keys = [key_of(1, number) for number in range(0, MESSAGES - 100, 97)]
    began = time.perf_counter()
    for key in keys:
        assert len(store.load(range(key, key + 100))) == 100
    tell("SQLite: load of 100 neighbours", len(keys), time.perf_counter() - began)
    scattered = list(range(key_of(1, 0), key_of(1, MESSAGES), MESSAGES // 100))[:100]
    began = time.perf_counter()
    for _ in keys:
        assert len(store.load(scattered)) == 100
    tell("SQLite: load of 100 scattered", len(keys), time.perf_counter() - began)
    at = writer_seconds()
    tell("SQLite: single removes, durable", MESSAGES, feeder.feed(MESSAGES, remove), writer_seconds() - at)
    store.close()
    memory = Feeder(MemoryStore)
    volatile = memory.feed(MESSAGES, put)
    tell("memory: single sends", MESSAGES, volatile)
    memory.store.close()
    print(f"SQLite against memory, sends: {volatile / durable:.2f}")


def statements(directory: Path) -> None:
    """Multi-row statements against ``executemany``, each beside a thread that never gives up the interpreter's lock."""
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            sum(range(100))

    def many(connection: sqlite3.Connection, rows: list[Row]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(with_rows("put_meta", 1), [(*found[:7], len(found[7]), 0, 0) for found in rows])
        connection.executemany(with_rows("put_payload", 1), [(found[0], found[7]) for found in rows])
        connection.execute(QUERIES["raise_sequence"], (len(rows), 1))
        connection.execute("COMMIT")

    def multi(connection: sqlite3.Connection, rows: list[Row]) -> None:
        journal = Journal()
        journal.rows += rows
        JournalWriter(connection).commit(journal)

    rows = [row(number) for number in range(10_000)]
    cpu: dict[str, float] = {}
    wall: dict[str, float] = {}
    for busy in (False, True):
        rival = threading.Thread(target=spin)
        if busy:
            rival.start()
        for name, write in (("executemany", many), ("multi-row", multi)):
            with closing(open_writer(directory / f"{name} {busy}.db", MIGRATIONS)) as connection:
                at, began = time.thread_time(), time.perf_counter()
                for start in range(0, len(rows), 200):
                    write(connection, rows[start : start + 200])
                cpu[name], wall[name] = time.thread_time() - at, time.perf_counter() - began
        beside = "beside a busy thread" if busy else "alone"
        print(
            f"multi-row against executemany, {beside}: {cpu['executemany'] / cpu['multi-row']:.2f} times in CPU, "
            f"{wall['executemany'] / wall['multi-row']:.2f} times in time"
        )
        stop.set()
        if busy:
            rival.join()
        stop.clear()


def index(directory: Path, count: int) -> None:
    feeder = Feeder(lambda notify: SqliteStore(directory / "index.db", notify))
    store = feeder.store
    store.journal.entities.append(EntityRow(1, "orders", "{}", 1))
    for start in range(0, count, 5_000):
        store.journal.rows += [row(number) for number in range(start, min(count, start + 5_000))]
        store.flush()
        feeder.inbox.get(timeout=60)()
    store.close()
    began = time.perf_counter()
    store = SqliteStore(directory / "index.db", feeder.inbox.put)
    entities = store.entities()
    opened = time.perf_counter() - began
    began = time.perf_counter()
    assert sum(1 for _ in store.index(entities[0].id)) == count
    tell(f"SQLite: index of {count:,} rows", count, time.perf_counter() - began)
    print(f"SQLite: opening a file of {count:,} rows       {opened * 1000:8.1f} ms")
    store.close()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rows", type=int, default=200_000)
    rows: int = arguments.parse_args().rows
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as name:
        sends_and_removes(Path(name))
        statements(Path(name))
        index(Path(name), rows)


if __name__ == "__main__":
    main()
