"""AMQP values: every type there and back, the specification's bytes, the SDK's codec, and what is malformed."""

import datetime as dt
import math
import struct
import uuid
from typing import Any, cast

import pytest
from azure.servicebus._pyamqp._decode import decode_payload
from azure.servicebus._pyamqp._encode import encode_value as sdk_encode_value
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pairbus.amqp.conditions import DECODE_ERROR, AmqpError
from pairbus.amqp.decoder import MAX_COUNT, MAX_NESTING, WIDEST, decode, skip
from pairbus.amqp.encoder import encode, encode_described
from pairbus.amqp.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Value,
)

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a machine may be busy


def _signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def _unsigned(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, (1 << bits) - 1)


ASCII = st.text(st.characters(min_codepoint=0, max_codepoint=127), max_size=300)
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=300)
BINARY = st.binary(max_size=300)
SCALARS_BY_CODE: dict[int, st.SearchStrategy[Value]] = {
    0x40: st.none(),
    0x56: st.booleans(),
    0x50: _unsigned(8).map(UByte),
    0x60: _unsigned(16).map(UShort),
    0x70: _unsigned(32).map(UInt),
    0x80: _unsigned(64).map(ULong),
    0x51: _signed(8).map(Byte),
    0x61: _signed(16).map(Short),
    0x71: _signed(32).map(Int),
    0x81: _signed(64),
    0x72: st.floats(width=32).map(Float),
    0x82: st.floats(),
    0x83: _signed(64).map(Timestamp),
    0x73: st.characters().map(Char),
    0x74: st.binary(min_size=4, max_size=4).map(Decimal32),
    0x84: st.binary(min_size=8, max_size=8).map(Decimal64),
    0x94: st.binary(min_size=16, max_size=16).map(Decimal128),
    0x98: st.uuids(),
    0xB0: BINARY,
    0xB1: TEXT,
    0xB3: ASCII.map(Symbol),
}
SCALARS = st.one_of(*SCALARS_BY_CODE.values())
SCALAR_ARRAYS = st.sampled_from(sorted(SCALARS_BY_CODE)).flatmap(
    lambda code: st.builds(
        Array, st.just(code), st.lists(SCALARS_BY_CODE[code], max_size=8), st.none() | _unsigned(64).map(ULong)
    )
)


def _compounds(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    lists = st.lists(inner, max_size=6)
    maps = st.dictionaries(TEXT | ASCII.map(Symbol) | st.uuids(), inner, max_size=5)
    return st.one_of(
        lists,
        maps,
        st.builds(Described, _unsigned(64).map(ULong) | ASCII.map(Symbol), inner),
        st.builds(Array, st.just(0xD0), st.lists(lists, max_size=3)),
        st.builds(Array, st.just(0xD1), st.lists(maps, max_size=3)),
        st.builds(Array, st.just(0xF0), st.lists(SCALAR_ARRAYS, max_size=3)),
    )


VALUES = st.recursive(SCALARS | SCALAR_ARRAYS, _compounds, max_leaves=25)


def same(left: Value, right: Value) -> bool:
    """Equal, and of the same types all the way down; NaN equals itself."""
    if type(left) is not type(right):
        return False
    if isinstance(left, Array):
        return (left.code, left.descriptor) == (right.code, right.descriptor) and _all_same(left, right)
    if isinstance(left, list):
        return _all_same(cast("list[Any]", left), right)
    if isinstance(left, dict):
        ours, theirs = cast("dict[Any, Any]", left), cast("dict[Any, Any]", right)
        return _all_same(list(ours), list(theirs)) and _all_same(list(ours.values()), list(theirs.values()))
    if isinstance(left, Described):
        return same(left.descriptor, right.descriptor) and same(left.value, right.value)
    if isinstance(left, float) and math.isnan(left):
        return math.isnan(right)
    return left == right


def _all_same(left: list[Any], right: list[Any]) -> bool:
    return len(left) == len(right) and all(map(same, left, right))


@given(VALUES)
@unhurried
def test_what_is_encoded_decodes_to_the_same_value_of_the_same_types(value: Value) -> None:
    encoded = encode(value)
    decoded, end = decode(encoded)
    assert end == len(encoded) == skip(encoded, 0, len(encoded))
    assert same(decoded, value)
    assert encode(decoded) == encoded


@given(VALUES, st.binary(max_size=20), st.binary(max_size=20))
@unhurried
def test_a_value_is_read_where_it_lies_among_other_bytes(value: Value, before: bytes, after: bytes) -> None:
    encoded = encode(value)
    data = before + encoded + after
    decoded, end = decode(data, len(before))
    assert same(decoded, value)
    assert end == len(before) + len(encoded)


@given(VALUES, st.data())
@unhurried
def test_a_value_cut_short_is_a_decode_error(value: Value, data: st.DataObject) -> None:
    encoded = encode(value)
    end = data.draw(st.integers(0, len(encoded) - 1))
    for attempt in (lambda: decode(encoded, 0, end), lambda: decode(encoded[:end]), lambda: skip(encoded, 0, end)):
        with pytest.raises(AmqpError) as caught:
            attempt()
        assert caught.value.condition == DECODE_ERROR


# The encodings of OASIS AMQP 1.0, part 1, 1.6: each one's bytes.
GOLDEN: list[tuple[str, Value]] = [
    ("40", None),
    ("41", True),
    ("42", False),
    ("56 01", True),
    ("56 00", False),
    ("50 ff", UByte(255)),
    ("60 01 00", UShort(256)),
    ("43", UInt(0)),
    ("52 ff", UInt(255)),
    ("70 00 00 01 00", UInt(256)),
    ("44", ULong(0)),
    ("53 24", ULong(0x24)),
    ("80 00 00 00 00 00 00 00 24", ULong(0x24)),
    ("51 80", Byte(-128)),
    ("61 ff fe", Short(-2)),
    ("54 ff", Int(-1)),
    ("71 7f ff ff ff", Int(2147483647)),
    ("55 80", -128),
    ("81 ff ff ff ff ff ff ff 7f", -129),
    ("72 3f c0 00 00", Float(1.5)),
    ("82 3f f8 00 00 00 00 00 00", 1.5),
    ("74 22 50 00 01", Decimal32(b"\x22\x50\x00\x01")),
    ("84 22 34 00 00 00 00 00 01", Decimal64(b"\x22\x34" + bytes(5) + b"\x01")),
    ("94" + "22080000000000000000000000000001", Decimal128(b"\x22\x08" + bytes(13) + b"\x01")),
    ("73 00 01 f6 00", Char("\N{GRINNING FACE}")),
    ("83 00 00 01 31 1d 2d 34 00", Timestamp(0x01311D2D3400)),
    ("98 00112233445566778899aabbccddeeff", uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")),
    ("a0 03 01 02 03", b"\x01\x02\x03"),
    ("b0 00 00 00 01 07", b"\x07"),
    ("a1 1e 48656c6c6f20476c6f72696f7573204d657373616769 6e6720576f726c64", "Hello Glorious Messaging World"),
    ("b1 00 00 00 02 c3 a9", "\N{LATIN SMALL LETTER E WITH ACUTE}"),
    ("a3 05 71 75 65 75 65", Symbol("queue")),
    ("b3 00 00 00 01 71", Symbol("q")),
    ("45", []),
    ("c0 03 02 40 41", [None, True]),
    ("d0 00 00 00 06 00 00 00 02 40 41", [None, True]),
    ("c1 06 02 a3 01 6b 55 07", {Symbol("k"): 7}),
    ("d1 00 00 00 04 00 00 00 00", {}),
    ("e0 04 02 50 01 02", Array(0x50, [UByte(1), UByte(2)])),
    ("f0 00 00 00 07 00 00 00 02 50 01 02", Array(0x50, [UByte(1), UByte(2)])),
    ("e0 07 02 a3 01 61 02 62 63", Array(0xB3, [Symbol("a"), Symbol("bc")])),
    ("e0 05 02 00 53 01 43", Array(0x70, [UInt(0), UInt(0)], ULong(1))),
    ("00 a3 03 55 52 4c a1 04 68 74 74 70", Described(Symbol("URL"), "http")),
    ("00 53 24 45", Described(ULong(0x24), [])),
]


@pytest.mark.parametrize(("octets", "value"), GOLDEN)
def test_the_specifications_encodings_are_read(octets: str, value: Value) -> None:
    data = bytes.fromhex(octets)
    decoded, end = decode(data)
    assert end == len(data)
    assert same(decoded, value)


@pytest.mark.parametrize(
    ("value", "octets"),
    [
        (True, "41"),
        (UInt(0), "43"),
        (UInt(255), "52 ff"),
        (UInt(256), "70 00 00 01 00"),
        (ULong(0), "44"),
        (ULong(7), "53 07"),
        (Int(-1), "54 ff"),
        (Int(128), "71 00 00 00 80"),
        (5, "55 05"),
        (128, "81 00 00 00 00 00 00 00 80"),
        ([], "45"),
        ({}, "c1 01 00"),
        ("x" * 255, "a1 ff" + "78" * 255),
        ("x" * 256, "b1 00 00 01 00" + "78" * 256),
        (Array(0xB3, ["a", "bc"]), "e0 07 02 a3 01 61 02 62 63"),
        ((None, b""), "c0 04 02 40 a0 00"),
        (bytearray(b"\x01"), "a0 01 01"),
        (memoryview(b"\x01"), "a0 01 01"),
        (dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC), "83 00 00 00 00 00 00 03 e8"),
    ],
)
def test_the_shortest_encoding_is_written(value: Value, octets: str) -> None:
    assert encode(value) == bytes.fromhex(octets)


@pytest.mark.parametrize(
    ("octets", "why"),
    [
        ("", "nothing"),
        ("3f", "an unknown fixed-width constructor"),
        ("a2 00", "an unknown variable-width constructor"),
        ("56 02", "a boolean that is neither"),
        ("73 00 11 00 00", "a character beyond Unicode"),
        ("a1 02 c3 28", "a string that is not UTF-8"),
        ("b1 00 00 00 02 c3 28", "a wide string that is not UTF-8"),
        ("a0", "binary without its size"),
        ("b0 00 00", "wide binary without its size"),
        ("a1", "a string without its size"),
        ("d0 00 00", "a wide list without its size"),
        ("c0 03 02 40 3f", "a list with an element of no type"),
        ("a3 02 c3 a9", "a symbol that is not ASCII"),
        ("c0 02 01", "a list longer than the bytes"),
        ("c0 00 00", "a list whose size leaves no room for its count"),
        ("c0 02 02 40", "a list with more elements than bytes"),
        ("c0 03 01 40 40", "a list longer than its elements"),
        ("c1 02 01 40", "a key without a value"),
        ("c1 05 04 40 40 40 40", "a key twice"),
        ("c1 03 02 45 40", "a list as a key"),
        ("c1 04 02 40 40 40", "a map longer than its elements"),
        ("e0 02 01 00", "an array without constructor"),
        ("e0 03 01 50 ", "an array without its element"),
        ("e0 04 01 50 01 02", "an array longer than its elements"),
        ("e0 03 01 3f 00", "an array of no type"),
        ("d0 00 00 00 03 00 00 00 00", "a wide list whose size leaves no room for its count"),
        ("d0 ff ff ff ff ff ff ff ff", "a list of four thousand million"),
        ("f0 00 00 00 05 00 01 00 01 40", "an array of too many nulls"),
        ("f0 ff ff ff ff ff ff ff ff 40", "an array of four thousand million"),
        ("b0 ff ff ff ff", "four gigabytes"),
    ],
)
def test_malformed_bytes_are_a_decode_error(octets: str, why: str) -> None:
    with pytest.raises(AmqpError) as caught:
        decode(bytes.fromhex(octets))
    assert caught.value.condition == DECODE_ERROR, why


@pytest.mark.parametrize("octets", ["", "00 40", "a2 00", "3f", "b0 00 00 00", "a0", "a0 01", "c0"])
def test_what_cannot_be_skipped_is_a_decode_error(octets: str) -> None:
    data = bytes.fromhex(octets)
    with pytest.raises(AmqpError):
        skip(data, 0, len(data))


@given(st.binary(max_size=200))
@unhurried
def test_random_bytes_decode_or_are_a_decode_error_and_skipping_agrees_on_the_length(data: bytes) -> None:
    try:
        _value, end = decode(data)
    except AmqpError as error:
        assert error.condition == DECODE_ERROR  # noqa: PT017 (both ways out are fine; a third would fail)
    else:
        assert skip(data, 0, len(data)) == end


def test_nesting_is_allowed_to_64_levels_and_not_one_more() -> None:
    data = encode([])  # the innermost level
    for _ in range(MAX_NESTING - 1):
        data = b"\xd0" + struct.pack(">II", len(data) + 4, 1) + data
    assert decode(data)[1] == len(data)
    data = b"\xd0" + struct.pack(">II", len(data) + 4, 1) + data
    with pytest.raises(AmqpError, match="nested"):
        decode(data)
    described = b"\x00\x40" * (MAX_NESTING + 1) + b"\x40"
    for attempt in (lambda: decode(described), lambda: skip(described, 0, len(described))):
        with pytest.raises(AmqpError, match="nested"):
            attempt()


def test_the_number_of_elements_is_bounded_for_the_whole_value_not_for_each_collection() -> None:
    nulls = bytes.fromhex("f0 00 00 00 05 00 00 ff ff 40")
    assert len(decode(nulls)[0]) == MAX_COUNT - 1
    with pytest.raises(AmqpError, match="too many"):
        decode(b"\xc0" + bytes((2 * len(nulls) + 1, 2)) + nulls + nulls)
    with pytest.raises(AmqpError, match="too many"):
        decode(encode([None] * 11), max_elements=10)


def test_every_wide_constructor_is_its_own_widest() -> None:
    assert all(WIDEST.get(wide, wide) == wide for wide in WIDEST.values())


@pytest.mark.parametrize(
    "value", [UByte(256), UByte(-1), UInt(1 << 32), Int(1 << 31), 1 << 63, Char("ab"), Decimal32(b"123")]
)
def test_a_value_that_does_not_fit_its_type_is_refused(value: Value) -> None:
    with pytest.raises(ValueError, match=r"fit|single|must have"):
        encode(value)


@pytest.mark.parametrize("value", [object(), {1, 2}, Array(0x3F, [1])])
def test_what_is_no_amqp_value_is_refused(value: Value) -> None:
    with pytest.raises(TypeError, match=r"AMQP|array"):
        encode(value)


def test_a_timestamp_knows_its_moment() -> None:
    moment = dt.datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=dt.UTC)
    assert Timestamp.of(moment).to_datetime() == moment
    with pytest.raises(ValueError, match="time zone"):
        Timestamp.of(dt.datetime(2026, 1, 2))  # noqa: DTZ001 (naive on purpose)


def test_arrays_of_different_types_differ_and_an_array_equals_the_list_of_its_elements() -> None:
    assert Array(0x70, [1]) != Array(0x80, [1])
    assert Array(0x70, [1]) == [1]
    assert decode(bytes.fromhex("e0 01 00"))[0] == []


SDK_VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        _signed(32),
        st.floats(allow_nan=False),
        TEXT,
        BINARY,
        st.uuids(),
    ),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=15,
)


def _as_sdk_reads(value: Any) -> Any:  # noqa: ANN401 (any value)
    """Text is bytes to the SDK's decoder."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, list):
        return [_as_sdk_reads(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {_as_sdk_reads(k): _as_sdk_reads(v) for k, v in cast("dict[Any, Any]", value).items()}
    return value


@given(SDK_VALUES)
@unhurried
def test_what_the_sdk_encodes_is_decoded(value: Value) -> None:
    output = bytearray()
    sdk_encode_value(output, value)
    decoded, end = decode(bytes(output))
    assert end == len(output)
    assert decoded == value


@given(SDK_VALUES.filter(bool))
@unhurried
def test_what_is_encoded_the_sdk_decodes(value: Value) -> None:
    body = encode_described(ULong(0x77), encode(value))
    assert decode_payload(memoryview(body)).value == _as_sdk_reads(value)
