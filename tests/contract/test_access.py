"""The access matrix: rights, scopes and tokens, and for each all that can be done. No wrong grant, no wrong refusal.

Over real sockets, with a client of our own that is fast; what the SDK makes of refusals is in ``test_access_sdk``.
"""

import asyncio
import itertools
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from typing import Final

import pytest
from tests.support.caller import Caller, refused
from tests.support.client import Login

from pairbus.amqp import build_message
from pairbus.amqp.message import encode_value_section
from pairbus.amqp.performatives import Accepted
from pairbus.amqp.sections import Properties
from pairbus.amqp.types import Array, Timestamp
from pairbus.broker.access.policies import Right
from pairbus.broker.access.tokens import sign
from pairbus.broker.entities.message import SCHEDULED_TIME
from pairbus.testing import EmbeddedBroker, QueueSettings

TARGET: Final = "shop/Orders"
OTHER: Final = "shop/bills"
PARENT: Final = "shop"
POLICY: Final = "app"
HOUR: Final = 3600
DESCRIPTION: Final = (
    '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
    '<QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"/></content></entry>'
)

RIGHTS: Final = {
    "Send": (Right.SEND,),
    "Listen": (Right.LISTEN,),
    "Send+Listen": (Right.SEND, Right.LISTEN),
    "Manage": (Right.MANAGE,),
}
SCOPES: Final = {"namespace": None, "entity": TARGET, "parent": PARENT, "other": OTHER}
"""Where the policy is."""
TOKENS: Final = ("valid", "narrow", "expired", "tampered", "wrong audience", "wrong key", "rotated", "deleted")
OPERATIONS: Final = {
    "send": Right.SEND,
    "schedule": Right.SEND,
    "receive": Right.LISTEN,
    "settle": Right.LISTEN,
    "peek": Right.LISTEN,
    "renew": Right.LISTEN,
    "get session state": Right.LISTEN,
    "set session state": Right.LISTEN,
    "list sessions": Right.LISTEN,
    "create queue": Right.MANAGE,
}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    queues = {TARGET: QueueSettings(requires_session=True), OTHER: QueueSettings(), PARENT: QueueSettings()}
    with EmbeddedBroker(queues=queues) as broker:
        yield broker


def uri(path: str | None) -> str:
    return f"sb://localhost:5672/{path or ''}"


def the_token(broker: EmbeddedBroker, scope: str | None, kind: str) -> str:
    """Make a token of a policy of a scope, good or spoilt."""
    key = Login.of(broker.connection_string_for(POLICY, entity=scope)).key
    target = {"narrow": TARGET, "wrong audience": "elsewhere"}.get(kind, scope)
    expires = int(time.time()) + (-1 if kind == "expired" else HOUR)
    token = sign(uri(target), POLICY, key[::-1] if kind == "wrong key" else key, expires)
    if kind == "tampered":
        token = token.replace(f"se={expires}", f"se={expires + HOUR}")
    if kind == "rotated":
        broker.rotate_key(POLICY, entity=scope)
    if kind == "deleted":
        broker.delete_policy(POLICY, entity=scope)
    return token


def is_good(scope: str, kind: str) -> bool:
    """Say whether a token is good where it is put, without a look at how the broker decides."""
    return kind == "valid" or (kind == "narrow" and scope != "other")  # no policy is good for what is beside it


def may(rights: tuple[Right, ...], scope: str, kind: str, right: Right) -> bool:
    """Say what is right, in the same way."""
    return is_good(scope, kind) and scope != "other" and (right in rights or Right.MANAGE in rights)


class Client:
    """Tries everything that can be done with the target, on a connection and in a session of its own."""

    def __init__(self, caller: Caller, broker: EmbeddedBroker, token: str | None) -> None:
        self._caller = caller
        self._broker = broker
        self._token = token
        self._session = str(uuid.uuid4())
        self._message = build_message(encode_value_section("x"), properties=Properties(group_id=self._session))

    async def outcomes(self) -> dict[str, str | None]:
        """Return with which condition each operation is refused; None: it is not."""
        login = Login.of(self._broker.connection_string)
        owner = await Caller.connect(self._broker.endpoints["localhost"].port, login)
        assert isinstance(await owner.send(await owner.sender(TARGET), self._message), Accepted)
        await owner.close()
        calls = {
            "receive": self._receive,  # first: it gets the lock of the session, which the others need
            "renew": lambda: self._manage("renew-session-lock"),
            "get session state": lambda: self._manage("get-session-state"),
            "set session state": lambda: self._manage("set-session-state", **{"session-state": b"x"}),
            "settle": self._settle,
            "peek": lambda: self._manage("peek-message", **{"from-sequence-number": 1, "message-count": 1}),
            "list sessions": lambda: self._caller.manage(TARGET, "get-message-sessions", {}),
            "send": self._send,
            "schedule": self._schedule,
        }
        return {name: await refused(call) for name, call in calls.items()} | {
            "create queue": await asyncio.to_thread(self._create_queue)
        }

    async def _manage(self, operation: str, **body: object) -> None:
        await self._caller.manage(TARGET, operation, {"session-id": self._session, **body})

    async def _send(self) -> None:
        assert isinstance(await self._caller.send(await self._caller.sender(TARGET), self._message), Accepted)

    async def _schedule(self) -> None:
        later = {SCHEDULED_TIME: Timestamp(int(time.time() + HOUR) * 1000)}
        message = build_message(properties=Properties(group_id=self._session), message_annotations=later)
        entry = {"message-id": "1", "message": message, "session-id": self._session}
        done = await self._caller.manage(TARGET, "schedule-message", {"messages": [entry]})
        await self._caller.manage(
            TARGET, "cancel-scheduled-message", {"sequence-numbers": Array(0x81, list(done["sequence-numbers"]))}
        )

    async def _receive(self) -> None:
        link = await self._caller.receiver(TARGET, session=self._session)
        self._delivery = await self._caller.take(link)

    async def _settle(self) -> None:
        delivery = getattr(self, "_delivery", None)
        token = uuid.UUID(bytes_le=delivery.delivery_tag) if delivery is not None else uuid.uuid4()
        await self._manage("update-disposition", **{"lock-tokens": [token], "disposition-status": "completed"})

    def _create_queue(self) -> str | None:
        port = self._broker.endpoints["localhost"].port
        with closing(HTTPConnection("127.0.0.1", port, timeout=15)) as connection:
            headers = {} if self._token is None else {"Authorization": self._token}
            connection.request("PUT", f"/{TARGET}/{self._session}?api-version=2021-05", DESCRIPTION, headers)
            status = connection.getresponse().status
        assert status in {201, 401}
        return None if status == 201 else "amqp:unauthorized-access"


@pytest.mark.parametrize("rights", RIGHTS)
@pytest.mark.parametrize("scope", SCOPES)
def test_everything_is_granted_or_refused_as_it_should_be(broker: EmbeddedBroker, rights: str, scope: str) -> None:
    async def play() -> dict[tuple[str, str], str | None]:
        tried = [(kind, await outcomes_of(broker, rights, scope, kind)) for kind in TOKENS]
        return {(kind, operation): outcome for kind, found in tried for operation, outcome in found.items()}

    outcomes = asyncio.run(play())
    assert outcomes.keys() == set(itertools.product(TOKENS, OPERATIONS))
    granted = {case for case, outcome in outcomes.items() if outcome is None}
    should_be = {
        (kind, operation)
        for kind, (operation, right) in itertools.product(TOKENS, OPERATIONS.items())
        if may(RIGHTS[rights], scope, kind, right)
    }
    assert granted - should_be == set(), "wrong grants"
    assert should_be - granted == set(), "wrong refusals"
    assert set(outcomes.values()) <= {None, "amqp:unauthorized-access"}


async def outcomes_of(broker: EmbeddedBroker, rights: str, scope: str, kind: str) -> dict[str, str | None]:
    """Put a token of a policy that is there for this only, and try everything."""
    entity = SCOPES[scope]
    await asyncio.to_thread(broker.create_policy, POLICY, RIGHTS[rights], entity=entity)
    token = await asyncio.to_thread(the_token, broker, entity, kind)
    caller = await Caller.connect(broker.endpoints["localhost"].port)
    # A token for another entity is put for that one: it is good there, and must not be so here.
    code, _ = await caller.put_token(uri(OTHER if scope == "other" else TARGET), token)
    assert code == (202 if is_good(scope, kind) else 401), (kind, code)
    outcomes = await Client(caller, broker, token).outcomes()
    await caller.close()
    if kind != "deleted":
        await asyncio.to_thread(broker.delete_policy, POLICY, entity=entity)
    return outcomes


def test_who_has_put_no_token_may_do_nothing(broker: EmbeddedBroker) -> None:
    async def play() -> dict[str, str | None]:
        caller = await Caller.connect(broker.endpoints["localhost"].port)
        outcomes = await Client(caller, broker, None).outcomes()
        await caller.close()
        return outcomes

    outcomes = asyncio.run(play())
    assert outcomes.keys() == OPERATIONS.keys()
    assert None not in outcomes.values()


def test_the_matrix_is_as_large_as_was_promised() -> None:
    assert len(RIGHTS) * len(SCOPES) * len(TOKENS) * len(OPERATIONS) >= 360
