"""A small broker made with Qpid Proton: queues in memory, in a thread of its own, settled by either mode."""

# pyright: reportUnknownMemberType=false

import threading
from collections import deque
from importlib import import_module
from types import TracebackType
from typing import Any, Self

from tests.support.ports import free_port

from pairbus.links.native.endpoint import Endpoint

try:
    proton: Any = import_module("proton")
    reactor: Any = import_module("proton.reactor")
    _Handler: Any = import_module("proton.handlers").MessagingHandler
except ImportError:
    proton, reactor, _Handler = None, None, object

QUEUES = ("orders", "bills")


def missing_proton() -> str | None:
    """Tell why there is no peer, if so."""
    return "python-qpid-proton is not installed: make interop" if proton is None else None


class _Broker(_Handler):
    """Takes messages into queues, and gives them to receivers as they have credit."""

    def __init__(self, port: int, queues: dict[str, deque[Any]]) -> None:
        super().__init__(prefetch=100, auto_accept=True, auto_settle=False)
        self._port = port
        self._queues = queues
        self._senders: dict[Any, str] = {}
        self._given: dict[Any, tuple[str, Any]] = {}
        self.ready = threading.Event()
        self.acceptor: Any = None
        self.container: Any = None
        self.connections: list[Any] = []

    def on_start(self, event: Any) -> None:
        self.container = event.container
        self.acceptor = event.container.listen(f"127.0.0.1:{self._port}")
        self.ready.set()

    def on_stopping(self, event: Any) -> None:
        del event
        self.acceptor.close()
        for connection in self.connections:
            connection.close()
        self.container.stop()

    def on_connection_opening(self, event: Any) -> None:
        self.connections.append(event.connection)

    def on_link_opening(self, event: Any) -> None:
        link = event.link
        asked = link.remote_source.address if link.is_sender else link.remote_target.address
        name = (asked or "").rpartition("/")[2]
        if name not in self._queues:
            link.source.type = link.target.type = proton.Terminus.UNSPECIFIED
            return
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        link.rcv_settle_mode = link.remote_rcv_settle_mode
        if link.is_sender:
            self._senders[link] = name

    def on_link_opened(self, event: Any) -> None:
        link = event.link
        if link.source.type == link.target.type == proton.Terminus.UNSPECIFIED:
            link.condition = proton.Condition("amqp:not-found", "there is no such queue")
            link.close()

    def on_message(self, event: Any) -> None:
        name = event.receiver.target.address.rpartition("/")[2]
        self._queues[name].append(event.message)
        self._serve()

    def on_sendable(self, event: Any) -> None:
        del event
        self._serve()

    def _serve(self) -> None:
        for link, name in self._senders.items():
            while link.credit > 0 and self._queues[name]:
                message = self._queues[name].popleft()
                self._given[link.send(message)] = name, message

    def on_accepted(self, event: Any) -> None:
        self._settle(event.delivery)

    def on_rejected(self, event: Any) -> None:
        self._settle(event.delivery)

    def on_released(self, event: Any) -> None:  # modified, too
        name, message = self._settle(event.delivery)
        self._queues[name].append(message)
        self._serve()

    def _settle(self, delivery: Any) -> tuple[str, Any]:
        delivery.update(delivery.remote_state)
        delivery.settle()
        return self._given.pop(delivery)

    def on_link_closed(self, event: Any) -> None:
        self._senders.pop(event.link, None)

    def on_disconnected(self, event: Any) -> None:
        self._senders = {link: name for link, name in self._senders.items() if link.connection != event.connection}


class Peer:
    """The broker, running; ``restart`` ends its connections and takes new ones, with the same messages."""

    def __init__(self) -> None:
        self.port = free_port()
        self._queues: dict[str, deque[Any]] = {name: deque() for name in QUEUES}

    def __enter__(self) -> Self:
        self._start()
        return self

    def _start(self) -> None:
        self._broker = _Broker(self.port, self._queues)
        self._container = reactor.Container(self._broker)
        self._injector = reactor.EventInjector()
        self._container.selectable(self._injector)
        self._thread = threading.Thread(target=self._container.run, daemon=True)
        self._thread.start()
        assert self._broker.ready.wait(10)

    def _stop(self) -> None:
        self._injector.trigger(reactor.ApplicationEvent("stopping"))
        self._thread.join(10)
        assert not self._thread.is_alive()

    def restart(self) -> None:
        """End all connections, and begin again."""
        self._stop()
        self._start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    @property
    def endpoint(self) -> Endpoint:
        """Where it is."""
        return Endpoint("localhost", "127.0.0.1", self.port)
