"""Queues with slashes in their paths, such as backlog queues have (B1)."""

import asyncio

from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from tests.contract.conftest import Run
from tests.contract.lab import Lab, bodies, one, peek, receive

from pairbus.testing import QueueSettings

BACKLOG = "contoso/x-servicebus-transfer/0"


def test_a_backlog_queue_is_a_queue_like_any_other(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        (sender, receiver), dead = await asyncio.gather(
            lab.both(BACKLOG), lab.receiver(BACKLOG, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        )
        await sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
        await sender.schedule_messages(ServiceBusMessage("c"), lab.clock.utc(3600))
        first, second = await receive(receiver, 2)
        await receiver.renew_message_lock(first)
        await receiver.dead_letter_message(first)
        await receiver.complete_message(second)
        assert bodies(await peek(receiver)) == ["c"]
        buried = await one(dead)
        assert (str(buried), buried.dead_letter_source) == ("a", BACKLOG)

    run(scenario, **{BACKLOG: QueueSettings()})


def test_many_messages_pass_once_each_and_in_order(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both(prefetch_count=300)
        for start in range(0, 2000, 500):
            await sender.send_messages([ServiceBusMessage(str(start + i)) for i in range(500)])
        got: list[str] = []
        while len(got) < 2000:
            messages = await receiver.receive_messages(min(200, 2000 - len(got)), max_wait_time=5)
            assert messages, f"{len(got)} of 2000 messages came"
            got += bodies(messages)
            for message in messages:
                await receiver.complete_message(message)
        assert got == [str(i) for i in range(2000)]
        assert await peek(receiver) == []

    run(scenario)
