"""Who may see what of a namespace over HTTP."""

import asyncio
from http import HTTPStatus

import pytest

from pairbus.broker.access.policies import Policy, Right
from pairbus.broker.access.tokens import sign
from pairbus.broker.entities.settings import QueueSettings
from pairbus.broker.listen.server import NamespaceServer
from pairbus.broker.listen.web import Request, Response
from pairbus.broker.meter.watching import watch
from pairbus.broker.namespace.namespace import Namespace
from pairbus.broker.store.memory import MemoryStore

LISTENER = Policy("watcher", (Right.LISTEN,), "one", "other")
SENDER = Policy("sender", (Right.SEND,), "one", "other")


def token(policy: Policy, key: str = "one", expires: int = 60) -> str:
    return sign("sb://contoso/", policy.name, key, expires)


def ask(path: str, *, host: str = "127.0.0.1", token: str | None = None, closed: bool = False) -> Response:
    async def ask() -> Response:
        store = MemoryStore(lambda call: call())
        namespace = Namespace("contoso", store, clock=lambda: 0, tokens=lambda: b"")
        namespace.policies = (LISTENER, SENDER)
        namespace.queues.create("orders", QueueSettings(), lambda _refused: None)
        server = NamespaceServer(namespace, asyncio.get_running_loop())
        watch(server, host)
        if closed:
            store.close()
        return await server.routes(Request("GET", path, headers={"authorization": token} if token else {}))

    return asyncio.run(ask())


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.1.2.3"])
def test_metrics_are_open_on_this_machine(host: str) -> None:
    answer = ask("/$metrics", host=host)
    assert answer.status is HTTPStatus.OK
    assert b'pairbus_entity_messages{entity="orders",state="active"} 0.0' in answer.body


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "broker.example", ""])  # noqa: S104 (nothing listens)
def test_elsewhere_they_are_for_those_who_may_listen(host: str) -> None:
    for wrong in (None, token(SENDER), token(LISTENER, "a guess"), token(LISTENER, expires=0)):
        refused = ask("/$metrics", host=host, token=wrong)
        assert refused.status is HTTPStatus.UNAUTHORIZED
        assert refused.headers["www-authenticate"] == "SharedAccessSignature"
        assert b"orders" not in refused.body
    assert ask("/$metrics", host=host, token=token(LISTENER)).status is HTTPStatus.OK
    assert ask("/$health", host=host).body == b"alive\n"
    assert ask("/$ready", host=host).body == b"ready\n"


def test_a_store_that_cannot_be_read_is_not_ready_and_alive(caplog: pytest.LogCaptureFixture) -> None:
    """Strangers do not hear why: that may name files."""
    answer = ask("/$ready", closed=True)
    assert (answer.status, answer.body) == (
        HTTPStatus.SERVICE_UNAVAILABLE,
        b"The store cannot be read; the broker's log says why.\n",
    )
    assert "not ready: the store in memory is closed" in caplog.text
    assert ask("/$health", closed=True).status is HTTPStatus.OK
