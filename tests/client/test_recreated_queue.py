"""Y1: a backlog queue that is deleted and created again gives new messages the numbers of old ones, and loses none."""

import asyncio
from random import Random

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusReceiver
from tests.client.syphoning import IGNORED, Pair, count_of

from pairbus.core.backoff import Backoff
from pairbus.core.moving import Limits
from pairbus.core.options import TransportName
from pairbus.core.routing import Destinations
from pairbus.syphon.mover import Mover
from pairbus.syphon.transports import TRANSPORTS
from pairbus.testing import QueueSettings

pytestmark = [pytest.mark.filterwarnings(each) for each in IGNORED]

MESSAGES = 5


def messages(prefix: str, session: str | None) -> list[ServiceBusMessage]:
    return [
        ServiceBusMessage(f"{prefix}{index}", message_id=f"{prefix}{index}", session_id=session)
        for index in range(MESSAGES)
    ]


@pytest.fixture(params=TRANSPORTS)
def carrier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> TransportName:
    monkeypatch.setattr(Pair, "carrier", request.param)
    return request.param


@pytest.mark.parametrize("session", [None, "s"], ids=["no session", "session"])
@pytest.mark.usefixtures("carrier")
def test_y1_messages_of_a_recreated_backlog_queue_are_sent_and_not_taken_for_old_ones(session: str | None) -> None:
    """The queue is deleted after its messages were sent and before they are completed: these are remembered."""

    async def play() -> None:
        async with Pair() as pair:
            queue = pair.backlogs[0]
            completing: list[list[int]] = []

            async def recreate() -> None:
                completing.append([each.sequence_number for each in mover.moving.completing])
                if len(completing) == 1:
                    await asyncio.to_thread(pair.secondary.delete_queue, queue)
                    await asyncio.to_thread(pair.secondary.create_queue, queue, QueueSettings())

            mover = Mover(
                queue,
                pair.transport(pair.secondary),
                pair.transport(pair.primary),
                destinations=Destinations(Backoff(0.1, 0.2), Random(1)),
                account=recreate,
            )
            await pair.park(messages("old", session))
            assert await mover.move(Limits(quota=MESSAGES), asyncio.Event()) == MESSAGES
            assert mover.moving.reconciliation().of("orders").duplicates_suspected == MESSAGES, (
                "none could be completed"
            )

            await pair.park(messages("new", session))
            await move_until_empty(mover, await pair.receiver(queue))
            assert completing == [[1, 2, 3, 4, 5]] * 2, "the same numbers"
            arrived = await (await pair.receiver("orders")).peek_messages(100, sequence_number=1)
            assert [each.message_id for each in arrived] == [
                f"{prefix}{index}" for prefix in ("old", "new") for index in range(MESSAGES)
            ]
            assert mover.moving.reconciliation().of("orders").delivered == 2 * MESSAGES

    asyncio.run(play())


async def move_until_empty(mover: Mover, backlog: ServiceBusReceiver) -> None:
    """Move what the queue has; that links were lost with the old queue may be noticed only now."""
    while await count_of(backlog):
        await mover.move(Limits(wait=1, until_empty=True), asyncio.Event())
