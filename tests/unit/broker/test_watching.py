"""Who may see what of a namespace over HTTP."""

import asyncio
from collections.abc import Callable
from http import HTTPStatus

import pytest

from pairbus.broker.entities.settings import QueueSettings
from pairbus.broker.namespace import Namespace
from pairbus.broker.server import NamespaceServer
from pairbus.broker.store.memory import MemoryStore
from pairbus.broker.watching import watch
from pairbus.broker.web import Request, Response

TOKEN = {"authorization": "SharedAccessSignature of Manage"}


def ask(
    path: str, *, host: str = "127.0.0.1", authorize: Callable[[Request], bool] | None = None, closed: bool = False
) -> Response:
    async def ask() -> Response:
        loop = asyncio.get_running_loop()
        store = MemoryStore(lambda call: call())
        namespace = Namespace("contoso", store, clock=lambda: 0, tokens=lambda: b"")
        namespace.create_queue("orders", QueueSettings(), lambda _refused: None)
        server = NamespaceServer(namespace, loop)
        watch(server, host, authorize)
        if closed:
            store.close()
        return await server.routes(Request("GET", path, headers=TOKEN))

    return asyncio.run(ask())


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.1.2.3"])
def test_metrics_are_open_on_this_machine(host: str) -> None:
    answer = ask("/$metrics", host=host)
    assert answer.status is HTTPStatus.OK
    assert b'pairbus_entity_messages{entity="orders",state="active"} 0.0' in answer.body


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "broker.example", ""])  # noqa: S104 (nothing listens)
def test_elsewhere_they_are_for_those_who_are_let_in(host: str) -> None:
    refused = ask("/$metrics", host=host)
    assert refused.status is HTTPStatus.UNAUTHORIZED
    assert refused.headers["www-authenticate"] == "SharedAccessSignature"
    assert b"orders" not in refused.body
    assert ask("/$metrics", host=host, authorize=lambda _request: False).status is HTTPStatus.UNAUTHORIZED
    assert ask("/$metrics", host=host, authorize=lambda request: request.headers == TOKEN).status is HTTPStatus.OK
    assert ask("/$health", host=host).body == b"alive\n"
    assert ask("/$ready", host=host).body == b"ready\n"


def test_a_store_that_cannot_be_read_is_not_ready_and_alive() -> None:
    answer = ask("/$ready", closed=True)
    assert (answer.status, answer.body) == (
        HTTPStatus.SERVICE_UNAVAILABLE,
        b"The store cannot be read: the store in memory is closed\n",
    )
    assert ask("/$health", closed=True).status is HTTPStatus.OK
