"""kill -9 of a durable broker at any instant: nothing acknowledged is lost, nothing completed comes back."""

import asyncio
import os
import random
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.client import Client, ConnectionEndedError, Producer, Worker

from pairbus.amqp import Message, build_message
from pairbus.amqp.events import Delivery
from pairbus.amqp.message import encode_data_section
from pairbus.broker.entities.message import SEQUENCE_NUMBER
from pairbus.testing import EmbeddedBroker

ROUNDS = int(os.environ.get("PAIRBUS_KILLS", "200"))


@dataclass
class Account:
    """What the clients were told, over all lives of the broker."""

    made: int = 0
    accepted: set[int] = field(default_factory=set[int])
    completed: set[int] = field(default_factory=set[int])
    begun: set[int] = field(default_factory=set[int])
    """Messages whose completion was asked for, answered or not."""
    sequences: dict[int, int] = field(default_factory=dict[int, int])
    """Sequence number → the message that had it."""

    def next_payload(self) -> bytes:
        self.made += 1
        return build_message(encode_data_section(self.made.to_bytes(8) + b"x" * random.randrange(2000)))

    def received(self, delivery: Delivery) -> int:
        message = Message(delivery.payload)
        number = int.from_bytes(message.data_sections()[0][:8])
        sequence = message.message_annotations()[SEQUENCE_NUMBER]
        assert self.sequences.setdefault(sequence, number) == number, "a sequence number was given twice"
        assert number not in self.completed, "a completed message came back"
        self.begun.add(number)
        return number


async def load_until_killed(broker: EmbeddedBroker, account: Account, seconds: float) -> None:
    """Send and complete as fast as it goes, and kill the broker in the middle of it."""
    by_delivery: dict[int, int] = {}
    sent: list[int] = []

    def next_payload() -> bytes:
        payload = account.next_payload()
        sent.append(account.made)
        return payload

    def received(delivery: Delivery) -> None:
        by_delivery[delivery.delivery_id] = account.received(delivery)

    producing, working = await Client.of(broker), await Client.of(broker)
    producer = Producer(
        producing, "orders", next_payload, window=200, on_accepted=lambda index: account.accepted.add(sent[index])
    )
    worker = Worker(
        working, "orders", None, credit=100, on_received=received,
        on_completed=lambda delivery: account.completed.add(by_delivery[delivery]),
    )  # fmt: skip
    asyncio.get_running_loop().call_later(seconds, broker.kill)
    for running in (producer, worker):
        with suppress(ConnectionEndedError):
            await running.finished
    await asyncio.gather(producing.lost, working.lost)


async def drain(broker: EmbeddedBroker, account: Account, missing: set[int]) -> None:
    """Receive until everything is there that must be."""
    client = await Client.of(broker)
    done = asyncio.get_running_loop().create_future()

    def received(delivery: Delivery) -> None:
        missing.discard(account.received(delivery))
        if not missing and not done.done():
            done.set_result(None)

    worker = Worker(client, "orders", None, on_received=received)
    if missing:
        await asyncio.wait_for(done, 120)  # locks of the last life do not outlive it
    client.close()
    with suppress(ConnectionEndedError):
        await worker.finished


def test_no_kill_loses_or_resurrects_a_message(tmp_path: Path) -> None:
    account = Account()
    seed = int(os.environ.get("PAIRBUS_SEED", random.randrange(2**32)))
    chance = random.Random(seed)
    print(f"seed {seed}, {ROUNDS} kills")
    broker = EmbeddedBroker(queues=["orders"], data=tmp_path, process=True)
    for _ in range(ROUNDS):
        broker.start()
        asyncio.run(load_until_killed(broker, account, chance.uniform(0.02, 0.5)))
    with broker:
        missing = account.accepted - account.begun
        asyncio.run(drain(broker, account, missing))
    assert missing == set()
    print(f"{account.made} sent, {len(account.accepted)} accepted, {len(account.completed)} completed, 0 lost")
