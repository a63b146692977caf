"""P1 to P3, B1 to B5: what pairing does, refuses and leaves alone; unpaired, everything is the SDK's."""

import asyncio
from datetime import timedelta

import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError
from azure.servicebus import ServiceBusMessage, ServiceBusReceiver
from azure.servicebus import aio as sdk
from azure.servicebus.exceptions import ServiceBusError
from tests.client.conftest import Play
from tests.client.stage import Stage, texts
from tests.client.twins import Twin
from tests.support.threaded import Threaded

from pairbus.client.backlog_setup import MAX_DURATION
from pairbus.errors import FactoryClosedError, FactoryFaultedError, PairingError, ReservedPropertyError
from pairbus.testing import QueueSettings

UNPAIRED = {"pair": False}


def test_p1_p3_unpaired_it_is_the_sdk(play: Play) -> None:
    """P1: same names, results and errors. P3: receivers are the SDK's own."""

    async def scenario(stage: Stage) -> None:
        receiver = stage.factory.get_queue_receiver("orders", max_wait_time=5)
        bare = receiver.inner if isinstance(receiver, Threaded) else receiver
        assert isinstance(bare, sdk.ServiceBusReceiver | ServiceBusReceiver)
        async with stage.factory.get_queue_sender("orders", client_identifier="me") as sender:
            assert sender.client_identifier == "me"
            assert sender.entity_name == "orders"
            assert sender.fully_qualified_namespace == stage.factory.fully_qualified_namespace
            await asyncio.gather(*(sender.send_messages(ServiceBusMessage(f"{n}")) for n in range(5)))
            await sender.send_messages({"body": "mapping", "application_properties": {"x-ms-path": "free"}})
            got = [message async for message in _messages(receiver, 6)]
            assert sorted(texts(got)) == ["0", "1", "2", "3", "4", "mapping"]
            stage.fault("down")
            with pytest.raises(ServiceBusError):
                await sender.send_messages(ServiceBusMessage("lost"))
        assert stage.factory.availability.paired_with is None
        assert stage.factory.availability.export()["entities"] == []

    play(scenario, pairing=UNPAIRED)


async def _messages(receiver: sdk.ServiceBusReceiver, count: int):  # noqa: ANN202 (a generator)
    async with receiver:
        left = count
        while left:
            for message in await receiver.receive_messages(left, max_wait_time=5):
                await receiver.complete_message(message)
                left -= 1
                yield message


def test_b1_b2_b3_pairing_makes_what_is_missing_and_leaves_what_is_there(play: Play) -> None:
    """B4: extra queues stay; the names and settings are those of the specification."""

    async def scenario(stage: Stage) -> None:
        own = QueueSettings(lock_duration=30_000)
        stage.secondary.create_queue(f"{stage.backlog}/1", own)
        stage.secondary.create_queue(f"{stage.backlog}/7", own)
        await stage.pair(backlog_queue_count=3)
        queues = stage.factory.availability.backlog_queues
        assert [queue.path for queue in queues] == [f"{stage.backlog}/{index}" for index in range(3)]
        look = Twin("aio").manager(stage.secondary.connection_string)
        async with look:
            made = await look.get_queue(f"{stage.backlog}/0")
            kept = await look.get_queue(f"{stage.backlog}/1")
            await look.get_queue(f"{stage.backlog}/7")
        assert made.max_size_in_megabytes == 5120
        assert made.max_delivery_count == 2147483647
        assert made.default_message_time_to_live == MAX_DURATION
        assert made.auto_delete_on_idle == MAX_DURATION
        assert made.lock_duration == timedelta(minutes=1)
        assert made.dead_lettering_on_message_expiration
        assert made.enable_batched_operations
        assert kept.lock_duration == timedelta(seconds=30)
        assert stage.factory.availability.paired_with == stage.other.fully_qualified_namespace

    play(scenario, pairing=UNPAIRED)


def test_p2_what_cannot_be_paired_is_refused_and_leaves_the_factory_usable(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        twin = stage.twin
        itself = twin.manager(stage.address)
        with pytest.raises(PairingError, match="with itself"):
            await stage.factory.pair_namespace(twin.options(itself, stage.factory))
        assert not stage.factory.is_paired
        async with stage.factory.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("unpaired"))
            await stage.pair()
            with pytest.raises(PairingError, match="paired already"):
                await stage.pair()
            third = twin.factory(stage.secondary.connection_string)
            with pytest.raises(PairingError, match="itself paired"):
                await third.pair_namespace(twin.options(itself, stage.factory))
            await third.close()
            stage.fault("down")
            await sender.send_messages(ServiceBusMessage("paired"))  # a sender from before the pairing
        assert texts(await stage.parked(1)) == ["paired"]
        await twin.close_manager(itself)

    play(scenario, pairing=UNPAIRED)


class Unwilling:
    """An administration client that cannot do what it should."""

    def __init__(self, namespace: str, *errors: Exception | None) -> None:
        self.fully_qualified_namespace = namespace
        self._errors = list(errors)

    def get_queue(self, _name: str) -> None:
        error = self._errors.pop(0)
        if error is not None:
            raise error


class UnwillingAio(Unwilling):
    """The same, to be awaited."""

    async def get_queue(self, name: str) -> None:  # type: ignore[override]
        super().get_queue(name)


def forbidden() -> HttpResponseError:
    """Return what the SDK makes of status 403, for which it has no class."""
    error = HttpResponseError("no")
    error.status_code = 403
    return error


@pytest.mark.parametrize(
    ("errors", "refused"),
    [
        ((ClientAuthenticationError("no"), None), "denied"),
        ((forbidden(), None), "denied"),
        ((OSError("gone"), OSError("gone too")), "no backlog queue"),
        ((None, OSError("gone")), None),
    ],
)
def test_b5_a_queue_that_cannot_be_reached_is_left_out(
    play: Play, errors: tuple[Exception | None, ...], refused: str | None
) -> None:
    """B5: pairing fails only when none is left or access is denied."""

    async def scenario(stage: Stage) -> None:
        kind = Unwilling if stage.twin.is_sync else UnwillingAio
        stage.manager = kind(stage.other.fully_qualified_namespace, *errors)  # type: ignore[assignment]
        if refused is not None:
            with pytest.raises(PairingError, match=refused):
                await stage.pair()
            assert not stage.factory.is_paired
            return
        await stage.pair()
        first, second = stage.factory.availability.backlog_queues
        assert (first.in_play, second.in_play) == (True, False)
        assert second.problem == "OSError('gone')"

    async def restoring(stage: Stage) -> None:
        manager = stage.manager
        try:
            await scenario(stage)
        finally:
            stage.manager = manager

    play(restoring, pairing=UNPAIRED)


def test_e3_our_properties_are_refused_before_anything_is_sent(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.factory.get_queue_sender("orders") as sender:
            bad = ServiceBusMessage("bad", application_properties={"x-ms-path": "elsewhere"})
            with pytest.raises(ReservedPropertyError):
                await sender.send_messages([ServiceBusMessage("good"), bad])
            await sender.send_messages(ServiceBusMessage("good"))
        assert texts(await stage.take()) == ["good"]

    play(scenario)


def test_c1_c2_an_ended_factory_takes_no_more_operations(play: Play) -> None:
    """C2: a send that is held when the factory is closed ends, and does not say that it was sent."""

    async def scenario(stage: Stage) -> None:
        sender = stage.factory.get_queue_sender("orders")
        await sender.send_messages(ServiceBusMessage("one"))
        stage.fault("down")
        held = asyncio.ensure_future(sender.send_messages(ServiceBusMessage("two")))
        await stage.until(lambda: stage.factory.availability.entity("orders").state.value == "suspect")
        await stage.factory.close()
        with pytest.raises(FactoryClosedError):
            await held
        with pytest.raises(FactoryClosedError):
            await sender.send_messages(ServiceBusMessage("three"))
        with pytest.raises(FactoryClosedError):
            stage.factory.get_queue_receiver("orders")
        stage.other.fault("the disk is full")
        await stage.until(lambda: stage.other.availability.state == "faulted")
        with pytest.raises(FactoryFaultedError, match="the disk is full"):
            await stage.other.get_queue_sender("orders").send_messages(ServiceBusMessage("four"))

    play(scenario, pairing={"failover_interval": 60})


def test_c1_the_other_one_of_a_pair_is_faulted_after_five_seconds(play: Play) -> None:
    """C1, with the syphon in this process: the secondary is closed, the primary is not."""

    async def scenario(stage: Stage) -> None:
        await stage.other.close()
        await stage.until(lambda: stage.factory.availability.state == "faulted")
        with pytest.raises(FactoryFaultedError, match="has ended"):
            await stage.factory.get_queue_sender("orders").send_messages(ServiceBusMessage("one"))

    play(scenario, pairing={"enable_syphon": True})
