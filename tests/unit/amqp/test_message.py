"""Messages: found sections, verbatim carriage, rewriting, batches, and the SDK's messages both ways."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from azure.servicebus._pyamqp import message as sdk
from azure.servicebus._pyamqp._decode import decode_payload
from azure.servicebus._pyamqp._encode import encode_payload
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pairbus.amqp.composites import decode_one, encode_composite
from pairbus.amqp.conditions import DECODE_ERROR, AmqpError
from pairbus.amqp.decoder import decode
from pairbus.amqp.encoder import encode, encode_described, encode_map
from pairbus.amqp.fast.hotpath import read_map, read_properties
from pairbus.amqp.message import (
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    Message,
    build_batch,
    build_message,
    encode_data_section,
    encode_map_section,
    encode_value_section,
    split_batch,
)
from pairbus.amqp.performatives import Map
from pairbus.amqp.sections import Header, Properties
from pairbus.amqp.types import Int, Symbol, Timestamp, UInt, ULong

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a machine may be busy

TEXT = st.text("abc \N{LATIN SMALL LETTER E WITH ACUTE}", max_size=20)
OPTIONAL_TEXT = st.none() | TEXT
SYMBOL = st.text("abc-:.", min_size=1, max_size=10).map(Symbol)
TIMES = st.just(Timestamp(5))
VALUES = st.one_of(TEXT, st.integers(-(1 << 63), (1 << 63) - 1), st.uuids(), st.booleans(), st.binary(max_size=20),
                   st.integers(0, 200).map(UInt), st.none(), st.floats(allow_nan=False), TIMES)  # fmt: skip
ANNOTATIONS = st.dictionaries(SYMBOL, VALUES, max_size=5)
HEADERS = st.builds(
    Header,
    st.none() | st.booleans(),
    st.none() | st.integers(0, 255),
    st.none() | st.integers(0, 0xFFFFFFFF),
    st.none() | st.booleans(),
    st.none() | st.integers(0, 0xFFFFFFFF),
)
IDS = st.none() | TEXT | st.uuids() | st.integers(0, 1 << 40).map(ULong) | st.binary(max_size=10)
PROPERTIES_OF_MESSAGES = st.builds(
    Properties, IDS, st.none() | st.binary(max_size=10), OPTIONAL_TEXT, OPTIONAL_TEXT, OPTIONAL_TEXT, IDS,
    st.none() | SYMBOL, st.none() | SYMBOL, st.none() | st.integers(0, 1 << 50).map(Timestamp), st.none(),
    OPTIONAL_TEXT, st.none() | st.integers(0, 0xFFFFFFFF), OPTIONAL_TEXT,
)  # fmt: skip
BODIES = st.one_of(
    st.lists(st.binary(max_size=300), min_size=1, max_size=3).map(
        lambda parts: b"".join(map(encode_data_section, parts))
    ),
    VALUES.map(encode_value_section),
    st.lists(st.lists(VALUES, max_size=3), min_size=1, max_size=3).map(
        lambda parts: b"".join(encode_described(ULong(SEQUENCE), encode(part)) for part in parts)
    ),
    st.just(b""),
)


@given(HEADERS, ANNOTATIONS, ANNOTATIONS, PROPERTIES_OF_MESSAGES, st.dictionaries(TEXT, VALUES, max_size=4), BODIES)
@unhurried
def test_every_section_is_found_and_decoded(  # noqa: PLR0917
    header: Header,
    delivery: Map,
    annotations: Map,
    properties: Properties,
    application: Map,
    body: bytes,
) -> None:
    footer = encode_map_section(FOOTER, {Symbol("f"): 1})
    data = build_message(
        body + footer,
        header=header,
        message_annotations=annotations,
        properties=properties,
        application_properties=application,
    )
    data += encode_map_section(DELIVERY_ANNOTATIONS, delivery)  # last, as the SDK has it
    message = Message(data)
    assert message.header() == message.header() == header
    assert message.delivery_annotations() == delivery
    assert message.message_annotations() == annotations
    assert message.properties() == properties
    assert message.application_properties() == application
    assert message.footer() == {"f": 1}
    assert b"".join(data[start - 3 : end] for _code, start, end in message.body) == body
    assert message.bare == build_message(body + footer, properties=properties, application_properties=application)


@given(HEADERS, ANNOTATIONS, PROPERTIES_OF_MESSAGES, BODIES, HEADERS | st.none(), ANNOTATIONS)
@unhurried
def test_rewriting_header_and_annotations_carries_every_other_byte(  # noqa: PLR0917
    header: Header,
    annotations: Map,
    properties: Properties,
    body: bytes,
    new: Header | None,
    changed: Map,
) -> None:
    data = build_message(body, header=header, message_annotations=annotations, properties=properties)
    message = Message(data)
    assert message.rewritten() == data
    result = message.rewritten(header=new, message_annotations=changed)
    assert result.endswith(message.bare)
    again = Message(result)
    assert again.header() == new
    assert again.message_annotations() == changed
    assert again.bare == message.bare
    assert again.rewritten(header=header, message_annotations=annotations) == data


@given(PROPERTIES_OF_MESSAGES, PROPERTIES_OF_MESSAGES | st.none(), st.dictionaries(TEXT, VALUES, max_size=4), BODIES)
@unhurried
def test_rewriting_properties_carries_body_and_annotations(
    old: Properties,
    new: Properties | None,
    application: Map,
    body: bytes,
) -> None:
    data = build_message(
        body, header=Header(durable=True), message_annotations={Symbol("a"): 1}, properties=old,
        application_properties={"old": 1},
    )  # fmt: skip
    expected = build_message(
        body, header=Header(durable=True), message_annotations={Symbol("a"): 1}, properties=new,
        application_properties=application,
    )  # fmt: skip
    assert Message(data).rewritten(properties=new, application_properties=application) == expected
    only = Message(data).rewritten(application_properties=application)
    assert Message(only).properties() == old


def test_types_of_annotations_survive_a_rewrite() -> None:
    annotations = {Symbol("i"): Int(1), Symbol("u"): UInt(1), Symbol("t"): Timestamp(1), Symbol("l"): 1}
    data = build_message(encode_data_section(b""), message_annotations=annotations)
    message = Message(data)
    assert message.rewritten(message_annotations=message.message_annotations()) == data


def test_sections_with_descriptors_spelled_out_are_found() -> None:
    data = encode_described(Symbol("amqp:properties:list"), encode(["id"]))
    data += b"\x00\x80" + (0x75).to_bytes(8) + encode(b"body")
    message = Message(data)
    properties = message.properties()
    assert properties is not None
    assert properties.message_id == "id"
    assert message.data_sections() == [b"body"]
    assert Message(message.rewritten(properties=None)).data_sections() == [b"body"]


@pytest.mark.parametrize(
    ("octets", "why"),
    [
        ("40", "not described"),
        ("00", "cut after the descriptor's mark"),
        ("00 53 70", "no value"),
        ("00 53 70 c1 01 00", "a header that is a map"),
        ("00 53 75 45", "data that is a list"),
        ("00 53 79 45", "an unknown section"),
        ("00 a3 01 78 45", "an unknown section with a name"),
        ("00 45 45", "a descriptor that is a list"),
        ("00 53 70 45 00 53 70 45", "two headers"),
        ("00 53 75 a0 00 00 53 77 40", "data and a value"),
        ("00 53 77 40 00 53 77 40", "two values"),
        ("00 53 75 a0 05 01", "data longer than the message"),
        ("00 53 75 b0 00 00 00 05 01", "wide data longer than the message"),
        ("00 53 77 a2 00", "a value of no type"),
    ],
)
def test_a_malformed_message_is_a_decode_error(octets: str, why: str) -> None:
    with pytest.raises(AmqpError) as caught:
        Message(bytes.fromhex(octets))
    assert caught.value.condition == DECODE_ERROR, why


def test_a_body_of_too_many_sections_is_a_decode_error() -> None:
    with pytest.raises(AmqpError, match="body sections"):
        Message(b"\x00\x53\x75\xa0\x00" * 65_537)


@given(st.binary(max_size=100) | st.binary(max_size=60).map(lambda tail: b"\x00\x53\x72\xc1" + tail))
@unhurried
def test_random_bytes_are_a_message_or_a_decode_error(data: bytes) -> None:
    try:
        message = Message(data)
        message.header()
        message.properties()
        message.message_annotations()
        message.body_values()
        message.rewritten(header=Header(durable=True), properties=None)
    except AmqpError:
        pass


@given(PROPERTIES_OF_MESSAGES, st.data())
@unhurried
def test_the_short_cut_for_properties_agrees_with_the_table(properties: Properties, draw: st.DataObject) -> None:
    data = _damaged(encode_composite(properties), draw)
    assert _try(lambda: read_properties(data, 0, 3, len(data))) == _try(lambda: decode_one(Properties, data))


@given(st.dictionaries(TEXT | SYMBOL, VALUES, max_size=4), st.data())
@unhurried
def test_the_short_cut_for_maps_agrees_with_the_decoder(content: Map, draw: st.DataObject) -> None:
    data = _damaged(b"..." + encode_map(content), draw)

    def whole() -> object:
        return decode(data, 3, len(data))[0]

    assert _try(lambda: read_map(data, 3, len(data))) == _try(whole)


def _damaged(encoded: bytes, draw: st.DataObject) -> bytes:
    damaged = bytearray(encoded)
    for _ in range(draw.draw(st.integers(0, 2))):
        if len(damaged) > 4:
            damaged[draw.draw(st.integers(4, len(damaged) - 1))] = draw.draw(st.integers(0, 255))
    return bytes(damaged)


def _try(call: Callable[[], object]) -> str:
    try:
        return repr(call())
    except AmqpError as error:
        return error.condition


@given(st.lists(st.binary(max_size=600), max_size=5))
@unhurried
def test_a_batch_comes_apart_into_its_messages(bodies: list[bytes]) -> None:
    messages = [build_message(encode_data_section(body), properties=Properties(message_id=str(n)))
                for n, body in enumerate(bodies)]  # fmt: skip
    envelope = build_message(message_annotations={Symbol("x-opt-partition-key"): "k"})
    assert split_batch(build_batch(messages)) == messages
    assert split_batch(build_batch(messages, envelope)) == messages
    with pytest.raises(AmqpError, match="not data"):
        split_batch(encode_value_section("x"))


# --- the SDK's messages ---------------------------------------------------------------------------------------------


def test_a_message_of_the_sdk_is_read() -> None:
    output = bytearray()
    number = uuid.uuid4()
    encode_payload(
        output,
        sdk.Message(
            header=sdk.Header(durable=True, ttl=1000),
            delivery_annotations={b"d": "v"},
            message_annotations={b"x-opt-scheduled-enqueue-time": 5},
            properties=sdk.Properties(message_id="m", group_id="s", to="q", content_type="text/plain"),
            application_properties={"text": "v", "uuid": number, "yes": True, "n": 3},
            data=[b"one", b"two"],
        ),
    )
    message = Message(bytes(output))
    assert message.header() == Header(durable=True, ttl=1000)
    assert message.delivery_annotations() == {"d": "v"}
    assert message.message_annotations() == {"x-opt-scheduled-enqueue-time": 5}
    properties = message.properties()
    assert properties is not None
    assert (properties.message_id, properties.group_id, properties.to) == ("m", "s", "q")
    assert properties.content_type == "text/plain"
    assert message.application_properties() == {"text": "v", "uuid": number, "yes": True, "n": 3}
    assert message.data_sections() == [b"one", b"two"]
    assert not message.has(FOOTER)
    assert all(message.has(code) for code in (HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES))
    assert b"\x00\x53\x71" not in message.bare


@pytest.mark.parametrize(
    ("fields", "kind", "values"),
    [
        ({"data": [b"x", b"y"]}, DATA, [b"x", b"y"]),
        ({"value": "text"}, VALUE, ["text"]),
        ({"value": {"a": 1}}, VALUE, [{"a": 1}]),
        ({"sequence": [[1, "two"], [3]]}, SEQUENCE, [[1, "two"], [3]]),
    ],
)
def test_each_kind_of_body_of_the_sdk_is_read(fields: dict[str, Any], kind: int, values: list[Any]) -> None:
    output = bytearray()
    encode_payload(output, sdk.Message(**fields))
    message = Message(bytes(output))
    assert {code for code, _, _ in message.body} == {kind}
    assert message.body_values() == values


def test_the_sdk_reads_a_rewritten_message() -> None:
    data = build_message(
        encode_data_section(b"body"),
        header=Header(durable=True, delivery_count=0),
        properties=Properties(message_id="m", content_type=Symbol("a/b")),
        application_properties={"k": "v"},
    )
    changed = Message(data).rewritten(
        header=Header(durable=True, ttl=5, delivery_count=2),
        message_annotations={Symbol("x-opt-sequence-number"): 1 << 40, Symbol("x-opt-enqueued-time"): Timestamp(7)},
    )
    read = decode_payload(memoryview(changed))
    assert read.header is not None
    assert list(read.header) == [True, None, 5, None, 2]
    assert read.message_annotations == {b"x-opt-sequence-number": 1 << 40, b"x-opt-enqueued-time": 7}
    assert read.properties is not None
    assert read.properties[0] == b"m"
    assert read.application_properties == {b"k": b"v"}
    assert read.data == [b"body"]
