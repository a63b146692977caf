"""What pairing promises, one promise a test: B3, B5, P2, C1, and that its options reach what they are for."""

# pyright: reportPrivateUsage=false

import asyncio
import dataclasses
import threading
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, cast

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus import ServiceBusMessage
from tests.client.conftest import Play
from tests.client.stage import Stage, State, texts
from tests.support.client import Login
from tests.support.threaded import Threaded

import pairbus
from pairbus import aio
from pairbus.amqp.client.signing import sign
from pairbus.core.options import TransportName
from pairbus.core.verdict import ErrorFacts, Verdict
from pairbus.errors import FactoryClosedError, FactoryFaultedError, PairingError
from pairbus.syphon.in_process import Syphon
from pairbus.syphon.transports import transport_to
from pairbus.testing import EmbeddedBroker, QueueSettings, Right

UNPAIRED = {"pair": False}
STALLED = 10.0
"""Seconds after which what should be done at once is taken not to happen."""


def inside(factory: aio.MessagingFactory) -> aio.MessagingFactory:
    """Return the asynchronous factory that does the work."""
    return cast("Any", factory).inner._factory if isinstance(factory, Threaded) else factory


class Overtaken:
    """The administration of a namespace in which another client makes each queue between our look and our making."""

    def __init__(self, manager: Any, broker: EmbeddedBroker) -> None:  # noqa: ANN401 (either client's)
        self.fully_qualified_namespace: str = manager.fully_qualified_namespace
        self.refused = 0
        self._manager = manager
        self._broker = broker

    def get_queue(self, name: str) -> Any:  # noqa: ANN401
        try:
            return self._manager.get_queue(name)
        except ResourceNotFoundError:
            self._broker.create_queue(name, QueueSettings())
            raise

    def create_queue(self, name: str, **settings: Any) -> Any:  # noqa: ANN401
        self.refused += 1
        return self._manager.create_queue(name, **settings)


class OvertakenAio(Overtaken):
    """The same, to be awaited."""

    async def get_queue(self, name: str) -> Any:  # noqa: ANN401
        try:
            return await self._manager.get_queue(name)
        except ResourceNotFoundError:
            await asyncio.to_thread(self._broker.create_queue, name, QueueSettings())
            raise

    async def create_queue(self, name: str, **settings: Any) -> Any:  # noqa: ANN401
        self.refused += 1
        return await self._manager.create_queue(name, **settings)


async def with_manager(stage: Stage, manager: Any, work: Callable[[], Awaitable[None]]) -> None:  # noqa: ANN401
    """Do something with another administration client of the secondary."""
    before, stage.manager = stage.manager, manager
    try:
        await work()
    finally:
        stage.manager = before


def test_b3_a_queue_that_another_client_makes_meanwhile_is_success(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        kind = Overtaken if stage.twin.is_sync else OvertakenAio
        overtaken = kind(stage.manager, stage.secondary)
        await with_manager(stage, overtaken, stage.pair)
        assert overtaken.refused == 2
        assert [queue.in_play for queue in stage.factory.availability.backlog_queues] == [True, True]
        assert [queue.problem for queue in stage.factory.availability.backlog_queues] == [None, None]

    play(scenario, pairing=UNPAIRED)


def test_b5_the_right_to_listen_is_not_enough_and_that_is_denied_access(play: Play) -> None:
    """The broker answers 403, or 401: pairing fails, names the cure, and leaves the factory usable (P2)."""

    async def scenario(stage: Stage) -> None:
        listens = stage.secondary.create_policy("kitchen", [Right.LISTEN])
        manager = stage.twin.manager(listens)
        with pytest.raises(PairingError, match=r"(?s)is denied: .*needs the right to manage") as denied:
            await with_manager(stage, manager, stage.pair)
        assert getattr(denied.value.__cause__, "status_code", None) in (401, 403)
        await stage.twin.close_manager(manager)
        assert not stage.factory.is_paired
        async with stage.factory.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("unpaired"))
        await stage.pair()
        assert texts(await stage.take()) == ["unpaired"]

    play(scenario, pairing=UNPAIRED)


@pytest.mark.parametrize("ends", ["closed", "faulted"])
def test_p2_a_secondary_that_has_ended_is_refused(play: Play, ends: str) -> None:
    async def scenario(stage: Stage) -> None:
        other = stage.twin.factory(stage.secondary.connection_string)
        if ends == "closed":
            await other.close()
        else:
            other.fault("on cue")
            await stage.until(lambda: other.availability.state == "faulted")
        options = stage.twin.options(stage.manager, other)
        with pytest.raises(FactoryClosedError if ends == "closed" else FactoryFaultedError):
            await stage.factory.pair_namespace(options)
        assert not stage.factory.is_paired
        assert not any(each.stage.value == "setup" for each in stage.records)
        await other.close()
        await stage.pair()

    play(scenario, pairing=UNPAIRED)


def test_c1_a_fault_ends_what_is_under_way_and_the_syphon(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        sender = stage.factory.get_queue_sender("orders")
        await sender.send_messages(ServiceBusMessage("before"))
        await stage.until_links(2, at="secondary")  # the syphon's, which waits for parked messages
        with stage.frozen():
            under_way = asyncio.ensure_future(sender.send_messages(ServiceBusMessage("under way")))
            await stage.until_begun(2)
            stage.factory.fault("on cue")
            async with asyncio.timeout(STALLED):
                with pytest.raises(FactoryFaultedError, match="on cue") as faulted:
                    await under_way
            assert vars(faulted.value)["maybe_sent"] is True  # S7
        await stage.until_links(0, at="secondary")

    play(scenario, pairing={"enable_syphon": True, "failover_interval": 60, "attempt_timeout": 60})


def test_p2_every_option_reaches_the_pairing(play: Play) -> None:
    """In the synchronous client, too, which makes options of its own for its asynchronous twin."""

    def never(_facts: ErrorFacts) -> Verdict:
        return Verdict.CALLERS

    given: dict[str, Any] = {
        "backlog_queue_count": 3,
        "failover_interval": timedelta(seconds=11),
        "enable_syphon": True,
        "ping_primary_interval": timedelta(seconds=12),
        "syphon_retry_interval": timedelta(seconds=13),
        "syphon_transport": "sdk",
        "attempt_timeout": timedelta(seconds=14),
        "on_outage": "raise",
        "classify": never,
    }

    async def scenario(stage: Stage) -> None:
        pairing = inside(stage.factory).pairing
        assert pairing is not None
        options = pairing.options
        names = {each.name for each in dataclasses.fields(options)} - {
            "secondary_namespace_manager",
            "secondary_messaging_factory",
        }
        assert {name: getattr(options, name) for name in names} == given  # an option that is new is to be added here
        assert (pairing.policy.attempt_timeout, pairing.policy.on_outage) == (14.0, "raise")
        assert pairing.policy.classify is never

    play(scenario, pairing=given)


@pytest.mark.parametrize("carrier", ["sdk", "native"])
def test_p2_the_syphon_has_the_retry_interval_and_the_transport_of_the_options(
    play: Play, carrier: TransportName, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[TransportName, float]] = []
    intervals: list[float] = []

    def transport(client: Any, name: TransportName, *, attempt_timeout: float) -> Any:  # noqa: ANN401
        made.append((name, attempt_timeout))
        return transport_to(client, name, attempt_timeout=attempt_timeout)

    class Watched(Syphon):
        def __init__(self, *args: Any, retry_interval: float, **options: Any) -> None:  # noqa: ANN401
            intervals.append(retry_interval)
            super().__init__(*args, retry_interval=retry_interval, **options)

    monkeypatch.setattr("pairbus.client.factory.transport_to", transport)
    monkeypatch.setattr("pairbus.client.factory.Syphon", Watched)

    async def scenario(stage: Stage) -> None:
        assert made == [(carrier, 9.0)] * 2
        assert intervals == [7.0]
        stage.fault("down")
        await stage.factory.get_queue_sender("orders").send_messages(ServiceBusMessage("carried home"))
        stage.fault("clear")
        assert texts(await stage.take()) == ["carried home"]

    play(
        scenario,
        pairing={
            "enable_syphon": True,
            "syphon_transport": carrier,
            "syphon_retry_interval": 7,
            "attempt_timeout": 9,
        },
    )


def test_3_1_the_callers_own_table_of_outages_decides(play: Play) -> None:
    """3.1: the table is replaceable: what is an outage by ours is the caller's error by this one."""

    def always_the_callers(_facts: ErrorFacts) -> Verdict:
        return Verdict.CALLERS

    async def scenario(stage: Stage) -> None:
        stage.fault("disabled")
        with pytest.raises(Exception, match=r"(?i)disabled"):
            await stage.factory.get_queue_sender("orders").send_messages(ServiceBusMessage("one"))
        assert stage.factory.availability.entity("orders").state is State.HEALTHY

    play(scenario, pairing={"classify": always_the_callers})


class Slow:
    """A credential that is asked for a token and does not answer until it is told to."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.asked, self.go_on = threading.Event(), threading.Event()
        self._login = Login.of(broker.connection_string)
        self.host = broker.connection_string.partition("sb://")[2].partition(";")[0].rstrip("/")

    def get_token(self, *_scopes: str, **_options: object) -> AccessToken:
        self.asked.set()
        assert self.go_on.wait(6 * STALLED)
        expires_on = int(time.time()) + 60
        return AccessToken(sign(f"sb://{self.host}/", self._login.name, self._login.key, expires_on), expires_on)


@pytest.mark.parametrize("transport", ["sdk", "native"])
def test_a_synchronous_credential_does_not_block_the_loop(transport: TransportName) -> None:
    """Others that use the factory meanwhile are not held up by one that waits for its token."""
    with EmbeddedBroker(queues=["orders"]) as broker:
        credential = Slow(broker)
        factory = pairbus.MessagingFactory(
            credential.host, cast("Any", credential), transport=transport, retry_total=0, use_tls=False
        )
        sending = threading.Thread(
            target=lambda: factory.get_queue_sender("orders").send_messages(ServiceBusMessage("one")), daemon=True
        )
        sending.start()
        assert credential.asked.wait(STALLED)
        looked: list[dict[str, Any]] = []
        looking = threading.Thread(target=lambda: looked.append(factory.availability.export()), daemon=True)
        looking.start()
        looking.join(STALLED)
        assert len(looked) == 1
        assert sending.is_alive()
        credential.go_on.set()
        sending.join(STALLED)
        assert not sending.is_alive()
        factory.close()


def test_c2_closing_the_receivers_of_the_application_is_bounded(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK can hang when it closes; the factory does not."""
    monkeypatch.setattr("pairbus.client.sync.factory.RECEIVERS_CLOSE_SECONDS", 0.1)
    monkeypatch.setattr("pairbus.client.factory.CLOSE_SECONDS", 0.1)

    async def scenario(stage: Stage) -> None:
        factory = stage.twin.factory(stage.address)
        receiver = factory.get_queue_receiver("orders")
        released = threading.Event()

        async def hang() -> None:
            await asyncio.Event().wait()

        if stage.twin.is_sync:
            client = cast("Any", factory).inner._client
            close = client.close
            monkeypatch.setattr(client, "close", released.wait)
        else:
            client = factory.client
            close = client.close
            monkeypatch.setattr(client, "close", hang)
        async with asyncio.timeout(STALLED):
            await factory.close()
        assert factory.availability.state == "closed"
        released.set()
        await receiver.close()
        if stage.twin.is_sync:
            await asyncio.to_thread(close)
        else:
            await close()

    play(scenario, pairing=UNPAIRED)
