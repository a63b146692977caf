"""Two of our connections with a link between them."""

import random
from collections.abc import Iterable
from dataclasses import dataclass

from pairbus.amqp.composites import encode_composite
from pairbus.amqp.connection import Connection, Side
from pairbus.amqp.events import (
    DeliveriesReceived,
    Delivery,
    DispositionReceived,
    Event,
    LinkAttached,
    LinkRequested,
)
from pairbus.amqp.frames import FrameSplitter, frame
from pairbus.amqp.loopback import Loopback
from pairbus.amqp.options import ConnectionOptions
from pairbus.amqp.performatives import (
    SETTLE_SECOND,
    Attach,
    Begin,
    Detach,
    Disposition,
    Flow,
    Open,
    Source,
    Target,
    Transfer,
)
from pairbus.amqp.receiver import ReceiverLink
from pairbus.amqp.sender import SenderLink


@dataclass
class Pair:
    """A client's two links and the server's ends of them."""

    loop: Loopback
    sender: SenderLink
    receiver: ReceiverLink
    incoming: ReceiverLink
    outgoing: SenderLink


def options(name: str, **more: object) -> ConnectionOptions:
    return ConnectionOptions(name, trusted=True, **more)  # type: ignore[arg-type]


def attach(
    client: ConnectionOptions | None = None, server: ConnectionOptions | None = None, seed: int | None = None
) -> Pair:
    chance = random.Random(seed)

    def cut(data: bytes) -> Iterable[bytes]:
        while data and seed is not None:
            size = chance.choice((1, 3, 20, 600, 100_000))
            yield data[:size]
            data = data[size:]
        yield data

    loop = Loopback(
        Connection(Side.CLIENT, client or options("c")), Connection(Side.SERVER, server or options("s")), cut
    )
    loop.exchange()
    session = loop.client.begin()
    sender = session.attach_sender("in", Target("q"))
    receiver = session.attach_receiver("out", Source("q"), rcv_settle_mode=SETTLE_SECOND)
    links = [event.link for event in loop.take()[1] if isinstance(event, LinkRequested)]
    for link in links:
        link.accept()
    assert [type(event) for event in loop.take()[0]] == [LinkAttached, LinkAttached]
    incoming, outgoing = links
    assert isinstance(incoming, ReceiverLink)
    assert isinstance(outgoing, SenderLink)
    return Pair(loop, sender, receiver, incoming, outgoing)


def deliveries(events: list[Event]) -> list[Delivery]:
    return [each for event in events if isinstance(event, DeliveriesReceived) for each in event.deliveries]


def dispositions(events: list[Event]) -> list[DispositionReceived]:
    return [event for event in events if isinstance(event, DispositionReceived)]


def frames_of(data: bytes) -> list[bytes]:
    splitter = FrameSplitter(1 << 30)
    splitter.feed(data)
    found: list[bytes] = []
    while (extent := splitter.next_frame()) is not None:
        found.append(data[extent[2] : extent[3]])
    return found


def frames_with(*performatives: Open | Begin | Attach | Flow | Transfer | Disposition | Detach) -> bytes:
    return b"".join(frame(0, encode_composite(each)) for each in performatives)
