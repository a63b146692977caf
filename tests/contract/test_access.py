"""The access matrix: rights, scopes and tokens, and for each all that can be done. No wrong grant, no wrong refusal.

Over real sockets, with a client of our own that is fast; what the SDK makes of refusals is in ``test_access_sdk``.
"""

import asyncio
import itertools
import time
import uuid
from collections.abc import Iterator
from typing import Final

import pytest

from pairbus.amqp import build_message
from pairbus.amqp.message import encode_value_section
from pairbus.amqp.performatives import Accepted
from pairbus.amqp.sections import Properties
from pairbus.amqp.types import Array, Timestamp
from pairbus.broker.auth.policies import Right
from pairbus.broker.auth.tokens import sign
from pairbus.broker.entities.message import SCHEDULED_TIME
from pairbus.broker.web import Request
from pairbus.testing import EmbeddedBroker, QueueSettings
from support.caller import Caller, refused
from support.client import Login

TARGET: Final = "shop/Orders"
OTHER: Final = "shop/bills"
PARENT: Final = "shop"
POLICY: Final = "app"
HOUR: Final = 3600

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


def may(rights: tuple[Right, ...], scope: str | None, kind: str, right: Right) -> bool:
    """Say what is right, without a look at how the broker decides."""
    return kind in {"valid", "narrow"} and scope != OTHER and (right in rights or Right.MANAGE in rights)


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
        return {name: await refused(call) for name, call in calls.items()} | {"create queue": self._create_queue()}

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
        (server,) = self._broker._here.broker._servers.values()  # pyright: ignore[reportPrivateUsage]
        headers = {} if self._token is None else {"authorization": self._token}
        request = Request("PUT", f"/{TARGET}", headers=headers)
        judged = server.namespace.access.authorize(request, TARGET, Right.MANAGE, server.namespace.access_clock())
        return None if judged is None else judged.reason


@pytest.mark.parametrize(
    ("rights", "scope", "kind"),
    [
        each
        for each in itertools.product(RIGHTS, SCOPES, TOKENS)
        if each[2] != "narrow" or each[1] in {"namespace", "parent"}  # elsewhere it is the valid one
    ],
)
def test_everything_is_granted_or_refused_as_it_should_be(
    broker: EmbeddedBroker, rights: str, scope: str, kind: str
) -> None:
    entity = SCOPES[scope]
    broker.create_policy(POLICY, RIGHTS[rights], entity=entity)
    try:
        token = the_token(broker, entity, kind)

        async def play() -> dict[str, str | None]:
            caller = await Caller.connect(broker.endpoints["localhost"].port)
            # A token for another entity is put for that one: it is good there, and must not be so here.
            code, _ = await caller.put_token(uri(OTHER if scope == "other" else TARGET), token)
            assert code == (202 if kind in {"valid", "narrow"} else 401)
            outcomes = await Client(caller, broker, token).outcomes()
            await caller.close()
            return outcomes

        outcomes = asyncio.run(play())
    finally:
        if kind != "deleted":
            broker.delete_policy(POLICY, entity=entity)
    assert outcomes.keys() == OPERATIONS.keys()
    for operation, right in OPERATIONS.items():
        expected = may(RIGHTS[rights], entity, kind, right)
        outcome = outcomes[operation]
        assert (outcome is None) is expected, (operation, outcome)
        if outcome is not None and operation != "create queue":
            assert outcome == "amqp:unauthorized-access"


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
    combinations = len(RIGHTS) * (len(SCOPES) * (len(TOKENS) - 1) + 2) + 1
    assert combinations * len(OPERATIONS) >= 360
