"""K1: what the broker counts is what the SDK did: in its ledger, and in its metrics over HTTP."""

import asyncio
import http.client
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from azure.core.exceptions import ResourceExistsError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import MessageLockLostError, MessageSizeExceededError
from prometheus_client import Metric
from prometheus_client.openmetrics import parser
from prometheus_client.parser import text_string_to_metric_families as prometheus_text
from tests.contract.lab import Lab, one, peek, receive, send
from tests.contract.sdk import Sdk
from tests.contract.test_pings import ping

import pairbus
from pairbus.core.ledger import Kind, MeteredBy, Outcome
from pairbus.instrument.ledger import read_ledger
from pairbus.testing import EmbeddedBroker, QueueSettings

open_metrics: Callable[[str], Iterable[Metric]] = getattr(parser, "text_string_to_metric_families")  # noqa: B009 (it is not typed)
QUEUES = {"orders": QueueSettings(), "chats": QueueSettings(requires_session=True)}
LOCK = 60


class MeteredLab(Lab):
    """A broker that keeps account."""

    def __init__(self, sdk: Sdk, ledger: Path, data: Path | None = None) -> None:
        super().__init__(sdk, QUEUES, None)
        self.broker = EmbeddedBroker(queues=QUEUES, clock=self.clock, ledger=ledger, data=data)


@pytest.fixture(params=["sync", "aio"])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> MeteredLab:
    data = tmp_path / "data" if request.param == "aio" else None
    return MeteredLab(Sdk(str(request.param)), tmp_path / "ledger", data)


def get(lab: Lab, path: str, method: str = "GET", **headers: str) -> tuple[int, str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", next(iter(lab.broker.endpoints.values())).port)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.getheader("content-type", ""), answer.read().decode()
    finally:
        connection.close()


async def script(lab: Lab) -> None:
    """Do something of each kind, and know how often."""
    sender, receiver = await lab.both()
    await send(sender, "a", "b", "c")  # 3 sends
    await sender.send_messages([ServiceBusMessage("d"), ServiceBusMessage("e")])  # 2 more, in a batch
    await sender.send_messages(ServiceBusMessage(b"f" * 100_000))  # 1 message, 2 operations
    await sender.send_messages(ping())
    await sender.send_messages([ping(), ServiceBusMessage("g")])  # 2 pings, 1 send
    with pytest.raises(MessageSizeExceededError):
        await sender.send_messages(ServiceBusMessage(b"x" * 300_000))
    scheduled = await sender.schedule_messages([ServiceBusMessage("h"), ServiceBusMessage("i")], lab.clock.utc(3600))
    await sender.cancel_scheduled_messages(scheduled[0])
    assert len(await peek(receiver)) == 8
    messages = await receive(receiver, 7)
    await receiver.renew_message_lock(messages[0])
    await receiver.complete_message(messages[0])
    await receiver.complete_message(messages[1])
    await receiver.defer_message(messages[2])
    await receiver.dead_letter_message(messages[3], reason="bad")
    await receiver.abandon_message(messages[4])
    assert str(await one(receiver)) == "e"  # it comes again: the 8th receive
    deferred = await receiver.receive_deferred_messages(messages[2].sequence_number or 0)  # the 9th
    await receiver.complete_message(deferred[0])  # by management
    await lab.pass_time(LOCK + 1)
    with pytest.raises(MessageLockLostError):
        await receiver.complete_message(messages[5])


EXPECTED = {
    (Kind.SEND, Outcome.DONE): (8, 7),
    (Kind.SEND, Outcome.FAILED): (1, 0),  # refused by its size, before it is read
    (Kind.PING, Outcome.DONE): (2, 0),  # G3: operations, and no messages
    (Kind.SCHEDULE, Outcome.DONE): (2, 2),
    (Kind.CANCEL, Outcome.DONE): (1, 0),
    (Kind.PEEK, Outcome.DONE): (9, 8),
    (Kind.RECEIVE, Outcome.DONE): (10, 9),
    (Kind.RENEW, Outcome.DONE): (1, 0),
    (Kind.COMPLETE, Outcome.DONE): (3, 3),
    (Kind.COMPLETE, Outcome.FAILED): (1, 1),
    (Kind.DEFER, Outcome.DONE): (1, 1),
    (Kind.DEAD_LETTER, Outcome.DONE): (1, 1),
    (Kind.ABANDON, Outcome.DONE): (1, 1),
}
"""Operations and messages."""


def test_the_ledger_has_what_the_sdk_did(lab: MeteredLab, tmp_path: Path) -> None:
    async def play() -> None:
        async with lab:
            await script(lab)
            text = (await asyncio.to_thread(get, lab, "/$metrics"))[2]
            exposed = {
                (sample.labels["kind"], sample.labels["outcome"]): sample.value
                for family in prometheus_text(text)
                for sample in family.samples
                if sample.name == "pairbus_operations_total" and sample.labels["entity"] == "orders"
            }
            assert exposed == {(kind.value, how.value): counts[0] for (kind, how), counts in EXPECTED.items()}

    asyncio.run(play())
    records = list(read_ledger(tmp_path / "ledger"))
    operations: Counter[tuple[Kind, Outcome]] = Counter()
    messages: Counter[tuple[Kind, Outcome]] = Counter()
    for record in records:
        assert (record.metered_by, record.namespace, record.entity) == (MeteredBy.BROKER, "localhost", "orders")
        operations[record.kind, record.outcome] += record.operations
        messages[record.kind, record.outcome] += record.messages
    assert {what: (count, messages[what]) for what, count in operations.items()} == EXPECTED
    sent = sum(record.bytes for record in records if record.kind is Kind.SEND)
    assert sent > 100_000
    assert all(record.client.startswith(("SBSender-", "SBReceiver-")) for record in records)


def administer(lab: Lab) -> None:
    with pairbus.NamespaceManager.from_connection_string(lab.broker.connection_string) as manager:
        manager.get_queue("orders")
        with pytest.raises(ResourceExistsError):
            manager.create_queue("orders")


def test_empty_receives_sessions_and_the_client_by_name(lab: MeteredLab, tmp_path: Path) -> None:
    async def play() -> None:
        async with lab:
            client = lab.client()
            receiver = client.get_queue_receiver("orders", client_identifier="shop")
            async with receiver:
                for _ in range(3):
                    assert await receiver.receive_messages(1, max_wait_time=0.2) == []
            speaker = client.get_queue_receiver("chats", session_id="s", client_identifier="chatter")
            async with speaker:
                await speaker.session.set_state("on")
                assert await speaker.session.get_state() == b"on"
                await speaker.session.renew_lock()
            assert [name async for name in client.list_queue_sessions("chats")] == ["s"]
            await asyncio.to_thread(administer, lab)

    asyncio.run(play())
    counted: Counter[tuple[str, str, str, str]] = Counter()
    for record in read_ledger(tmp_path / "ledger"):
        client = "lister" if record.kind is Kind.MANAGEMENT and record.entity == "chats" else record.client
        client = "administrator" if client.startswith("azsdk-python-servicebusmanagementclient") else client
        counted[client, record.entity, record.kind.value, record.outcome.value] += record.operations
    counted = Counter(
        {what: count for what, count in counted.items() if what[2] != "empty-receive" or what[0] == "shop"}
    )
    assert counted.pop(("lister", "chats", "management", "done")) >= 1  # a list is asked for until it is whole
    assert counted == {
        ("shop", "orders", "empty-receive", "done"): 3,
        ("chatter", "chats", "session-state", "done"): 2,
        ("chatter", "chats", "renew", "done"): 1,
        ("administrator", "orders", "management", "done"): 1,
        ("administrator", "orders", "management", "failed"): 1,
    }


def test_metrics_health_and_readiness_over_http(tmp_path: Path) -> None:
    lab = MeteredLab(Sdk("aio"), tmp_path / "ledger", tmp_path / "data")

    async def play() -> None:
        async with lab:
            sender, receiver = await lab.both()
            await send(sender, "a", "b", "c")
            await sender.schedule_messages(ServiceBusMessage("later"), lab.clock.utc(60))
            held = await receive(receiver, 2)
            await receiver.dead_letter_message(held[0])
            status, kind, text = await asyncio.to_thread(get, lab, "/$metrics")
            assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
            samples = {
                (sample.name, *sample.labels.values()): sample.value
                for family in prometheus_text(text)
                for sample in family.samples
            }
            assert samples["pairbus_entity_messages", "orders", "active"] == 2
            assert samples["pairbus_entity_messages", "orders", "scheduled"] == 1
            assert samples["pairbus_entity_messages", "orders", "deferred"] == 0
            assert samples["pairbus_entity_messages", "orders", "dead-letter"] == 1
            assert samples["pairbus_locks", "orders"] == 1
            assert samples["pairbus_stored_bytes", "orders"] > 0
            assert samples["pairbus_connections",] == 2
            assert samples["pairbus_links",] >= 2
            assert samples["pairbus_commit_seconds_count",] >= 5
            assert samples["pairbus_commit_seconds_count",] == samples["pairbus_commit_seconds_bucket", "+Inf"]
            assert samples["pairbus_failed_commits_total",] == 0
            accept = {"accept": "application/openmetrics-text; version=1.0.0"}
            status, kind, text = await asyncio.to_thread(get, lab, "/$metrics", **accept)
            assert kind.startswith("application/openmetrics-text")
            assert {"pairbus_operations", "pairbus_commit_seconds"} <= {each.name for each in open_metrics(text)}
            assert await asyncio.to_thread(get, lab, "/$health") == (200, "text/plain; charset=utf-8", "alive\n")
            assert await asyncio.to_thread(get, lab, "/$ready") == (200, "text/plain; charset=utf-8", "ready\n")
            assert (await asyncio.to_thread(get, lab, "/$health/x"))[0] == 404
            assert (await asyncio.to_thread(get, lab, "/$metrics", "POST"))[0] == 405

    asyncio.run(play())


def test_a_process_writes_its_ledger_too(tmp_path: Path) -> None:
    """``pairbus broker --ledger DIR``."""
    with (
        EmbeddedBroker(queues=["orders"], process=True, ledger=tmp_path) as broker,
        ServiceBusClient.from_connection_string(broker.connection_string) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage("a"))
    assert [(record.kind, record.operations) for record in read_ledger(tmp_path)] == [(Kind.SEND, 1)]
