"""A broker whose files have lost messages that it acknowledged says so, and starts only if it is told to go on."""

from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from pairbus.broker.store.commits import StoreLossError
from pairbus.errors import PairbusError
from pairbus.testing import EmbeddedBroker

COUNT = 8


def lose_the_last_frames(data: Path) -> None:
    """Flip a bit of the last commit in the log that a killed broker has left: SQLite takes that for its end."""
    log = data / "localhost.db-wal"
    content = bytearray(log.read_bytes())
    content[-1000] ^= 0x10
    log.write_bytes(content)


def killed_with_a_damaged_log(data: Path) -> None:
    broker = EmbeddedBroker(queues=["orders"], data=data, process=True).start()
    with (
        ServiceBusClient.from_connection_string(broker.connection_string) as client,
        client.get_queue_sender("orders") as sender,
    ):
        for number in range(COUNT):
            sender.send_messages(ServiceBusMessage(str(number)))
        broker.kill()
    lose_the_last_frames(data)


def received(broker: EmbeddedBroker) -> list[str]:
    with (
        ServiceBusClient.from_connection_string(broker.connection_string) as client,
        client.get_queue_receiver("orders", max_wait_time=5) as receiver,
    ):
        return [str(message) for message in receiver.peek_messages(COUNT)]


def test_a_loss_is_refused_in_this_process(tmp_path: Path) -> None:
    killed_with_a_damaged_log(tmp_path)
    with pytest.raises(StoreLossError, match=r"1 of 9 acknowledged commits cannot be read.*--accept-loss"):
        EmbeddedBroker(data=tmp_path).start()
    with EmbeddedBroker(data=tmp_path, accept_loss=True) as broker:
        there = received(broker)
    assert there == [str(number) for number in range(COUNT - 1)]
    with EmbeddedBroker(data=tmp_path) as broker:
        assert received(broker) == there


def test_the_command_refuses_a_loss_until_it_is_accepted(tmp_path: Path) -> None:
    killed_with_a_damaged_log(tmp_path)
    with pytest.raises(PairbusError, match=r"(?s)did not start: .*error: .*cannot be read.*--accept-loss"):
        EmbeddedBroker(data=tmp_path, process=True).start()
    with EmbeddedBroker(data=tmp_path, process=True, accept_loss=True) as broker:
        assert received(broker) == [str(number) for number in range(COUNT - 1)]
