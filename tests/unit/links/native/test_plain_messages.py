"""Plain messages, cut and not decoded, are what the general way makes of them (E1, E2)."""

# pyright: reportPrivateUsage=false

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from hypothesis import example, given
from hypothesis import strategies as st

from pairbus.amqp import Message, build_message
from pairbus.amqp.events import Delivery
from pairbus.amqp.message import encode_data_section, encode_value_section
from pairbus.amqp.sections import Header, Properties
from pairbus.amqp.types import Int, Symbol, Timestamp, UInt
from pairbus.core.envelope import PATH, SESSION_ID
from pairbus.core.routing import Deliver, route
from pairbus.links.native.fast import plain_messages as quick
from pairbus.links.native.fast.plain_messages import PLAIN, PlainReceived
from pairbus.messages.encoded_labels import read, relabelled

if TYPE_CHECKING:
    from pairbus.links.native.receiving import ReceivingLink

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STAMPS: dict[Any, Any] = {
    Symbol("x-opt-sequence-number"): 7,
    Symbol("x-opt-enqueued-time"): Timestamp(1_700_000_000_000),
    Symbol("x-opt-locked-until"): Timestamp(1_700_000_060_000),
}

texts = st.text(st.characters(codec="utf-8"), max_size=300)
values = st.one_of(
    st.none(), st.booleans(), texts, st.binary(max_size=300), st.floats(allow_nan=False), st.uuids(),
    st.integers(-(2**63), 2**63 - 1), st.integers(0, 255).map(UInt), st.integers(-5, 5).map(Int),
)  # fmt: skip
headers = st.builds(
    Header,
    durable=st.none() | st.booleans(),
    priority=st.none() | st.integers(0, 9),
    ttl=st.none() | st.integers(0, 2**32 - 1),
    delivery_count=st.integers(0, 9),
)
standards = st.builds(
    Properties,
    message_id=st.none() | texts,
    user_id=st.none() | st.binary(max_size=9),
    subject=st.none() | texts,
    content_type=st.none() | st.just(Symbol("text/plain")),
    group_id=st.none() | st.just("g"),
    reply_to_group_id=st.none() | st.just("@@@"),
)
bodies = st.one_of(
    st.lists(st.binary(max_size=300), max_size=3).map(lambda parts: b"".join(map(encode_data_section, parts))),
    values.map(encode_value_section),
)


def delivered(payload: bytes) -> Delivery:
    """Return a message as it comes."""
    return Delivery(1, b"", 0, settled=False, payload=payload)


def read_or_none(deliveries: Iterable[Delivery]) -> list[PlainReceived | None]:
    """Read messages; None stands for one that is not plain."""
    return quick.read_plain(cast("ReceivingLink", None), deliveries, lambda _link, _delivery: None)


@st.composite
def parked(draw: st.DrawFn) -> bytes:
    """Draw a message of a backlog queue, plain or not."""
    properties: dict[Any, Any] = draw(st.dictionaries(texts.filter(lambda name: not name.startswith("x-ms-")), values))
    entries = list(properties.items())
    if draw(st.integers(0, 9)) == 0:
        entries.append((SESSION_ID, "s"))
    where = 0 if draw(st.integers(0, 4)) else len(entries)  # as parking does, or as others do
    entries.insert(where, (PATH, draw(st.sampled_from(["orders", "a/b", "x" * 260]))))
    own = {Symbol("x-opt-own"): 1} if draw(st.integers(0, 9)) == 0 else {}
    return build_message(
        draw(bodies),
        header=draw(st.none() | headers),
        message_annotations=dict(draw(st.permutations([*STAMPS.items(), *own.items()]))),
        properties=draw(st.none() | standards),
        application_properties=dict(entries),
    )


@given(parked())
@example(build_message(message_annotations=STAMPS, properties=Properties(), application_properties={PATH: "orders"}))
@example(
    build_message(message_annotations=STAMPS, header=Header(), application_properties={PATH: "orders", "n" * 256: 1})
)
@example(build_message(message_annotations=STAMPS, application_properties={PATH: "orders", "n": "x-ms-sessionid"}))
@example(
    build_message(message_annotations={**STAMPS, Symbol("x-opt-message-state"): 1}, application_properties={PATH: "q"})
)
def test_what_is_cut_is_what_is_decoded_and_encoded_anew(payload: bytes) -> None:
    message = Message(payload)
    routed = route(read(message).label)
    (received,) = read_or_none([delivered(payload)])
    standard = message.properties()
    is_plain = (
        isinstance(routed, Deliver)
        and routed.label.session_id is None
        and (standard is None or standard.group_id is None)
        and "x-opt-own" not in message.message_annotations()
        and len(routed.destination) < 256
        and next(iter(message.application_properties())) == PATH
        and _section(message, 0x74).count(b"x-ms-") == 1
        and (not message.body or message.body[0][0] == 0x75)
    )
    assert (received is not None) == is_plain
    if received is None:
        return
    assert isinstance(routed, Deliver)
    assert received.sequence_number == 7
    assert received.locked_until == Timestamp(1_700_000_060_000).to_datetime()
    assert received.enqueued_at == read(message).enqueued_at
    assert received.routed == Deliver(routed.destination, PLAIN)
    assert received.label == read(message).label
    general, quick = Message(relabelled(message, routed.label, NOW)), Message(received.restored(PLAIN, NOW))
    assert quick.header() == general.header()
    assert quick.message_annotations() == general.message_annotations() == {}
    assert _section(quick, 0x73) == _section(general, 0x73)  # byte for byte
    assert [quick.data[start:end] for _, start, end in quick.body] == [
        message.data[start:end] for _, start, end in message.body
    ]
    assert _typed(quick) == _typed(general)
    assert received.restored(routed.label, NOW) == general.data


@given(parked(), st.data())
def test_cut_short_or_garbled_bytes_are_left_to_the_general_way(payload: bytes, data: st.DataObject) -> None:
    end = data.draw(st.integers(0, len(payload) - 1))
    read_or_none([delivered(payload[:end])])
    garbled = bytearray(payload)
    garbled[end] ^= data.draw(st.integers(1, 255))
    (received,) = read_or_none([delivered(bytes(garbled))])
    if received is not None:
        Message(received.restored(PLAIN, NOW))


def _section(message: Message, code: int) -> bytes:
    found = message._sections.get(code)
    return b"" if found is None else message.data[found[0] : found[2]]


def _typed(message: Message) -> dict[Any, tuple[type, Any]]:
    return {name: (type(value), value) for name, value in message.application_properties().items()}


@given(st.lists(parked(), max_size=6))
def test_a_burst_is_read_as_each_of_its_messages_is(payloads: list[bytes]) -> None:
    together = read_or_none(map(delivered, payloads))
    apart = [received for payload in payloads for received in read_or_none([delivered(payload)])]
    assert [each and each.restored(PLAIN, NOW) for each in together] == [
        each and each.restored(PLAIN, NOW) for each in apart
    ]


def test_messages_of_the_sdk_with_all_their_fields_are_plain_unless_they_have_a_group() -> None:
    def parked_by_sdk(**properties: Any) -> bytes:  # noqa: ANN401 (handed on)
        made = ServiceBusMessage(b"body", application_properties={PATH: "orders"}, **properties)
        encoded = bytearray()
        encode_payload(encoded, PyamqpTransport.to_outgoing_amqp_message(made.raw_amqp_message))
        return build_message(message_annotations=STAMPS) + bytes(encoded)

    payloads = [
        parked_by_sdk(message_id=text, correlation_id=other, **more)
        for text in ("a", "b", "long" * 30)
        for other in (None, "c")
        for more in ({}, {"session_id": "s"}, {"subject": "s"})
    ]
    read = read_or_none(map(delivered, payloads))
    for payload, received in zip(payloads, read, strict=True):
        standard = Message(payload).properties()
        assert standard is not None
        assert (received is None) == (standard.group_id is not None)
        if received is not None:
            assert Message(received.restored(PLAIN, NOW)).properties() == standard


@pytest.mark.parametrize("wrong", [0, 1, 3, 4, 255])
def test_application_properties_that_are_not_as_many_as_they_say_are_left_to_the_general_way(wrong: int) -> None:
    payload = build_message(message_annotations=STAMPS, application_properties={PATH: "orders"})
    begin = payload.index(b"\x00\x53\x74\xc1") + 4
    assert payload[begin + 1] == 2
    garbled = payload[: begin + 1] + bytes((wrong,)) + payload[begin + 2 :]
    assert read_or_none([delivered(garbled)]) == [None]


def test_what_is_remembered_of_layouts_is_bounded() -> None:
    for priority in range(256):
        for count in range(10):
            header = Header(priority=priority, delivery_count=count)
            payload = build_message(message_annotations=STAMPS, header=header, application_properties={PATH: "q"})
            assert read_or_none([delivered(payload)]) != [None]
    assert len(quick._bare_at) <= quick._KEPT
    assert len(quick._layouts) <= quick._KEPT
