"""Two connections, wired to each other without a network: for tests, ours and those of whoever builds on this."""

from collections.abc import Callable, Iterable

from pairbus.amqp.connection import Connection
from pairbus.amqp.events import Event


def uncut(data: bytes) -> Iterable[bytes]:
    """Deliver what was written in one piece."""
    return (data,)


class Loopback:
    """Carries the bytes of ``client`` and ``server`` to each other; ``cut`` says in which pieces they arrive.

    ``client_events`` and ``server_events`` gather what was told; ``now`` is the time that both are told.
    """

    def __init__(self, client: Connection, server: Connection, cut: Callable[[bytes], Iterable[bytes]] = uncut) -> None:
        self.client = client
        self.server = server
        self.now = 0.0
        self.client_events: list[Event] = []
        self.server_events: list[Event] = []
        self._cut = cut

    def exchange(self) -> None:
        """Carry bytes until neither has anything to say."""
        while self._carry(self.client, self.server, self.server_events) + self._carry(
            self.server, self.client, self.client_events
        ):
            pass

    def _carry(self, source: Connection, target: Connection, events: list[Event]) -> int:
        data = source.data_to_send()
        for piece in self._cut(data):
            events.extend(target.receive_data(piece, self.now))
        return len(data)

    def take(self) -> tuple[list[Event], list[Event]]:
        """Exchange, and return what the client and the server were told since the last time."""
        self.exchange()
        told = self.client_events, self.server_events
        self.client_events, self.server_events = [], []
        return told
