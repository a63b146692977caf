"""K1, K2, Y2: a paired client, a syphon and two brokers in one short run, and what the tables say of it."""

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode
from pyspark.sql import SparkSession
from tests.spark.rows import PLAN, pick

from pairbus import SendAvailabilityPairedNamespaceOptions, aio
from pairbus.core.forecast import LONG_POLL, Scenario, forecast
from pairbus.core.ledger import MeteredBy
from pairbus.core.naming import namespace_label
from pairbus.instrument.hooks import Instrument
from pairbus.instrument.ledger import LedgerFile
from pairbus.spark.tables.ledger import malformed
from pairbus.spark.tables.ledger_tables import Settings, Tables
from pairbus.spark.tables.schemas import BRONZE, CLIENT_VS_BROKER, COST_HOURLY, MESSAGE_COST, OUTAGES, SILVER
from pairbus.testing import EmbeddedBroker

pytestmark = pytest.mark.usefixtures("small")

STRAIGHT, PARKED, QUEUES = 5, 7, 2


async def _run(ledger: Path, *, brokers: bool) -> Mapping[str, str]:
    """Send straight, and in an outage; receive all. Return what the clients call the brokers, who know their names.

    :param brokers: whether the brokers meter, too. In the cloud there is nothing but what clients write down.
    """
    metered = ledger if brokers else None
    with ExitStack() as stack:
        primary = stack.enter_context(EmbeddedBroker(namespaces=["contoso"], queues=["orders"], ledger=metered))
        secondary = stack.enter_context(EmbeddedBroker(namespaces=["fabrikam"], ledger=metered))
        sink = stack.enter_context(closing(LedgerFile(ledger)))
        async with (
            aio.NamespaceManager.from_connection_string(secondary.connection_string) as manager,
            aio.MessagingFactory.from_connection_string(secondary.connection_string, retry_total=0) as other,
            aio.MessagingFactory.from_connection_string(
                primary.connection_string, retry_total=0, instrument=Instrument([sink], client="shop")
            ) as factory,
        ):
            await factory.pair_namespace(_options(manager, other))
            async with factory.get_queue_sender("orders") as sender:
                for number in range(STRAIGHT):
                    await sender.send_messages(ServiceBusMessage(f"straight {number}"))
                # A send to a broker that is gone is in doubt, and costs as if it was done unless the broker metered.
                primary.fault("contoso", "down" if brokers else "full")
                await sender.send_messages([ServiceBusMessage(f"parked {number}") for number in range(PARKED)])
                primary.fault("contoso", "clear")
            async with aio.MessagingFactory.from_connection_string(  # a syphon that never meets the outage
                primary.connection_string, instrument=Instrument([sink], client="syphon")
            ) as home:
                await home.pair_namespace(_options(manager, other, enable_syphon=True))
                await _receive(factory, STRAIGHT + PARKED)
        names = {factory.fully_qualified_namespace: "contoso", other.fully_qualified_namespace: "fabrikam"}
        return {namespace_label(name): meant for name, meant in names.items()}


def _options(
    manager: aio.NamespaceManager, other: aio.MessagingFactory, *, enable_syphon: bool = False
) -> SendAvailabilityPairedNamespaceOptions:
    return SendAvailabilityPairedNamespaceOptions(
        manager, other, backlog_queue_count=QUEUES, failover_interval=0, ping_primary_interval=1, attempt_timeout=5,
        enable_syphon=enable_syphon,
    )  # fmt: skip


async def _receive(factory: aio.MessagingFactory, count: int) -> None:
    async with factory.get_queue_receiver("orders", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        while count:
            count -= len(await receiver.receive_messages(count, max_wait_time=20))


@pytest.mark.parametrize("brokers", [True, False], ids=["both meters", "clients only"])
def test_k1_k2_y2_a_real_run_adds_up(spark: SparkSession, tmp_path: Path, *, brokers: bool) -> None:
    """K2: straight costs two operations, by way of the backlog four. Y2: an idle syphon has one receive per queue."""
    ledger = tmp_path / "ledger"
    aliases = asyncio.run(_run(ledger, brokers=brokers))
    tables = Tables(spark, str(tmp_path / "tables"), Settings(PLAN, aliases))
    assert tables.update([str(ledger)]) >= (3 if brokers else 1)
    assert malformed(tables.read(BRONZE)).count() == 0
    sides = {row["metered_by"] for row in tables.read(SILVER).select("metered_by").distinct().collect()}
    assert sides == {MeteredBy.CLIENT.value, *([MeteredBy.BROKER.value] if brokers else [])}

    ways = {row["way"]: row for row in tables.read(MESSAGE_COST).collect()}
    assert (ways["direct"]["messages"], ways["direct"]["operations"]) == (STRAIGHT, 2 * STRAIGHT)
    assert (ways["backlog"]["messages"], ways["backlog"]["operations"]) == (PARKED, 4 * PARKED)
    for way, transfers in (("direct", 2 * STRAIGHT), ("backlog", 4 * PARKED)):
        assert 50 < ways[way]["bytes"] / transfers < 300  # one transfer of one message
    charged = tables.read(COST_HOURLY).where("stage IN ('park', 'syphon') AND charged > 0")
    assert pick(charged.groupBy("stage", "kind").sum("charged"), ["stage", "kind", "sum(charged)"]) == [
        ("park", "send", PARKED),
        ("syphon", "receive", PARKED),
        ("syphon", "send", PARKED),
    ]

    polls = tables.read(COST_HOURLY).where("stage = 'idle'").agg({"charged": "sum"}).collect()[0][0] or 0
    assert polls <= QUEUES  # one long poll each, which the end of the run has cut short
    month = forecast(Scenario(backlog_queues=10), PLAN)
    assert month.idle_receives == 10 * 30 * 24 * 3600 // LONG_POLL == 28_800

    (outage,) = tables.read(OUTAGES).collect()
    assert (outage["entity"], outage["parked"], outage["left"]) == ("orders", PARKED, 0)
    assert outage["began"] <= outage["engaged"] <= outage["ended"]
    assert outage["drained"] >= outage["engaged"]
    sends = tables.read(CLIENT_VS_BROKER).where("entity = 'orders' AND kind = 'send'").collect()
    known = [(row["client_operations"] - row["client_unknown"], row["broker_operations"]) for row in sends]
    assert known == ([(STRAIGHT + PARKED, STRAIGHT + PARKED)] if brokers else [])
