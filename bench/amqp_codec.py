"""What the AMQP layer costs per operation, beside the codec of the official SDK in the same run.

Run: ``.venv/bin/python -m bench.amqp_codec``. Each figure is the median of several rounds, interleaved, of one
core's time in microseconds.
"""

import argparse
import statistics
import time
from collections.abc import Callable

from azure.servicebus._pyamqp import _decode, _encode, message, outcomes, performatives

from pairbus.amqp.connection import Connection, Side
from pairbus.amqp.events import DeliveriesReceived, DispositionReceived, LinkRequested
from pairbus.amqp.loopback import Loopback
from pairbus.amqp.message import Message, build_message, encode_data_section
from pairbus.amqp.options import ConnectionOptions
from pairbus.amqp.performatives import ACCEPTED, SETTLE_UNSETTLED, Source, Target
from pairbus.amqp.receiver import ReceiverLink
from pairbus.amqp.sasl import SaslClient, SaslServer
from pairbus.amqp.sections import Header, Properties
from pairbus.amqp.sender import SenderLink
from pairbus.amqp.types import Symbol, Timestamp

BODY = b"x" * 1024
CREDIT = 1_000_000
TAG = bytes(range(16))
SEQUENCE_NUMBER = Symbol("x-opt-sequence-number")
ENQUEUED_TIME = Symbol("x-opt-enqueued-time")
LOCKED_UNTIL = Symbol("x-opt-locked-until")
ACCEPTED_ONE = performatives.DispositionFrame(
    role=True, first=1, last=1, settled=True, state=outcomes.Accepted(), batchable=None
)


class Pair:
    """A client and a server of ours with one link each way."""

    def __init__(self) -> None:
        self.client = Connection(
            Side.CLIENT, ConnectionOptions("client", incoming_window=2 * CREDIT), sasl=SaslClient()
        )
        self.server = Connection(Side.SERVER, ConnectionOptions("server", trusted=True), sasl=SaslServer())
        self.loop = Loopback(self.client, self.server)
        self.loop.exchange()
        session = self.client.begin()
        self.sender = session.attach_sender("in", Target("q"), snd_settle_mode=SETTLE_UNSETTLED)
        self.receiver = session.attach_receiver("out", Source("q"), snd_settle_mode=SETTLE_UNSETTLED)
        _, told = self.loop.take()
        links = [event.link for event in told if isinstance(event, LinkRequested)]
        for link in links:
            link.accept()
        incoming, outgoing = links
        assert isinstance(incoming, ReceiverLink)
        assert isinstance(outgoing, SenderLink)
        self.incoming, self.outgoing = incoming, outgoing
        self.refill()

    def refill(self) -> None:
        """Grant credit both ways."""
        self.incoming.grant(CREDIT)
        self.loop.exchange()
        self.receiver.grant(CREDIT)
        self.loop.take()


def sdk_message() -> message.Message:
    """Make a message as the SDK sends it."""
    return message.Message(
        header=message.Header(durable=True, priority=None, ttl=None, first_acquirer=None, delivery_count=None),
        message_annotations={b"x-opt-partition-key": "key"},
        properties=message.Properties(message_id="0123456789abcdef", content_type="text/plain", subject="s"),
        application_properties={"kind": "order", "number": 7},
        data=[BODY],
    )


def _time(operation: Callable[[], int]) -> float:
    begin = time.process_time()
    count = operation()
    return (time.process_time() - begin) / count * 1e6


class Benchmarks:
    """The operations, each returning how often it was done."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.pair = Pair()
        encoded = bytearray()
        _encode.encode_payload(encoded, sdk_message())
        self.payload = bytes(encoded)
        self.bare = Message(self.payload).bare

    def prepare(self) -> None:
        """Encode with the SDK what the SDK would send."""
        frames: list[bytes] = []
        for number in range(self.count):
            tag = number.to_bytes(4, "big")
            header, body = _encode.encode_frame(
                performatives.TransferFrame(0, number, tag, 0, settled=False, more=False, payload=self.payload)
            )
            frames.append(header + b"\0\0" + (body or b""))
        stream = b"".join(frames)
        self.chunks = [stream[at : at + 65536] for at in range(0, len(stream), 65536)]
        self.one_frame = memoryview(frames[-1])[8:]

    def receive(self) -> int:
        """Receive single transfers of the SDK's making, and accept them."""
        server, told = self.pair.server, 0
        for chunk in self.chunks:
            for event in server.receive_data(chunk, 0.0):
                if isinstance(event, DeliveriesReceived):
                    for delivery in event.deliveries:
                        event.link.settle(delivery, ACCEPTED)
                    told += len(event.deliveries)
            server.data_to_send()
        assert told == self.count
        return told

    def sdk_receive(self) -> int:
        """Decode a transfer and its payload with the SDK, and encode the disposition."""
        for _ in range(self.count // 10):
            _code, fields = _decode.decode_frame(self.one_frame)
            bytes(fields[11])
            _encode.encode_frame(
                performatives.DispositionFrame(
                    role=True, first=1, last=1, settled=True, state=outcomes.Accepted(), batchable=None
                )
            )
        return self.count // 10

    def send(self) -> int:
        """Encode transfers."""
        outgoing, server, payload = self.pair.outgoing, self.pair.server, self.payload
        sent: list[bytes] = []
        for number in range(self.count):
            outgoing.send(payload, TAG)
            if number % 100 == 99:
                sent.append(server.data_to_send())
        self.sent = sent
        return self.count

    def sdk_send(self) -> int:
        """Encode transfers with the SDK."""
        for number in range(self.count // 10):
            _encode.encode_frame(
                performatives.TransferFrame(0, number, TAG, 0, settled=False, more=False, payload=self.payload)
            )
        return self.count // 10

    def settle_prepare(self) -> None:
        """Let the client answer each delivery by itself, as the SDK does."""
        answers: list[bytes] = []
        for chunk in self.sent:
            for event in self.pair.client.receive_data(chunk, 0.0):
                if isinstance(event, DeliveriesReceived):
                    for delivery in event.deliveries:
                        event.link.settle(delivery, ACCEPTED, settled=False)
                        answers.append(self.pair.client.data_to_send())
        self.answers = [b"".join(answers[at : at + 100]) for at in range(0, len(answers), 100)]

    def settle(self) -> int:
        """Take a disposition per delivery and answer it, settled."""
        told = 0
        server = self.pair.server
        for chunk in self.answers:
            for event in server.receive_data(chunk, 0.0):
                if isinstance(event, DispositionReceived):
                    for delivery in event.deliveries:
                        delivery.link.settle(delivery, event.state)
                        told += 1
            server.data_to_send()
        assert told == self.count
        return told

    def sdk_settle(self) -> int:
        """Encode a disposition and decode it again with the SDK."""
        for _ in range(self.count // 10):
            _header, body = _encode.encode_frame(
                performatives.DispositionFrame(
                    role=True, first=1, last=1, settled=True, state=outcomes.Accepted(), batchable=None
                )
            )
            _decode.decode_frame(memoryview(body or b""))
        return self.count // 10

    def scan(self) -> int:
        """Find the sections of a message."""
        for _ in range(self.count):
            Message(self.payload)
        return self.count

    def sections(self) -> int:
        """Find the sections and decode header, annotations, properties and application properties."""
        for _ in range(self.count // 4):
            found = Message(self.payload)
            found.header()
            found.message_annotations()
            found.properties()
            found.application_properties()
        return self.count // 4

    def sdk_sections(self) -> int:
        """Decode a message with the SDK."""
        for _ in range(self.count // 4):
            _decode.decode_payload(memoryview(self.payload))
        return self.count // 4

    def rewrite(self) -> int:
        """Put header and annotations before a bare message that was stored."""
        for number in range(self.count):
            build_message(
                self.bare,
                header=Header(durable=True, ttl=60_000, delivery_count=0),
                message_annotations={
                    SEQUENCE_NUMBER: number,
                    ENQUEUED_TIME: Timestamp(1_700_000_000_000),
                    LOCKED_UNTIL: Timestamp(1_700_000_060_000),
                },
            )
        return self.count

    def build(self) -> int:
        """Build a message with properties."""
        for _ in range(self.count // 4):
            build_message(
                encode_data_section(BODY),
                properties=Properties(message_id="0123456789abcdef"),
                application_properties={"kind": "order"},
            )
        return self.count // 4

    def sdk_build(self) -> int:
        """Encode a message with the SDK."""
        built = sdk_message()
        for _ in range(self.count // 10):
            _encode.encode_payload(bytearray(), built)
        return self.count // 10


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    bench = Benchmarks(arguments.count)
    bench.prepare()
    rows: list[tuple[str, Callable[[], int], Callable[[], int] | None]] = [
        ("receive a transfer, accept it", bench.receive, bench.sdk_receive),
        ("send a transfer", bench.send, bench.sdk_send),
        ("take a disposition, answer it", bench.settle, bench.sdk_settle),
        ("find a message's sections", bench.scan, None),
        ("find and decode its four sections", bench.sections, bench.sdk_sections),
        ("rewrite header and annotations", bench.rewrite, None),
        ("build a message", bench.build, bench.sdk_build),
    ]
    ours: dict[str, list[float]] = {name: [] for name, _, _ in rows}
    theirs: dict[str, list[float]] = {name: [] for name, _, _ in rows}
    for _ in range(arguments.rounds):
        bench.pair.refill()
        for name, operation, other in rows:
            if operation == bench.settle:
                bench.settle_prepare()
            ours[name].append(_time(operation))
            if other is not None:
                theirs[name].append(_time(other))
    print(f"{'microseconds each':38}{'ours':>8}{'SDK':>8}{'ratio':>8}")
    for name, _, _ in rows:
        mine = statistics.median(ours[name])
        if theirs[name]:
            other_time = statistics.median(theirs[name])
            print(f"{name:38}{mine:8.2f}{other_time:8.2f}{other_time / mine:7.1f}x")
        else:
            print(f"{name:38}{mine:8.2f}")


if __name__ == "__main__":
    main()
