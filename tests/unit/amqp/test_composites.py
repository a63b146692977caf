"""Performatives, states and termini: both ways, against the SDK's codec, and the short cuts against the table."""

# ruff: noqa: FBT003 (the SDK's frames are tuples)

import dataclasses
from typing import Any

import pytest
from azure.servicebus._pyamqp import endpoints, error, outcomes, performatives
from azure.servicebus._pyamqp._decode import decode_frame
from azure.servicebus._pyamqp._encode import encode_frame
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pairbus.amqp.composites import (
    PERFORMATIVES,
    SASL_FRAMES,
    decode_one,
    decode_performative,
    decode_sasl_frame,
    encode_composite,
)
from pairbus.amqp.conditions import DECODE_ERROR, INVALID_FIELD, NOT_IMPLEMENTED, AmqpError
from pairbus.amqp.encoder import encode, encode_described, encode_list
from pairbus.amqp.fast import hotpath
from pairbus.amqp.performatives import (
    ACCEPTED,
    BATCH_FORMAT,
    RECEIVER,
    RELEASED,
    SENDER,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Received,
    Rejected,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    Source,
    Target,
    Transfer,
)
from pairbus.amqp.types import Array, Described, Symbol, ULong

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a machine may be busy

UINT = st.integers(0, 0xFFFFFFFF)
NAME = st.text("abcdefghij-:.$/0123456789", min_size=1, max_size=20)
SYMBOL = NAME.map(Symbol)
SYMBOLS = st.none() | st.lists(SYMBOL, min_size=1, max_size=3).map(tuple)
MAP = st.none() | st.dictionaries(SYMBOL, st.text(max_size=5) | UINT, max_size=3)
ERROR = st.builds(Error, SYMBOL, st.none() | NAME, MAP)
STATE = st.one_of(
    st.just(ACCEPTED),
    st.just(RELEASED),
    st.builds(Rejected, st.none() | ERROR),
    st.builds(Modified, st.none() | st.booleans(), st.none() | st.booleans(), MAP),
    st.builds(Received, UINT, UINT),
)
SOURCE = st.builds(
    Source,
    st.none() | NAME,
    durable=st.none() | UINT,
    filter=st.none() | st.just({Symbol("f"): Described(Symbol("f"), "x")}),
    default_outcome=st.none() | STATE,
    outcomes=SYMBOLS,
    capabilities=SYMBOLS,
)
TARGET = st.builds(Target, st.none() | NAME, timeout=st.none() | UINT, capabilities=SYMBOLS)
ANY_UINT = st.none() | UINT
TRANSFERS = st.builds(
    Transfer,
    UINT,
    ANY_UINT,
    st.none() | st.binary(max_size=32),
    ANY_UINT,
    st.none() | st.booleans(),
    st.booleans(),
    st.none() | st.integers(0, 1),
    st.none() | STATE,
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
DISPOSITIONS = st.builds(Disposition, st.booleans(), UINT, ANY_UINT, st.booleans(), st.none() | STATE, st.booleans())
FLOWS = st.builds(
    Flow, ANY_UINT, UINT, UINT, UINT, ANY_UINT, ANY_UINT, ANY_UINT, ANY_UINT, st.booleans(), st.booleans(), MAP
)
FRAMES = st.one_of(
    st.builds(Open, NAME, st.none() | NAME, UINT, st.integers(0, 65535), ANY_UINT, properties=MAP),
    st.builds(Begin, st.none() | st.integers(0, 65535), UINT, UINT, UINT, UINT, SYMBOLS, SYMBOLS, MAP),
    st.builds(
        Attach,
        NAME,
        UINT,
        st.booleans(),
        st.integers(0, 2),
        st.integers(0, 1),
        st.none() | SOURCE,
        st.none() | TARGET,
        st.none(),
        st.booleans(),
        ANY_UINT,
        st.none() | st.integers(0, (1 << 64) - 1),
        SYMBOLS,
        SYMBOLS,
        MAP,
    ),
    FLOWS,
    TRANSFERS,
    DISPOSITIONS,
    st.builds(Detach, UINT, st.booleans(), st.none() | ERROR),
    st.builds(End, st.none() | ERROR),
    st.builds(Close, st.none() | ERROR),
)


@given(FRAMES, st.binary(max_size=10))
@unhurried
def test_a_performative_comes_back_as_it_was_and_ends_where_its_payload_begins(frame: Any, payload: bytes) -> None:  # noqa: ANN401
    encoded = encode_composite(frame)
    assert decode_performative(encoded + payload, 0, len(encoded) + len(payload)) == (frame, len(encoded))


@pytest.mark.parametrize(
    "frame",
    [
        SaslMechanisms((Symbol("PLAIN"), Symbol("ANONYMOUS"))),
        SaslInit(Symbol("PLAIN"), b"\0a\0b", "host"),
        SaslChallenge(b"?"),
        SaslResponse(b"!"),
        SaslOutcome(0),
    ],
)
def test_sasl_frames_come_back_as_they_were(frame: Any) -> None:  # noqa: ANN401 (any of them)
    encoded = encode_composite(frame)
    assert decode_sasl_frame(encoded, 0, len(encoded)) == frame
    with pytest.raises(AmqpError):
        decode_sasl_frame(encoded + b"\x40", 0, len(encoded) + 1)


def test_all_fourteen_kinds_of_frame_are_known() -> None:
    assert (len(PERFORMATIVES), len(SASL_FRAMES)) == (9, 5)


def test_a_descriptor_may_be_spelled_out() -> None:
    body = encode_described(Symbol("amqp:close:list"), encode([None]))
    assert decode_performative(body, 0, len(body)) == (Close(), len(body))
    wide = b"\x00\x80" + bytes(7) + b"\x18" + encode([])
    assert decode_performative(wide, 0, len(wide)) == (Close(), len(wide))


def test_a_field_that_may_be_repeated_may_be_single() -> None:
    data = b"\x00\x53\x40" + encode([Symbol("PLAIN")])
    assert decode_sasl_frame(data, 0, len(data)) == SaslMechanisms((Symbol("PLAIN"),))


def test_an_unknown_outcome_or_terminus_is_kept_as_it_is() -> None:
    transactional = Described(ULong(0x34), [b"txn", Described(ULong(0x24), [])])
    disposition = Disposition(RECEIVER, 1, state=transactional)
    assert decode_one(Disposition, encode_composite(disposition)) == disposition
    coordinator = Attach("l", 0, SENDER, target=Described(ULong(0x30), [None]))
    assert decode_one(Attach, encode_composite(coordinator)) == coordinator


def test_every_frame_has_all_of_its_fields() -> None:
    """Older versions of the SDK count on them."""
    for performative, count in (
        (Open("c"), 10),
        (Begin(None, 0, 1, 1), 8),
        (Attach("l", 0, SENDER), 14),
        (Flow(None, 0, 0, 0), 11),
        (Transfer(0), 11),
        (Disposition(SENDER, 0), 6),
        (Detach(0), 3),
        (End(), 1),
        (Close(), 1),
    ):
        encoded = encode_composite(performative)
        assert encoded[5] == count
        assert decode_one(type(performative), encoded) == performative


def test_an_error_has_three_fields_and_a_terminus_all_of_its_own() -> None:
    """The SDK counts on it."""
    assert encode_composite(Error(Symbol("a"))) == bytes.fromhex("00 53 1d c0 06 03 a3 01 61 40 40")
    assert encode_composite(Target("a")) == bytes.fromhex("00 53 29 c0 0a 07 a1 01 61 40 40 40 40 40 40")
    assert encode_composite(Source("a"))[5] == 11


@pytest.mark.parametrize(
    ("body", "condition"),
    [
        (b"\x40", DECODE_ERROR),
        (b"\x00\x53\x18\x40", DECODE_ERROR),
        (b"\x00\x53\x18\xc1\x01\x00", DECODE_ERROR),
        (b"\x00\x53\x24\x45", NOT_IMPLEMENTED),
        (b"\x00\x53\x77\x45", NOT_IMPLEMENTED),
        (b"\x00\x45\x45", NOT_IMPLEMENTED),
        (b"\x00\x53\x10\x45", INVALID_FIELD),
        (b"\x00\x53\x10" + encode([1]), DECODE_ERROR),
        (b"\x00\x53\x10" + encode([None, "host"]), INVALID_FIELD),
        (b"\x00\x53\x18" + encode([None, None]), DECODE_ERROR),
        (b"\x00\x53\x18" + encode([Described(ULong(0x24), [])]), DECODE_ERROR),
        (b"\x00\x53\x18" + encode([Described(ULong(0x1D), "text")]), DECODE_ERROR),
        (b"\x00\x53\x18" + encode([Described(ULong(0x1D), [])]), INVALID_FIELD),
        (b"\x00\x53\x10" + encode(["c", *[None] * 4, "not \N{LATIN SMALL LETTER E WITH ACUTE} symbol"]), DECODE_ERROR),
        (b"\x00\x53\x10" + encode(["c", *[None] * 4, Array(0x70, [1])]), DECODE_ERROR),
        (b"\x00\x53\x15" + encode([True, 1, 1, True, "accepted"]), DECODE_ERROR),
        (b"\x00\x53\x15" + encode([True, 1, 1, True, Described(ULong(0x24), "not a list")]), DECODE_ERROR),
        (b"\x00\x53\x16" + encode([True]), DECODE_ERROR),
        (b"\x00\x53\x16" + encode([-1]), DECODE_ERROR),
        (b"\x00\x53\x16" + encode([1 << 32]), DECODE_ERROR),
    ],
)
def test_a_malformed_composite_names_its_condition(body: bytes, condition: Symbol) -> None:
    with pytest.raises(AmqpError) as caught:
        decode_performative(body, 0, len(body))
    assert caught.value.condition == condition


@given(TRANSFERS, st.binary(max_size=10))
@unhurried
def test_the_short_cut_for_transfers_reads_what_the_table_reads(frame: Transfer, payload: bytes) -> None:
    encoded = encode_composite(frame)
    data = encoded + payload
    for _ in range(2):  # the second time the tail is known
        read = hotpath.read_transfer(data, 3, len(data), 1000)
        assert read == (
            frame.handle,
            frame.delivery_id,
            frame.delivery_tag,
            hotpath.transfer_tail(frame),
            len(encoded),
        )


@given(DISPOSITIONS)
@unhurried
def test_the_short_cut_for_dispositions_reads_what_the_table_reads(frame: Disposition) -> None:
    data = encode_composite(frame)
    last = frame.first if frame.last is None else frame.last
    for _ in range(2):
        read = hotpath.read_disposition(data, 3, len(data), 1000)
        assert read == (frame.role, frame.first, last, (frame.settled, frame.state))


@given(FLOWS)
@unhurried
def test_the_short_cut_for_flows_reads_what_the_table_reads(frame: Flow) -> None:
    data = encode_composite(frame)
    assert hotpath.read_flow(data, 3, len(data), 1000) == frame


def test_a_flow_whose_properties_end_like_a_null_is_read() -> None:
    frame = Flow(1, 2, 3, 4, properties={Symbol("a"): Symbol("@")})
    data = encode_composite(frame)
    assert data.endswith(b"\x40")
    assert hotpath.read_flow(data, 3, len(data), 1000) == frame


def _outcome(read: Any, data: bytes) -> Any:  # noqa: ANN401 (any reader)
    try:
        return read(data, 3, len(data), 1000)
    except AmqpError as failure:
        return failure.condition


@given(st.one_of(TRANSFERS, DISPOSITIONS, FLOWS), st.data())
@unhurried
def test_the_short_cuts_refuse_what_the_table_refuses(frame: Any, draw: st.DataObject) -> None:  # noqa: ANN401
    """Whatever is done to the bytes after the descriptor, a known tail never makes good what is malformed."""
    encoded = encode_composite(frame)
    reader = {
        Transfer: hotpath.read_transfer, Disposition: hotpath.read_disposition, Flow: hotpath.read_flow
    }[type(frame)]  # fmt: skip
    reader(encoded, 3, len(encoded), 1000)
    damaged = bytearray(encoded)
    for _ in range(draw.draw(st.integers(1, 3))):
        damaged[draw.draw(st.integers(3, len(damaged) - 1))] = draw.draw(st.integers(0, 255))
    data = bytes(damaged[: draw.draw(st.integers(4, len(damaged)))])
    mine = _outcome(reader, data)
    try:
        theirs, after = decode_performative(data, 0, len(data), 1000)
    except AmqpError as failure:
        assert mine == failure.condition  # noqa: PT017 (compared with the other way's)
        return
    if isinstance(theirs, Transfer):
        expected = (
            theirs.handle, theirs.delivery_id, theirs.delivery_tag, hotpath.transfer_tail(theirs), after
        )  # fmt: skip
        assert mine == expected
    elif after != len(data):
        assert mine == DECODE_ERROR
    elif isinstance(theirs, Disposition):
        last = theirs.first if theirs.last is None else theirs.last
        assert mine == (theirs.role, theirs.first, last, (theirs.settled, theirs.state))
    else:
        assert mine == theirs


def test_the_table_of_known_tails_stays_small() -> None:
    for message_format in range(2000):
        data = encode_composite(Transfer(1, 2, b"tag", message_format))
        hotpath.read_transfer(data, 3, len(data), 1000)
    assert len(hotpath._transfer_tails) <= 256  # pyright: ignore[reportPrivateUsage]


# --- the SDK's codec ---------------------------------------------------------------------------------------------


def _from_sdk(frame: Any) -> Any:  # noqa: ANN401 (their tuples have no types)
    body = bytes(encode_frame(frame)[1] or b"")
    return decode_performative(body, 0, len(body))[0]


def test_the_frames_of_the_sdk_are_read() -> None:
    assert _from_sdk(
        performatives.OpenFrame("c", "localhost", 65536, 65535, 30000, None, None, None, None, {"a": "b"})
    ) == Open("c", "localhost", 65536, 65535, 30000, properties={Symbol("a"): "b"})
    assert _from_sdk(performatives.BeginFrame(None, 0, 65536, 65536, 4294967295, None, None, None)) == Begin(
        None, 0, 65536, 65536
    )
    source = endpoints.Source(address="amqps://h/q", filters={"com.microsoft:session-filter": "s"})
    target = endpoints.Target(address="t")
    attach = performatives.AttachFrame(
        "n", 1, True, 0, 1, source, target, None, None, None, None, None, [b"x"], {"p": "v"}
    )
    read = _from_sdk(attach)
    assert isinstance(read, Attach)
    assert isinstance(read.source, Source)
    assert read.source.address == "amqps://h/q"
    assert read.source.filter == {"com.microsoft:session-filter": "s"}
    assert (read.name, read.role, read.snd_settle_mode, read.rcv_settle_mode) == ("n", RECEIVER, 0, 1)
    assert read.desired_capabilities == ("x",)
    assert _from_sdk(performatives.FlowFrame(1, 2, 3, 4, 5, 6, 7, None, True, None, None)) == Flow(
        1, 2, 3, 4, 5, 6, 7, drain=True
    )
    assert _from_sdk(
        performatives.TransferFrame(1, 2, b"\0\0\0\1", BATCH_FORMAT, False, False, payload=b"")
    ) == Transfer(1, 2, b"\0\0\0\1", BATCH_FORMAT, settled=False)
    assert _from_sdk(
        performatives.DispositionFrame(True, 1, 1, False, outcomes.Modified(True, None, {"a": 1}), None)
    ) == Disposition(RECEIVER, 1, 1, state=Modified(True, None, {Symbol("a"): 1}))
    failure = error.AMQPError(condition=b"amqp:not-found", description="no", info=None)
    assert _from_sdk(performatives.DetachFrame(1, True, failure)) == Detach(
        1, closed=True, error=Error(Symbol("amqp:not-found"), "no")
    )


@given(FRAMES)
@unhurried
def test_the_sdk_reads_the_frames(frame: Any) -> None:  # noqa: ANN401 (any of them)
    code, fields = decode_frame(memoryview(encode_composite(frame)))
    assert code == 0x10 + PERFORMATIVES.index(type(frame))
    for field, theirs in zip(dataclasses.fields(frame), fields, strict=False):
        ours = getattr(frame, field.name)
        if isinstance(ours, (bool, int, bytes)) and theirs is not None:
            assert theirs == ours
        elif isinstance(ours, str):
            assert theirs == ours.encode()
        elif isinstance(ours, Error):
            assert theirs is not None
            assert (theirs[0], theirs[1]) == (
                ours.condition.encode(),
                None if ours.description is None else ours.description.encode(),
            )


def test_a_list_of_fields_written_by_hand_is_read() -> None:
    data = b"\x00\x53\x16" + encode_list([3, True])
    assert decode_one(Detach, data) == Detach(3, closed=True)
