"""Messages that were damaged on the disk are dead-lettered with the reason, and never delivered as if whole."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.unit.broker.entities.conftest import START, message, names, properties_of
from tests.unit.broker.entities.test_recall import Broker, answered

from pairbus.broker.entities.settings import QueueSettings


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE payload SET body = CAST(replace(CAST(body AS TEXT), 'b', 'c') AS BLOB) WHERE key & 255 = 2",
        "DELETE FROM payload WHERE key & 255 = 2",
        "UPDATE meta SET state = 1 WHERE key & 255 = 2",
        "UPDATE meta SET session = 'another' WHERE key & 255 = 2",
        "UPDATE meta SET expires = 1 WHERE key & 255 = 2",
    ],
)
def test_a_damaged_message_is_dead_lettered(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker(tmp_path / "store.db", QueueSettings())
    broker.queue.send([message(name) for name in "abc"], START, answered)
    broker.commit()
    broker.store.close()
    with closing(sqlite3.connect(tmp_path / "store.db")) as plain, plain:
        plain.execute(damage)
    broker = Broker(tmp_path / "store.db", QueueSettings())
    broker.queue.dead_letter_damaged(START)
    assert names(broker.queue.take(9, START)) == ["a", "c"]
    broker.commit()
    (dead,) = broker.dead.take(9, START)
    assert properties_of(dead)["DeadLetterReason"] == "MessageDamaged"
    assert "q: message 2 is damaged" in caplog.text
    assert broker.queue.damaged_count == 1
    broker.commit()
    broker.store.close()
