"""What the broker refuses, and the exceptions that the SDK makes of it."""

import asyncio
import resource
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)
from tests.contract.conftest import Run
from tests.contract.lab import Lab, bodies, one, peek, receive, send

from pairbus.testing import EntityStatus, QueueSettings


def test_an_entity_that_is_not_there(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        with pytest.raises(MessagingEntityNotFoundError):
            await lab.sender("nowhere")
        with pytest.raises(MessagingEntityNotFoundError):
            await lab.receiver("nowhere")
        with pytest.raises(MessagingEntityNotFoundError):
            await lab.receiver("nowhere", sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        with pytest.raises(ServiceBusError):
            await lab.sender("orders/$DeadLetterQueue")

    run(scenario)


def test_names_are_compared_case_insensitively(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await asyncio.gather(lab.sender("Orders"), lab.receiver("ORDERS"))
        await send(sender, "a")
        assert bodies(await receive(receiver)) == ["a"]

    run(scenario)


@contextmanager
def no_room_in_files_beyond(size: int) -> Generator[None]:
    """Have the system refuse what would make a file of this process larger."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_fails_is_an_error_of_the_server_and_no_quota(
    run_durable: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        await send(sender, "before")
        with no_room_in_files_beyond((tmp_path / "localhost.db-wal").stat().st_size):
            with pytest.raises(ServiceBusError, match="could not store this for 'orders'") as caught:
                await sender.send_messages(ServiceBusMessage(b"x" * 200_000))
            assert not isinstance(caught.value, ServiceBusQuotaExceededError)
            assert str(tmp_path) not in str(caught.value)
        await send(sender, "after")
        assert bodies(await receive(receiver, 2)) == ["before", "after"]
        assert f"{tmp_path / 'localhost.db'}: SQLITE_IOERR" in caplog.text

    run_durable(scenario)


def test_a_full_queue_takes_no_more_until_there_is_room(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        chunk = b"x" * 250_000
        for _ in range(4):
            await sender.send_messages(ServiceBusMessage(chunk))
        with pytest.raises(ServiceBusQuotaExceededError):
            await sender.send_messages(ServiceBusMessage(chunk))
        with pytest.raises(ServiceBusQuotaExceededError):
            await sender.schedule_messages(ServiceBusMessage(chunk), lab.clock.utc(60))
        await receiver.complete_message(await one(receiver))
        await sender.send_messages(ServiceBusMessage(chunk))
        assert len(await peek(receiver)) == 4

    run(scenario, orders=QueueSettings(max_size_in_megabytes=1))


@pytest.mark.parametrize(
    ("status", "sends", "receives"),
    [
        (EntityStatus.DISABLED, False, False),
        (EntityStatus.SEND_DISABLED, False, True),
        (EntityStatus.RECEIVE_DISABLED, True, False),
    ],
)
def test_a_disabled_queue_refuses_what_it_is_not_for(
    run: Run, status: EntityStatus, *, sends: bool, receives: bool
) -> None:
    async def scenario(lab: Lab) -> None:
        if sends:
            await send(await lab.sender(), "a")
        else:
            with pytest.raises(MessagingEntityDisabledError):
                await send(await lab.sender(), "a")
        if receives:
            assert await peek(await lab.receiver()) == []
        else:
            with pytest.raises(MessagingEntityDisabledError):
                await lab.receiver()

    run(scenario, orders=QueueSettings(status=status))


def test_ids_that_are_too_long_are_refused(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender = await lab.sender("sessions")
        message = ServiceBusMessage("a", session_id="s" * 128)
        assert message.raw_amqp_message.properties is not None
        message.raw_amqp_message.properties.group_id = b"s" * 129
        with pytest.raises(ServiceBusError, match="session id has 129 characters"):
            await sender.send_messages(message)
        await send(sender, "a", session_id="s" * 128)

    run(scenario, sessions=QueueSettings(requires_session=True))


def test_a_broker_that_is_not_there(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender = await lab.sender()
        await asyncio.to_thread(lab.broker.stop)
        with pytest.raises(ServiceBusConnectionError):
            await send(sender, "a")
        with pytest.raises(ServiceBusConnectionError):
            await lab.sender()

    run(scenario)
