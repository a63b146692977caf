"""Looking at messages without receiving them."""

from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from tests.contract.conftest import Run
from tests.contract.lab import Lab, bodies, one, peek, receive, send


def test_peeking_changes_nothing_and_goes_on_where_it_was(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        assert await receiver.peek_messages(5) == []
        await sender.send_messages([ServiceBusMessage(str(i)) for i in range(10)])
        first = await receiver.peek_messages(4)
        assert bodies(first) == ["0", "1", "2", "3"]
        assert bodies(await receiver.peek_messages(4)) == ["4", "5", "6", "7"]
        assert bodies(await receiver.peek_messages(4)) == ["8", "9"]
        assert await receiver.peek_messages(4) == []
        middle = first[2].sequence_number or 0
        assert bodies(await receiver.peek_messages(2, sequence_number=middle)) == ["2", "3"]
        got = await receive(receiver, 10)
        assert [message.delivery_count for message in got] == [0] * 10

    run(scenario)


def test_a_browser_sees_messages_in_every_state(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        await send(sender, "locked", "deferred", "dead", "completed", "active")
        locked, deferred, dead, completed = await receive(receiver, 4)
        await receiver.defer_message(deferred)
        await receiver.dead_letter_message(dead)
        await receiver.complete_message(completed)
        await sender.schedule_messages(ServiceBusMessage("scheduled"), lab.clock.utc(60))
        seen = await peek(receiver)
        assert [(str(each), each.state.name) for each in seen] == [
            ("locked", "ACTIVE"),
            ("deferred", "DEFERRED"),
            ("active", "ACTIVE"),
            ("scheduled", "SCHEDULED"),
        ]
        assert seen[0].sequence_number == locked.sequence_number
        assert seen[0].locked_until_utc is None
        below = await lab.receiver(sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        assert bodies(await peek(below)) == ["dead"]
        assert str(await one(below)) == "dead"

    run(scenario)
