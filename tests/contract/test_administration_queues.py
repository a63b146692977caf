"""Queues as the SDK's administration client makes, shows, lists, changes and deletes them."""

# The SDK's models are not typed throughout.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import asyncio
from datetime import timedelta
from typing import Any, cast

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.management import QueueProperties
from tests.contract.conftest import Manage, Run
from tests.contract.lab import Lab, eventually, one, receive, send

from pairbus.aio import NamespaceManager
from pairbus.core.naming import backlog_path
from pairbus.testing import QueueSettings

LONGEST = timedelta(days=10675199, hours=2, minutes=48, seconds=5, microseconds=477581)
"""What the SDK makes of the longest duration, which means: no limit."""


def test_a_queue_has_the_clouds_defaults(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        manager = lab.manager()
        made = await manager.create_queue("Invoices")
        assert dict(made.items()) == {
            "name": "Invoices",
            "authorization_rules": None,
            "auto_delete_on_idle": LONGEST,
            "dead_lettering_on_message_expiration": False,
            "default_message_time_to_live": LONGEST,
            "duplicate_detection_history_time_window": timedelta(minutes=10),
            "availability_status": "Available",
            "enable_batched_operations": True,
            "enable_express": False,
            "enable_partitioning": False,
            "lock_duration": timedelta(minutes=1),
            "max_delivery_count": 10,
            "max_size_in_megabytes": 1024,
            "requires_duplicate_detection": False,
            "requires_session": False,
            "status": "Active",
            "forward_to": None,
            "user_metadata": None,
            "forward_dead_lettered_messages_to": None,
            "max_message_size_in_kilobytes": 256,
        }
        assert dict((await manager.get_queue("Invoices")).items()) == dict(made.items())

    run(scenario)


def test_a_queue_is_made_with_every_setting_and_keeps_it(run_durable: Run) -> None:
    async def scenario(lab: Lab) -> None:
        manager = lab.manager()
        settings: dict[str, Any] = {
            "auto_delete_on_idle": timedelta(minutes=10, seconds=1),
            "dead_lettering_on_message_expiration": True,
            "default_message_time_to_live": timedelta(minutes=11, milliseconds=500),
            "duplicate_detection_history_time_window": timedelta(minutes=12),
            "enable_batched_operations": False,
            "enable_partitioning": True,
            "lock_duration": timedelta(seconds=13),
            "max_delivery_count": 14,
            "max_size_in_megabytes": 3072,
            "requires_duplicate_detection": True,
            "status": "ReceiveDisabled",
            "user_metadata": 'a <b> & "c"\n\u00fc',
        }
        await manager.create_queue("full", forward_to="orders", forward_dead_lettered_messages_to="Orders", **settings)
        await lab.restart()
        manager = lab.manager()
        shown = await manager.get_queue("full")
        assert {name: shown[name] for name in settings} == settings
        host = lab.broker.connection_string.partition("//")[2].partition(";")[0].rstrip("/")
        assert (shown.forward_to, shown.forward_dead_lettered_messages_to) == (
            f"sb://{host}/orders",
            f"sb://{host}/Orders",
        )
        await manager.create_queue("sessions", requires_session=True, lock_duration="PT30S", enable_express=True)
        shown = await manager.get_queue("SESSIONS")
        assert (shown.requires_session, shown.lock_duration, shown.enable_express) == (
            True,
            timedelta(seconds=30),
            True,
        )

    run_durable(scenario)


def test_backlog_queues_are_made_as_the_pairing_wants_them(run: Run) -> None:
    """B1, B2: paths with slashes, and settings at their limits."""

    async def scenario(lab: Lab) -> None:
        manager = lab.manager()
        settings: dict[str, Any] = {
            "max_size_in_megabytes": 5120,
            "max_delivery_count": 2147483647,
            "default_message_time_to_live": LONGEST,
            "auto_delete_on_idle": LONGEST,
            "lock_duration": timedelta(minutes=1),
            "dead_lettering_on_message_expiration": True,
            "enable_batched_operations": True,
        }
        path = backlog_path("contoso.servicebus.windows.net", 0)
        made = await manager.create_queue(path, **settings)
        assert {name: made[name] for name in settings} == settings
        with pytest.raises(ResourceExistsError):  # B3: another client was faster, and that is success
            await manager.create_queue(path.upper(), **settings)
        shown = await manager.get_queue(path)
        assert {name: shown[name] for name in settings} == settings
        assert [queue.name async for queue in manager.list_queues()] == [path, "orders"]
        sender = await lab.sender(path)
        await send(sender, "parked")
        assert (await manager.get_queue_runtime_properties(path)).active_message_count == 1
        await manager.delete_queue(path)
        assert [queue.name async for queue in manager.list_queues()] == ["orders"]

    run(scenario)


def test_counts_sizes_and_times_are_true(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        manager, (sender, receiver) = lab.manager(), await lab.both()
        await send(sender, "locked", "dead", "waits", "deferred")
        await sender.schedule_messages(ServiceBusMessage("later"), lab.clock.utc(3600))
        _locked, dead, waits, deferred = await receive(receiver, 4)
        await receiver.dead_letter_message(dead)
        await receiver.defer_message(deferred)
        await receiver.abandon_message(waits)
        now = await manager.get_queue_runtime_properties("orders")
        assert now.name == "orders"
        assert now.active_message_count == 3
        assert now.dead_letter_message_count == 1
        assert now.scheduled_message_count == 1
        assert now.transfer_message_count == now.transfer_dead_letter_message_count == 0
        assert now.total_message_count == 5
        assert cast("int", now.size_in_bytes) > 100
        used = cast("Any", now.accessed_at_utc)
        assert abs((used - lab.clock.utc()).total_seconds()) < 60
        created, updated = cast("Any", now.created_at_utc), cast("Any", now.updated_at_utc)
        assert created <= updated <= used
        assert [each.total_message_count async for each in manager.list_queues_runtime_properties()] == [5]
        await lab.pass_time(3601)
        await eventually(
            lambda: manager.get_queue_runtime_properties("orders"),
            lambda now: (now.active_message_count, now.scheduled_message_count) == (4, 0),
        )

    run(scenario)


def test_what_is_to_be_forwarded_and_cannot_be_is_counted_as_such(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        manager, sender = lab.manager(), await lab.sender("first")
        await send(sender, "x" * 200_000, "x" * 200_000, "x" * 200_000, "x" * 200_000, "x" * 200_000)  # 1 MB is full
        await send(sender, "a" * 200_000, "b")
        now = await eventually(
            lambda: manager.get_queue_runtime_properties("first"), lambda now: now.total_message_count == 2
        )
        assert (now.active_message_count, now.transfer_message_count) == (0, 2)
        assert now.transfer_dead_letter_message_count == 0

    run(scenario, first=QueueSettings(forward_to="full"), full=QueueSettings(max_size_in_megabytes=1))


def test_queues_are_listed_in_pages(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        manager = lab.manager()
        assert [queue.name async for queue in manager.list_queues()] == [f"q{number:03}" for number in range(205)]
        some = manager.list_queues(start_index=200, max_page_size=2)
        assert [queue.name async for queue in some] == ["q200", "q201", "q202", "q203", "q204"]
        assert [queue.name async for queue in manager.list_queues(start_index=999)] == []
        for wrong in ({"start_index": -1}, {"max_page_size": -1}):
            with pytest.raises(HttpResponseError, match="should be non-negative integer"):
                [queue async for queue in manager.list_queues(**wrong)]
        assert [queue.name async for queue in manager.list_queues(max_page_size=0)] == []

    run(scenario, **{f"q{number:03}": QueueSettings() for number in range(205)})


def test_a_queue_is_changed(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        manager = lab.manager()
        sender = await lab.sender()
        queue = await manager.get_queue("orders")
        queue.lock_duration = timedelta(seconds=15)
        queue.default_message_time_to_live = timedelta(hours=1)
        queue.user_metadata = "first"
        await manager.update_queue(queue, max_delivery_count=3, forward_to="second")
        changed = await manager.get_queue("orders")
        assert (changed.lock_duration, changed.max_delivery_count, changed.user_metadata) == (
            timedelta(seconds=15),
            3,
            "first",
        )
        assert changed.default_message_time_to_live == timedelta(hours=1)
        await send(sender, "a")
        assert str(await one(await lab.receiver("second"))) == "a"
        times = await manager.get_queue_runtime_properties("orders")
        assert cast("Any", times.updated_at_utc) >= cast("Any", times.created_at_utc)
        await manager.update_queue(changed, forward_to=None, user_metadata=None, status="Disabled")
        last = await manager.get_queue("orders")
        assert (last.forward_to, last.user_metadata, last.status) == (None, None, "Disabled")
        await manager.update_queue(dict(last.items()), status="Active")
        assert (await manager.get_queue("orders")).status == "Active"

    run(scenario, orders=QueueSettings(), second=QueueSettings())


def test_what_a_queue_has_beyond_the_clouds_limits_it_keeps(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        manager = lab.manager()
        queue = await manager.get_queue("orders")
        assert (queue.max_size_in_megabytes, queue.max_message_size_in_kilobytes) == (1, 1024)
        await manager.update_queue(queue, max_delivery_count=7)
        assert (await manager.get_queue("orders")).max_size_in_megabytes == 1

    run(scenario, orders=QueueSettings(max_size_in_megabytes=1, max_message_size_in_kilobytes=1024))


def test_what_is_not_there_and_what_is_there_already(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        manager = lab.manager()
        for asked in ("nothing", "orders/$DeadLetterQueue", "orders/nothing"):
            with pytest.raises(ResourceNotFoundError, match="does not exist"):
                await manager.get_queue(asked)
            with pytest.raises(ResourceNotFoundError):
                await manager.get_queue_runtime_properties(asked)
            with pytest.raises(ResourceNotFoundError, match="No service is hosted at the specified address"):
                await manager.delete_queue(asked)
        queue = await manager.get_queue("orders")
        queue.name = "nothing"
        with pytest.raises(ResourceNotFoundError, match="SubCode=40400"):
            await manager.update_queue(queue)
        with pytest.raises(ResourceExistsError, match=r"SubCode=40900\. Conflict"):
            await manager.create_queue("ORDERS")
        outcomes = await asyncio.gather(*(manager.create_queue("race") for _ in range(2)), return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {QueueProperties, ResourceExistsError}

    run(scenario)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"lock_duration": timedelta(days=25)}, "The supplied lock time exceeds the allowed maximum of '5' minutes"),
        ({"lock_duration": timedelta(seconds=4)}, "less than the allowed minimum of '5' seconds"),
        ({"lock_duration": LONGEST}, "Parameter name: LockDuration"),
        ({"max_size_in_megabytes": 256}, "must be one of the following values: 1024;2048;3072;4096;5120"),
        ({"max_message_size_in_kilobytes": 1024}, "'MaxMessageSizeInKilobytes' cannot be set"),
        ({"max_delivery_count": 0}, "'MaxDeliveryCount' is not valid: 1 to 2147483647"),
        ({"auto_delete_on_idle": timedelta(minutes=4)}, "AutoDeleteOnIdle"),
        ({"default_message_time_to_live": timedelta(0)}, "DefaultMessageTimeToLive"),
        ({"duplicate_detection_history_time_window": timedelta(days=8)}, "DuplicateDetectionHistoryTimeWindow"),
        ({"user_metadata": "x" * 1025}, "'UserMetadata' exceeds the '1024' character limit"),
        ({"status": "Renaming"}, "'Renaming' of the property 'Status'"),
        ({"forward_to": "nowhere"}, "SubCode=40400. The auto forwarding destination entity does not exist: ForwardTo"),
        ({"forward_dead_lettered_messages_to": "nowhere"}, "ForwardDeadLetteredMessagesTo 'nowhere'"),
        ({"forward_to": "orders", "requires_session": True}, "requires sessions cannot forward"),
        ({"enable_express": True, "requires_duplicate_detection": True}, "cannot be enabled together"),
    ],
    ids=str,
)
def test_settings_that_no_queue_can_have(settings: dict[str, Any], why: str, manage: Manage) -> None:
    async def scenario(manager: NamespaceManager) -> None:
        with pytest.raises(HttpResponseError) as refused:
            await manager.create_queue("new", **settings)
        assert refused.value.status_code == 400
        assert why in str(refused.value.message)
        assert "TrackingId" in str(refused.value.message)
        with pytest.raises(ResourceNotFoundError):
            await manager.get_queue("new")

    manage(scenario)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"requires_session": True},
            "The value for the RequiresSession property of an existing Queue cannot be changed",
        ),
        ({"requires_duplicate_detection": True}, "requires duplicate detection property of an existing Queue cannot"),
        ({"enable_partitioning": True}, "Partitioning cannot be changed for Queue"),
        ({"lock_duration": timedelta(minutes=6)}, "exceeds the allowed maximum"),
        ({"max_size_in_megabytes": 1}, "must be one of the following values"),
        ({"forward_to": "nowhere"}, "does not exist"),
    ],
    ids=str,
)
def test_changes_that_no_queue_can_make(changes: dict[str, Any], why: str, manage: Manage) -> None:
    async def scenario(manager: NamespaceManager) -> None:
        queue = await manager.get_queue("orders")
        with pytest.raises(HttpResponseError) as refused:
            await manager.update_queue(queue, **changes)
        assert refused.value.status_code == 400
        assert why in str(refused.value.message)
        assert dict((await manager.get_queue("orders")).items()) == dict(queue.items())

    manage(scenario)


@pytest.mark.parametrize("name", ["a b", "a#b", "a+b", "\u00fcber", "a//b", "$orders", "a/$DeadLetterQueue", "x" * 261])
def test_names_that_no_queue_can_have(name: str, manage: Manage) -> None:
    async def scenario(manager: NamespaceManager) -> None:
        with pytest.raises(HttpResponseError, match=r"not allowed by Service Bus|exceeds the '260'") as refused:
            await manager.create_queue(name)
        assert refused.value.status_code == 400

    manage(scenario)


@pytest.mark.parametrize("name", ["txt/.-_123", "A", "0", "x" * 260, "a/b/c/d"])
def test_names_that_a_queue_can_have(name: str, manage: Manage) -> None:
    async def scenario(manager: NamespaceManager) -> None:
        assert (await manager.create_queue(name)).name == name
        assert name in [queue.name async for queue in manager.list_queues()]
        await manager.delete_queue(name.swapcase())
        assert name not in [queue.name async for queue in manager.list_queues()]

    manage(scenario)


def test_those_who_use_a_queue_that_is_deleted_are_told(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        manager, (sender, _receiver) = lab.manager(), await lab.both()
        await manager.delete_queue("orders")

        async def fails() -> str:
            try:
                await send(sender, "a")
            except Exception as error:  # noqa: BLE001 (which it is, is what is looked at)
                return type(error).__name__
            return ""

        # The SDK may first say only that its link has ended.
        await eventually(fails, lambda name: name == "MessagingEntityNotFoundError")
        await manager.create_queue("orders")
        assert (await manager.get_queue_runtime_properties("orders")).total_message_count == 0

    run(scenario)
