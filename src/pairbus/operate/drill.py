"""A rehearsal of an outage against a real pair, without harming it.

The drill has a queue of its own on the primary. It stops that queue, and nothing else, from taking messages: it sets
its status to ``SendDisabled``, which clients see as an outage of that entity (3.1). So everything that follows is
what it would be in an outage: messages are parked in the pair's own backlog queues, pings find out when the queue is
back, and a syphon carries the messages home. In the end all of it is removed, also after a failure or an interruption;
a queue that could not be removed deletes itself after ten minutes.
"""

# pyright: reportUnknownMemberType=false

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Literal, Protocol

from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.management import EntityStatus

from pairbus.client.factory import MessagingFactory
from pairbus.client.sender import MessageSender
from pairbus.core.envelope import PATH
from pairbus.core.health import State
from pairbus.core.ledger import Kind, Outcome, Record, Stage
from pairbus.core.options import SendAvailabilityPairedNamespaceOptions
from pairbus.errors import PairbusError
from pairbus.instrument.hooks import Instrument
from pairbus.links.deadlines import within
from pairbus.links.errors import facts
from pairbus.links.sdk.administration import MANAGEMENT_SECONDS
from pairbus.links.sdk.browsing import browse, sequence_number_of
from pairbus.links.sdk.transport import SdkTransport
from pairbus.operate.deadletters import Choice, Shelf, discard, remove
from pairbus.syphon.in_process import Syphon
from pairbus.syphon.survey import survey

PREFIX: Final = "pairbus-drill-"
PATIENCE: Final = 60.0
"""How much longer than it should a broker may take to do as it was told, in seconds."""
PAUSE: Final = 0.2
SELF_DESTRUCTION: Final = timedelta(minutes=10)


class DrillError(PairbusError):
    """A step has not ended as it should."""


class HinderedError(PairbusError):
    """The drill cannot be done, which says nothing about the pair."""


class Namespace(Protocol):
    """One namespace of the pair, and how it is reached."""

    def factory(self, **options: Any) -> MessagingFactory:  # noqa: ANN401 (the SDK's own)
        """Make a factory."""
        ...

    def client(self, **options: Any) -> ServiceBusClient:  # noqa: ANN401 (the SDK's own)
        """Make a client of the SDK."""
        ...

    def manager(self) -> ServiceBusAdministrationClient:
        """Make an administration client."""
        ...

    @property
    def host(self) -> str:
        """Its host name."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is rehearsed.

    :ivar administration: the primary with the right to manage it, if ``primary`` does not have that.
    :ivar messages: how many messages are sent before, during and after the outage, each.
    :ivar syphon: ``own``: the drill carries its messages home itself; ``yours``: the pair's own syphon has to.
    :ivar drain_timeout: how long that may take, in seconds.
    """

    primary: Namespace
    secondary: Namespace
    administration: Namespace
    queue: str
    backlog_queues: int = 10
    failover_interval: float = 2.0
    ping_interval: float = 1.0
    messages: int = 5
    syphon: Literal["own", "yours"] = "own"
    drain_timeout: float = 60.0


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the drill.

    :ivar detail: what was seen.
    :ivar error: why it has failed; None: it has not.
    """

    name: str
    seconds: float
    detail: str
    error: BaseException | None = None


@dataclass(slots=True)
class Finding:
    """What the drill has found.

    :ivar survived: None: it could not be told.
    :ivar leftovers: what could not be removed, in words.
    """

    queue: str
    steps: list[Step] = field(default_factory=list[Step])
    survived: bool | None = None
    sent: int = 0
    parked: int = 0
    received: int = 0
    lost: int = 0
    duplicates: int = 0
    leftovers: list[str] = field(default_factory=list[str])

    def seconds(self, name: str) -> float | None:
        """How long a step took that ended well."""
        return next((step.seconds for step in self.steps if step.name == name and step.error is None), None)


class _Watcher:
    """A sink that knows where messages went."""

    def __init__(self) -> None:
        self.direct = 0
        self.parked = 0
        self.queues: set[str] = set()

    def record(self, record: Record) -> None:
        if record.kind is Kind.SEND and record.outcome is Outcome.DONE:
            if record.stage is Stage.PARK:
                self.parked += record.messages
                self.queues.add(record.entity)
            elif record.stage is Stage.DIRECT:
                self.direct += record.messages


async def rehearse(plan: Plan, told: Callable[[Step], None] = lambda _step: None) -> Finding:
    """Go through an outage of a queue of the drill's own, and clean up, whatever happens.

    :param told: called after each step.
    """
    drill = _Drill(plan, told)
    async with AsyncExitStack() as opened:
        opened.push_async_callback(drill.clean_up)
        try:
            async with AsyncExitStack() as clients:
                await drill.go(clients)
        except HinderedError:
            drill.finding.survived = None
        except _FailedError:
            drill.finding.survived = False
        else:
            drill.finding.survived = True
    return drill.finding


class _FailedError(Exception):
    """A step has failed, and is told already."""


class _Drill:
    def __init__(self, plan: Plan, told: Callable[[Step], None]) -> None:
        self.plan = plan
        self.finding = Finding(plan.queue)
        self._told = told
        self._seen = _Watcher()
        self._sent: dict[str, str] = {}
        self._engaged_at: float | None = None
        self._suspect_at: float | None = None
        self._is_made = False

    async def go(self, clients: AsyncExitStack) -> None:
        """Take the steps one after the other."""
        plan = self.plan
        secondary = await clients.enter_async_context(plan.secondary.factory(retry_total=0))
        secondary_manager = await clients.enter_async_context(plan.secondary.manager())
        administration = await clients.enter_async_context(plan.administration.manager())
        primary = await clients.enter_async_context(
            plan.primary.factory(retry_total=0, instrument=Instrument([self._seen], client="pairbus drill"))
        )
        options = SendAvailabilityPairedNamespaceOptions(
            secondary_manager,
            secondary,
            backlog_queue_count=plan.backlog_queues,
            failover_interval=plan.failover_interval,
            ping_primary_interval=plan.ping_interval,
        )
        await self._step("pair", lambda: self._pair(primary, options))
        await self._step("queue", lambda: self._make_queue(administration), hinders=True)
        sender = primary.get_queue_sender(plan.queue)
        clients.push_async_callback(sender.close)
        await self._step("healthy", lambda: self._send_healthy(sender), hinders=True)
        await self._step("fail over", lambda: self._fail_over(administration, primary, sender))
        await self._step("parked", self._look_at_backlog)
        await self._step("switch back", lambda: self._switch_back(administration, primary))
        await self._step("healthy again", lambda: self._send_directly(sender))
        await self._step("drain", self._drain)

    async def _step(self, name: str, work: Callable[[], Awaitable[str]], *, hinders: bool = False) -> None:
        began = time.monotonic()
        try:
            detail = await work()
        except Exception as error:
            self._tell(Step(name, time.monotonic() - began, "", error))
            if hinders or isinstance(error, HinderedError):
                raise HinderedError(name) from error
            raise _FailedError from error
        self._tell(Step(name, time.monotonic() - began, detail))

    def _tell(self, step: Step) -> None:
        self.finding.steps.append(step)
        self._told(step)

    # --- the steps -------------------------------------------------------------------------------------------------

    async def _pair(self, primary: MessagingFactory, options: SendAvailabilityPairedNamespaceOptions) -> str:
        await primary.pair_namespace(options)
        queues = primary.availability.backlog_queues
        usable = sum(queue.in_play for queue in queues)
        if self.plan.syphon == "own":
            async with self.plan.secondary.client(retry_total=0) as client, self.plan.secondary.manager() as manager:
                there = await survey(manager, client, self.plan.primary.host, self.plan.backlog_queues, look_at=0)
            if there.depth:
                raise HinderedError(
                    f"the backlog holds {there.depth} messages, which the drill's own syphon would carry home too: "
                    "wait until it is empty, or have the pair's syphon do it with --syphon yours"
                )
        return f"{usable} of {len(queues)} backlog queues can be used"

    async def _make_queue(self, administration: ServiceBusAdministrationClient) -> str:
        async def make() -> None:
            await administration.create_queue(self.plan.queue, auto_delete_on_idle=SELF_DESTRUCTION)

        self._is_made = True
        try:
            await within(MANAGEMENT_SECONDS, make())
        except Exception as error:
            self._is_made = facts(error).in_doubt  # it may be, if no answer came
            raise
        return f"{self.plan.queue}, which nobody else uses"

    async def _send_healthy(self, sender: MessageSender) -> str:
        for _ in range(self.plan.messages):
            await self._send(sender)
        if self._seen.parked:
            raise DrillError("the primary did not take messages before the drill had begun; see pairbus status")
        return f"{self.plan.messages} messages sent to the primary"

    async def _fail_over(
        self, administration: ServiceBusAdministrationClient, primary: MessagingFactory, sender: MessageSender
    ) -> str:
        def turned(state: State) -> None:
            if state is State.SUSPECT and self._suspect_at is None:
                self._suspect_at = time.monotonic()
            elif state is State.ENGAGED:
                self._engaged_at = time.monotonic()

        stop = primary.availability.subscribe(lambda turn: turned(turn.state))
        try:
            await self._set_status(administration, EntityStatus.SEND_DISABLED)
            async with asyncio.timeout(self.plan.failover_interval + PATIENCE):
                while not self._seen.parked:  # the cloud takes a moment to disable a queue
                    await self._send(
                        sender, timeout=None
                    )  # a backlog that takes nothing ends it, with the reason (S13)
                    await asyncio.sleep(0 if self._seen.parked else PAUSE)
            while self._seen.parked < self.plan.messages:
                await self._send(sender)
        except TimeoutError:
            raise DrillError(
                f"the queue was disabled, and no message was parked within {self.plan.failover_interval + PATIENCE:g} s"
            ) from None
        finally:
            stop()
        self.finding.parked = self._seen.parked
        failing = (self._engaged_at or 0.0) - (self._suspect_at or self._engaged_at or 0.0)
        return f"{self._seen.parked} messages parked, none refused; engaged {failing:.1f} s after the first failure"

    async def _look_at_backlog(self) -> str:
        found = 0
        async with self.plan.secondary.client(retry_total=0) as client:
            for queue in self._seen.queues:
                found += len(await self._mine(client, queue))
        if found < self._seen.parked:
            raise DrillError(f"{self._seen.parked} messages were parked, and {found} of them are in the backlog")
        return f"{found} messages in {', '.join(sorted(self._seen.queues))}"

    async def _switch_back(self, administration: ServiceBusAdministrationClient, primary: MessagingFactory) -> str:
        await self._set_status(administration, EntityStatus.ACTIVE)
        began = time.monotonic()
        patience = self.plan.ping_interval + PATIENCE
        while primary.availability.entity(self.plan.queue).state is not State.HEALTHY:
            if time.monotonic() - began > patience:
                raise DrillError(f"the queue is enabled again, and no ping was accepted within {patience:g} s")
            await asyncio.sleep(0.01)
        return f"a ping was accepted {time.monotonic() - began:.1f} s after the queue was back"

    async def _send_directly(self, sender: MessageSender) -> str:
        parked = self._seen.parked
        for _ in range(self.plan.messages):
            await self._send(sender)
        if self._seen.parked != parked:
            raise DrillError("failover has ended, and messages were parked all the same")
        return f"{self.plan.messages} messages sent to the primary"

    async def _drain(self) -> str:
        missing, got = set(self._sent), Counter[str]()
        began = time.monotonic()
        async with (
            self._syphon(),
            self.plan.administration.client(retry_total=0) as client,
            client.get_queue_receiver(self.plan.queue) as receiver,
        ):
            last = False
            while not last:  # one more look when all are there, for one that comes twice
                last = not missing or time.monotonic() - began >= self.plan.drain_timeout
                for message in await receiver.receive_messages(100, max_wait_time=1):
                    await receiver.complete_message(message)
                    self._count(message.message_id or "", str(message), got)
                    missing.discard(message.message_id or "")
        finding = self.finding
        finding.received, finding.lost = len(got), len(missing)
        finding.duplicates = got.total() - len(got)
        if missing:
            whose = "the drill's own syphon" if self.plan.syphon == "own" else "the pair's syphon"
            raise DrillError(
                f"{len(missing)} of {len(self._sent)} messages have not arrived within {self.plan.drain_timeout:g} s: "
                f"{whose} has not carried them home; see that one runs, and may send to the primary"
            )
        twice = f", {finding.duplicates} of them twice" if finding.duplicates else ", none twice"
        return f"{len(got)} of {len(self._sent)} messages received{twice}"

    def _count(self, message_id: str, body: str, got: "Counter[str]") -> None:
        if self._sent.get(message_id) != body:
            raise DrillError(f"message {message_id!r} has arrived with another body than it was sent with")
        got[message_id] += 1

    # --- tools -----------------------------------------------------------------------------------------------------

    async def _send(self, sender: MessageSender, *, timeout: float | None = PATIENCE) -> None:  # noqa: ASYNC109 (the SDK's)
        number = len(self._sent) + 1
        name, body = f"{self.plan.queue}-{number}", f"message {number} of a drill"
        self._sent[name] = body
        self.finding.sent = number
        await sender.send_messages(ServiceBusMessage(body, message_id=name), timeout=timeout)

    async def _set_status(self, administration: ServiceBusAdministrationClient, status: EntityStatus) -> None:
        async def change() -> None:
            properties = await administration.get_queue(self.plan.queue)
            properties.status = status
            await administration.update_queue(properties)

        await within(MANAGEMENT_SECONDS, change())

    @asynccontextmanager
    async def _syphon(self) -> AsyncGenerator[None]:
        if self.plan.syphon == "yours":
            yield
            return
        async with (
            self.plan.primary.client(retry_total=0) as primary,
            self.plan.secondary.client(retry_total=0) as secondary,
        ):
            syphon = Syphon(SdkTransport(primary), SdkTransport(secondary), sorted(self._seen.queues))
            syphon.start()
            try:
                yield
            finally:
                await syphon.stop()

    async def _mine(self, client: ServiceBusClient, path: str) -> list[int]:
        """Return the numbers of the drill's own messages in a backlog queue."""
        async with aclosing(browse(client, path)) as messages:
            return [
                sequence_number_of(message)
                async for message in messages
                if message.application_properties().get(PATH) == self.plan.queue
            ]

    # --- afterwards ------------------------------------------------------------------------------------------------

    async def clean_up(self) -> None:
        """Remove the queue, and all messages of the drill that are left in the backlog."""
        for what, work in (("the backlog", self._sweep), (self.plan.queue, self._delete_queue)):
            try:
                await work()
            except Exception as error:  # noqa: BLE001 (told: the drill's own finding stands)
                self.finding.leftovers.append(f"{what}: {error}")

    async def _sweep(self) -> None:
        if not self._seen.queues:
            return
        async with self.plan.secondary.client(retry_total=0) as client:
            for queue in sorted(self._seen.queues):
                mine = await self._mine(client, queue)
                left = await remove(client, queue, mine) if mine else 0
                await discard(client, Shelf(queue), Choice(destination=self.plan.queue))
                if left:
                    self.finding.leftovers.append(
                        f"{left} messages in {queue} are held by a syphon, which will dead-letter them; then: "
                        f"pairbus deadletter discard --destination {self.plan.queue}"
                    )

    async def _delete_queue(self) -> None:
        if not self._is_made:
            return

        async def delete() -> None:
            async with self.plan.administration.manager() as manager:
                await manager.delete_queue(self.plan.queue)

        try:
            await within(MANAGEMENT_SECONDS, delete())
        except ResourceNotFoundError:
            return  # it could not be made
