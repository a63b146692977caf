"""Tokens in time: when they are put, renewed, expire and are taken back; keys that log in; what is logged."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest
from tests.contract.lab import Clock
from tests.support.caller import Caller, RefusedByBrokerError, refused
from tests.support.client import ConnectionEndedError, Login

from pairbus.amqp import SaslClient, build_message
from pairbus.amqp.events import Closed, Event
from pairbus.amqp.link import LinkState
from pairbus.amqp.message import encode_value_section
from pairbus.amqp.performatives import Accepted, Target
from pairbus.broker.access.tokens import sign
from pairbus.testing import EmbeddedBroker, QueueSettings, Right

ORDERS = "sb://localhost/orders"
DENIED = "amqp:unauthorized-access"
MESSAGE = build_message(encode_value_section("x"))


class Bench:
    """A broker whose clock for tokens can be moved, and tokens for it."""

    def __init__(self, broker: EmbeddedBroker, clock: Clock) -> None:
        self.broker = broker
        self.clock = clock
        self.port = broker.endpoints["localhost"].port

    def token(self, seconds: float, *, connection_string: str | None = None, uri: str = ORDERS) -> str:
        """Make a token that is good for so long."""
        login = Login.of(connection_string or self.broker.connection_string)
        return sign(uri, login.name, login.key, round(self.clock() / 1000 + seconds))

    async def caller(self, token: str | None = None) -> Caller:
        """Connect, and put a token."""
        caller = await Caller.connect(self.port)
        if token is not None:
            assert await caller.put_token(ORDERS, token) == (202, "Accepted")
        return caller

    async def pass_time(self, seconds: float) -> None:
        """Move the clock on, and have the broker look at it."""
        self.clock.advance(seconds)
        await asyncio.to_thread(self.broker.wake)


Scenario: TypeAlias = Callable[[Bench], Awaitable[None]]


def play(scenario: Scenario) -> None:
    clock = Clock()
    with EmbeddedBroker(queues={"orders": QueueSettings(), "bills": QueueSettings()}, access_clock=clock) as broker:
        asyncio.run(asyncio.wait_for(_play(scenario, Bench(broker, clock)), 60))


async def _play(scenario: Scenario, bench: Bench) -> None:
    await scenario(bench)


async def closing(caller: Caller) -> Closed:
    """Wait until the broker closes a connection."""
    closed: asyncio.Future[Event] = asyncio.get_running_loop().create_future()

    def hear(event: Event) -> None:
        if isinstance(event, Closed) and not closed.done():
            closed.set_result(event)

    caller.client.handle(object(), hear)
    event = await asyncio.wait_for(closed, 15)
    assert isinstance(event, Closed)
    return event


def test_a_link_ends_when_its_token_expires_and_not_before() -> None:
    async def scenario(bench: Bench) -> None:
        caller = await bench.caller(bench.token(60))
        sender, receiver = await caller.sender("orders"), await caller.receiver("orders/$DeadLetterQueue")
        await caller.manage("orders", "peek-message", {"from-sequence-number": 1, "message-count": 1})
        await bench.pass_time(58)
        assert isinstance(await caller.send(sender, MESSAGE), Accepted)
        await bench.pass_time(2)  # at once, and 5 s would do
        for link, claim in ((sender, "Send"), (receiver, "Listen")):
            ended = await caller.ended(link)
            assert ended.condition == "amqp:link:detach-forced"
            assert "Code: RenewToken" in ended.description
            assert f"'{claim}' claim(s) are required" in ended.description
        assert await refused(lambda: caller.sender("orders")) == DENIED
        with pytest.raises(RefusedByBrokerError, match="detach-forced"):
            await caller.manage("orders", "peek-message", {"from-sequence-number": 1, "message-count": 1})
        assert await caller.put_token(ORDERS, bench.token(60)) == (202, "Accepted")  # and it goes on, with a new one
        assert isinstance(await caller.send(await caller.sender("orders"), MESSAGE), Accepted)
        await caller.close()

    play(scenario)


def test_a_link_ends_by_itself_when_nobody_wakes_the_broker() -> None:
    async def scenario(bench: Bench) -> None:
        caller = await bench.caller(bench.token(600))
        sender = await caller.sender("orders")
        bench.clock.advance(600)
        began = time.monotonic()
        assert (await caller.ended(sender)).condition == "amqp:link:detach-forced"
        assert time.monotonic() - began < 5
        await caller.close()

    play(scenario)


def test_a_renewed_token_lets_a_link_live_on() -> None:
    async def scenario(bench: Bench) -> None:
        caller = await bench.caller(bench.token(60))
        sender = await caller.sender("orders")
        await caller.put_token(ORDERS, bench.token(600))
        await bench.pass_time(120)
        assert isinstance(await caller.send(sender, MESSAGE), Accepted)
        await bench.pass_time(480)
        assert (await caller.ended(sender)).condition == "amqp:link:detach-forced"
        await caller.close()

    play(scenario)


def test_a_token_that_gives_less_ends_what_needed_more() -> None:
    async def scenario(bench: Bench) -> None:
        caller = await bench.caller(bench.token(600))
        sender, receiver = await caller.sender("orders"), await caller.receiver("orders")
        listens = await asyncio.to_thread(bench.broker.create_policy, "reader", ["Listen"], entity="orders")
        await caller.put_token(ORDERS, bench.token(600, connection_string=listens))
        assert (await caller.ended(sender)).condition == "amqp:link:detach-forced"
        assert receiver.is_attached
        await caller.close()

    play(scenario)


def test_a_refused_token_takes_nothing_away() -> None:
    async def scenario(bench: Bench) -> None:
        caller = await bench.caller(bench.token(60))
        sender = await caller.sender("orders")
        code, text = await caller.put_token(ORDERS, bench.token(-1))
        assert code == 401
        assert text.startswith("ExpiredToken: The token is expired. Expiration time: '20")
        assert isinstance(await caller.send(sender, MESSAGE), Accepted)
        await caller.close()

    play(scenario)


def test_tokens_of_a_rotated_key_are_refused_and_open_links_stay_until_they_expire() -> None:
    """As in the cloud: a key that was regenerated makes its tokens invalid at once, not what they have opened."""

    async def scenario(bench: Bench) -> None:
        old = await asyncio.to_thread(bench.broker.create_policy, "app", [Right.SEND], entity="orders")
        spare = bench.broker.connection_string_for("app", entity="orders", secondary=True)
        caller = await bench.caller(bench.token(60, connection_string=old))
        sender = await caller.sender("orders")
        new = await asyncio.to_thread(bench.broker.rotate_key, "app", entity="orders")
        assert (await caller.put_token(ORDERS, bench.token(600, connection_string=old)))[0] == 401
        assert isinstance(await caller.send(sender, MESSAGE), Accepted)
        for good in (new, spare):
            assert (await caller.put_token(ORDERS, bench.token(60, connection_string=good)))[0] == 202
        await asyncio.to_thread(bench.broker.delete_policy, "app", entity="orders")
        assert (await caller.put_token(ORDERS, bench.token(60, connection_string=new)))[0] == 401
        assert isinstance(await caller.send(sender, MESSAGE), Accepted)
        await bench.pass_time(60)
        assert (await caller.ended(sender)).condition == "amqp:link:detach-forced"
        await caller.close()

    play(scenario)


def test_a_client_without_a_token_is_sent_away_after_20_seconds() -> None:
    async def scenario(bench: Bench) -> None:
        known, unknown = await bench.caller(bench.token(600)), await bench.caller()
        refused_once = await bench.caller()
        assert (await refused_once.put_token(ORDERS, bench.token(-1)))[0] == 401
        await bench.pass_time(19)
        assert not unknown.client.lost.done()
        waiting = [asyncio.create_task(closing(each)) for each in (unknown, refused_once)]
        await asyncio.sleep(0)
        await bench.pass_time(1)
        for closed in await asyncio.gather(*waiting):
            assert closed.error is not None
            assert closed.error.condition == "amqp:connection:forced"
            assert "No valid token" in str(closed.error.description)
        await known.sender("orders")
        await asyncio.gather(known.close(), unknown.close(), refused_once.close())

    play(scenario)


def test_a_policy_and_its_key_log_in_by_themselves() -> None:
    async def scenario(bench: Bench) -> None:
        sends = await asyncio.to_thread(bench.broker.create_policy, "app", [Right.SEND], entity="orders")
        caller = await Caller.connect(bench.port, Login.of(sends))
        await bench.pass_time(3600)  # a key does not expire
        assert isinstance(await caller.send(await caller.sender("orders"), MESSAGE), Accepted)
        assert await refused(lambda: caller.receiver("orders")) == DENIED
        assert await refused(lambda: caller.sender("bills")) == DENIED
        await caller.close()
        for login in (Login("app", "wrong"), Login("nobody", Login.of(sends).key), Login("", "")):
            with pytest.raises(ConnectionEndedError):
                await Caller.connect(bench.port, login)

    play(scenario)


@pytest.mark.parametrize("mechanism", ["ANONYMOUS", "MSSBCBS", "EXTERNAL"])
def test_other_mechanisms_show_nothing(monkeypatch: pytest.MonkeyPatch, mechanism: str) -> None:
    async def scenario(bench: Bench) -> None:
        monkeypatch.setattr("tests.support.client.SaslClient", lambda: SaslClient(mechanism))
        caller = await bench.caller()
        assert await refused(lambda: caller.sender("orders")) == DENIED
        assert await caller.put_token(ORDERS, bench.token(60)) == (202, "Accepted")
        await caller.sender("orders")
        await caller.close()

    play(scenario)


def test_tokens_of_a_directory_are_refused_with_the_cure() -> None:
    async def scenario(bench: Bench) -> None:
        caller = await bench.caller()
        code, text = await caller.put_token(ORDERS, "eyJ0eXAiOiJKV1QifQ.e30.x", "jwt")
        assert (code, "Azure AD" in text, "connection string" in text) == (401, True, True)
        assert (await caller.put_token(ORDERS, bench.token(60), "amqp:swt"))[0] == 401
        assert (await caller.put_token(ORDERS, bench.token(60), "jwt"))[0] == 202  # so does Python's SDK
        await caller.close()

    play(scenario)


def test_who_may_not_see_an_entity_does_not_learn_whether_it_is_there() -> None:
    async def scenario(bench: Bench) -> None:
        caller = await bench.caller(bench.token(60))
        for path in ("bills", "nowhere"):
            for attach in (caller.sender, caller.receiver):
                with pytest.raises(RefusedByBrokerError) as caught:
                    await attach(path)
                assert caught.value.condition == DENIED
                assert f"Resource: '{path}'" in caught.value.description
        await caller.close()

    play(scenario)


def test_what_is_sent_before_a_link_is_refused_goes_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    """A client that does not wait for the answer to its attach sends into the void, and the broker takes no harm."""

    async def scenario(bench: Bench) -> None:
        caller = await Caller.connect(bench.port)
        assert (await caller.put_token(ORDERS, bench.token(-1)))[0] == 401
        link = caller.session.attach_sender("hasty", Target("orders"))
        link.state, link.credit = LinkState.ATTACHED, 3
        for number in range(3):
            link.send(MESSAGE, number.to_bytes(4))
        with pytest.raises(RefusedByBrokerError, match="a transfer on a link that is requested"):
            await caller.put_token(ORDERS, bench.token(60))
        other = await bench.caller(bench.token(60))
        request = {"from-sequence-number": 1, "message-count": 10}
        assert await other.manage("orders", "peek-message", request) == {"messages": []}
        await asyncio.gather(caller.close(), other.close())

    play(scenario)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_no_secret_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="pairbus")

    async def scenario(bench: Bench) -> None:
        secrets = [Login.of(bench.broker.connection_string).key]
        app = await asyncio.to_thread(bench.broker.create_policy, "app", ["Send"], entity="orders")
        tokens = [bench.token(60), bench.token(60, connection_string=app), bench.token(-1), bench.token(60)[:-3]]
        secrets += [Login.of(app).key]
        for token in tokens:
            caller = await Caller.connect(bench.port)
            await caller.put_token(ORDERS, token)
            await refused(lambda caller=caller: caller.sender("orders"))
            await refused(lambda caller=caller: caller.receiver("orders"))
            await caller.close()
        await Caller.connect(bench.port, Login.of(app))
        with pytest.raises(ConnectionEndedError):
            await Caller.connect(bench.port, Login("app", "a wrong key is a secret too"))
        new = await asyncio.to_thread(bench.broker.rotate_key, "app", entity="orders")
        await bench.pass_time(60)
        secrets += [Login.of(new).key, "a wrong key is a secret too", *(token.partition("sig=")[2] for token in tokens)]
        assert all(secrets)
        signatures = [secret.partition("&")[0] for secret in secrets]
        text = "\n".join([*(record.getMessage() for record in caplog.records), caplog.text])
        assert "refused" in text
        assert [secret for secret in signatures if secret in text] == []

    play(scenario)
