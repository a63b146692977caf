"""The play of the demo: a shop, an outage of its primary, and what becomes of its orders."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from azure.servicebus.aio import ServiceBusClient
from rich.console import Console

from pairbus.aio import MessagingFactory, NamespaceManager, SendAvailabilityPairedNamespaceOptions
from pairbus.cli.demo import jobs
from pairbus.cli.demo.order_counts import OrderCounts
from pairbus.cli.demo.screen import Scene, Screen
from pairbus.cli.demo.shop import Till, bare, clerk, paired
from pairbus.client.availability import Turn
from pairbus.core.health import State
from pairbus.core.ledger import Outcome, Record, Stage
from pairbus.core.naming import backlog_paths, namespace_label
from pairbus.instrument.hooks import Instrument
from pairbus.instrument.ledger import LedgerFile
from pairbus.testing import EmbeddedBroker, QueueSettings, SubscriptionConfig, TopicConfig, TopicSettings

ORDERS, EVENTS, UNPAIRED = "orders", "events", "orders-unpaired"
PLACES: Final = {ORDERS: (ORDERS,), EVENTS: ("events/billing", "events/shipping")}
CUSTOMERS: Final = ("ada", "grace", "edsger", "barbara")
PACE: Final = 10.0
"""Orders a second of each till."""
BACKLOG_QUEUES: Final = 4
FAILOVER_SECONDS: Final = 2.0
PING_SECONDS: Final = 1.0
BEFORE, OUTAGE, AFTER = 4.0, 15.0, 4.0
"""Seconds of each act."""
PATIENT: Final = 60.0
"""Seconds that the demo waits for what must happen."""


@dataclass(slots=True)
class Ending:
    """What the play has come to; :meth:`as_json` is what ``--json`` prints."""

    counts: OrderCounts
    unpaired: OrderCounts
    parked: int
    failover_seconds: float
    syphon: Mapping[str, Any]
    report: Mapping[str, Any]

    @property
    def delivered(self) -> int:
        """How many parked messages the syphon has carried home."""
        return int(self.syphon["delivered"])

    @property
    def good(self) -> bool:
        """Whether nothing was lost, nothing came twice, and no send has failed."""
        return not (self.counts.lost or self.counts.duplicates or self.counts.failed)

    def as_json(self) -> dict[str, Any]:
        """Plain data for machines."""
        return {
            "sent": self.counts.sent,
            "parked": self.parked,
            "delivered": self.delivered,
            "received": self.counts.received,
            "lost": len(self.counts.lost),
            "duplicates": self.counts.duplicates,
            "failed_sends": self.counts.failed,
            "failover_seconds": round(self.failover_seconds, 3),
            "drain_seconds": self.syphon["seconds"],
            "cost": {key: self.report[key] for key in ("currency", "operations_charge", "base_charge", "stages")},
            "without_pairing": {"sent": self.unpaired.sent, "failed_sends": self.unpaired.failed},
        }


class Play:
    """One run.

    :param folder: where the brokers keep their data, and where the ledger and the report go.
    """

    def __init__(self, console: Console, folder: Path) -> None:
        self.folder = folder
        self.counts = OrderCounts(PLACES)
        self.unpaired = OrderCounts({UNPAIRED: (UNPAIRED,)})
        self.screen = Screen(console, self._look)
        self.ledger = folder / "ledger"
        self.primary = EmbeddedBroker(
            namespaces=["contoso"],
            queues={
                ORDERS: QueueSettings(requires_session=True, requires_duplicate_detection=True),
                UNPAIRED: QueueSettings(),
            },
            topics={
                EVENTS: TopicConfig(
                    TopicSettings(requires_duplicate_detection=True),
                    subscriptions={"billing": SubscriptionConfig(), "shipping": SubscriptionConfig()},
                )
            },
            data=folder / "primary",
            ledger=self.ledger,
            process=True,
        )
        self.secondary = EmbeddedBroker(
            namespaces=["fabrikam"], data=folder / "secondary", ledger=self.ledger, process=True
        )
        self._factory: MessagingFactory | None = None
        self._backlog: dict[str, int] = {}
        self._primary_runs = False
        self._waits_for = "contoso is paired with fabrikam"
        self._states: dict[str, asyncio.Queue[State]] = {ORDERS: asyncio.Queue(), EVENTS: asyncio.Queue()}
        self._parked = 0
        self._killed_at = 0.0
        self._engaged_at = 0.0

    @property
    def environment(self) -> dict[str, str]:
        """What a command of pairbus needs to find the pair."""
        return {
            "PAIRBUS_PRIMARY_CONNECTION_STRING": self.primary.connection_string,
            "PAIRBUS_SECONDARY_CONNECTION_STRING": self.secondary.connection_string,
        }

    def record(self, record: Record) -> None:
        """Count what is parked; the factory's instrument hands in every operation."""
        if record.stage is Stage.PARK and record.outcome is Outcome.DONE:
            self._parked += record.messages

    def start_brokers(self) -> None:
        """Start both brokers, each a process of its own."""
        self.primary.start()
        self.secondary.start()
        self._primary_runs = True
        self.screen.tell("Two durable brokers run, a process each: contoso and fabrikam.")

    async def run(self) -> Ending:
        """Play it."""
        ledger = LedgerFile(self.ledger)
        try:
            async with contextlib.AsyncExitStack() as open_things:
                return await self._play(open_things, ledger)
        finally:
            await asyncio.to_thread(ledger.close)

    async def _play(self, open_things: contextlib.AsyncExitStack, ledger: LedgerFile) -> Ending:
        primary, secondary = self.primary.connection_string, self.secondary.connection_string
        enter = open_things.enter_async_context
        manager = await enter(NamespaceManager.from_connection_string(secondary))
        backup = await enter(MessagingFactory.from_connection_string(secondary))
        factory = self._factory = await enter(
            MessagingFactory.from_connection_string(
                primary, retry_total=0, instrument=Instrument([ledger, self], client="shop")
            )
        )
        await factory.pair_namespace(
            SendAvailabilityPairedNamespaceOptions(
                manager,
                backup,
                backlog_queue_count=BACKLOG_QUEUES,
                failover_interval=FAILOVER_SECONDS,
                ping_primary_interval=PING_SECONDS,
            )
        )
        factory.availability.subscribe(self._turned)
        self.screen.tell(f"contoso is paired with fabrikam: {BACKLOG_QUEUES} backlog queues, failover after 2 s.")
        client = await enter(ServiceBusClient.from_connection_string(primary))
        async with asyncio.TaskGroup() as group:
            clerks = [group.create_task(each) for each in self._clerks(client)]
            look = group.create_task(self._count_backlog(manager, factory.fully_qualified_namespace))
            await self._acts(factory, client)
            syphon, report = await self._drain(ledger)
            for task in (*clerks, look):
                task.cancel()
        return Ending(self.counts, self.unpaired, self._parked, self._engaged_at - self._killed_at, syphon, report)

    async def _acts(self, factory: MessagingFactory, client: ServiceBusClient) -> None:
        closing = asyncio.Event()
        async with self._tills(factory, client) as tills, asyncio.TaskGroup() as group:
            for till in tills:
                group.create_task(till.open_until(closing, PACE))
            self.screen.tell("The tills open. Beside them, the same shop without pairing.")
            await self._pause(BEFORE, "customers buy, clerks receive")
            self.primary.kill()
            self._primary_runs, self._killed_at = False, time.monotonic()
            self.screen.tell("kill -9: contoso is gone.", "bold red")
            self._waits_for = "held orders wait for failover"
            await asyncio.gather(*(self._until(entity, State.ENGAGED) for entity in self._states))
            self._engaged_at = time.monotonic()
            await self._pause(OUTAGE - (self._engaged_at - self._killed_at), "orders are parked in fabrikam")
            await asyncio.to_thread(self.primary.start)
            self._primary_runs = True
            self.screen.tell("contoso is back, with all it had stored.", "bold")
            self._waits_for = "the next ping"
            await asyncio.gather(*(self._until(entity, State.HEALTHY) for entity in self._states))
            await self._pause(AFTER, "orders go straight to contoso again")
            closing.set()
        self.screen.tell(
            f"The tills close: {self.counts.sent} sent, {self._parked} of them parked, {self.counts.failed} failed."
        )

    async def _drain(self, ledger: LedgerFile) -> tuple[dict[str, Any], dict[str, Any]]:
        self._waits_for = "Java and Spark start, then the syphon drains"
        self.screen.tell("Spark carries the parked orders home: pairbus syphon --once")
        syphon = await jobs.run("syphon", "--once", "--ledger", str(self.ledger), environment=self.environment)
        self.screen.tell(f"{syphon['delivered']} parked orders delivered in {syphon['seconds']:.1f} s.")
        self._waits_for = "the clerks receive the last orders"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENT):
                while self.counts.lost:  # noqa: ASYNC110 (clerks count as they receive)
                    await asyncio.sleep(0.1)
        await asyncio.to_thread(ledger.flush)
        self._waits_for = "Spark makes the tables of costs and availability"
        self.screen.tell("Spark makes the report, which takes a minute: pairbus report")
        report = await jobs.run(
            "report",
            str(self.ledger),
            *("--out", str(self.folder / "report"), *self._aliases()),
            environment=self.environment,
        )
        return syphon, report

    def _aliases(self) -> list[str]:
        """The clients know the brokers by their addresses; in the report each has its name."""
        options: list[str] = []
        for broker in (self.primary, self.secondary):
            for endpoint in broker.endpoints.values():
                options += ["--alias", f"{namespace_label(f'127.0.0.1:{endpoint.port}')}={endpoint.namespace}"]
        return options

    @contextlib.asynccontextmanager
    async def _tills(self, factory: MessagingFactory, client: ServiceBusClient) -> AsyncGenerator[Sequence[Till]]:
        async with contextlib.AsyncExitStack() as stack:
            to_orders, unpaired, (topic,) = await asyncio.gather(  # a link takes half a second to open
                asyncio.gather(*(stack.enter_async_context(factory.get_queue_sender(ORDERS)) for _ in CUSTOMERS)),
                asyncio.gather(*(stack.enter_async_context(client.get_queue_sender(UNPAIRED)) for _ in CUSTOMERS)),
                asyncio.gather(stack.enter_async_context(factory.get_topic_sender(EVENTS))),
            )
            yield [
                Till("till", EVENTS, paired(topic), self.counts, sessions=False),
                *(
                    Till(name, ORDERS, paired(sender), self.counts, sessions=True)
                    for name, sender in zip(CUSTOMERS, to_orders, strict=True)
                ),
                *(
                    Till(name, UNPAIRED, bare(sender), self.unpaired, sessions=False)
                    for name, sender in zip(CUSTOMERS, unpaired, strict=True)
                ),
            ]

    def _clerks(self, client: ServiceBusClient) -> list[Any]:
        return [
            *(
                clerk(partial(client.get_queue_receiver, ORDERS, session_id=name), ORDERS, self.counts)
                for name in CUSTOMERS
            ),
            *(
                clerk(partial(client.get_subscription_receiver, EVENTS, place.partition("/")[2]), place, self.counts)
                for place in PLACES[EVENTS]
            ),
        ]

    async def _count_backlog(self, manager: NamespaceManager, primary: str) -> None:
        paths = backlog_paths(primary, BACKLOG_QUEUES)
        while True:
            for path in paths:
                properties = await manager.get_queue_runtime_properties(path)
                self._backlog[f"queue {path.rpartition('/')[2]}"] = properties.active_message_count or 0
            await asyncio.sleep(1.0)

    async def _pause(self, seconds: float, waits_for: str) -> None:
        self._waits_for = waits_for
        await asyncio.sleep(seconds)  # that is what the act is: so many seconds of a shop

    async def _until(self, entity: str, state: State) -> None:
        async with asyncio.timeout(PATIENT):
            while await self._states[entity].get() is not state:
                pass

    def _turned(self, turn: Turn) -> None:
        said = {
            State.SUSPECT: (f"'{turn.entity}' takes nothing: sends are held, the timer runs.", "yellow"),
            State.ENGAGED: (f"'{turn.entity}': failover. From now on orders are parked.", "red"),
            State.HEALTHY: (f"'{turn.entity}': a ping got through. Orders go to contoso again.", "green"),
        }
        self.screen.tell(*said[turn.state])
        self._states[turn.entity].put_nowait(turn.state)

    def _look(self) -> Scene:
        states: dict[str, tuple[str, float]] = {}
        for entity in PLACES:
            health = None if self._factory is None else self._factory.availability.entity(entity)
            since = None if health is None or health.since is None else health.since
            lasted = 0.0 if since is None else time.time() - since.timestamp()
            states[entity] = ("healthy" if health is None else health.state.value, lasted)
        sent = {entity: self.counts.sent_to(entity) for entity in PLACES}
        return Scene(states, sent, self.counts.arrivals, dict(self._backlog), self._primary_runs, self._waits_for)
