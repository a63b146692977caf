"""Traces and metrics as OpenTelemetry's conventions for messaging have them, seen by its own SDK."""

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from pairbus.core.ledger import Kind, Stage
from pairbus.instrument.hooks import Instrument
from pairbus.instrument.opentelemetry import Metrics, Traces

BACKLOG = "contoso/x-servicebus-transfer/0"


class Traced:
    """An instrument, and the spans that came of it."""

    def __init__(self) -> None:
        self.provider = TracerProvider()
        self._exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.instrument = Instrument(tracer=Traces(self.provider), client="shop")

    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self._exporter.get_finished_spans()}

    def all(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()


def trace_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id


def header(span: ReadableSpan) -> str:
    context = span.get_span_context()
    assert context is not None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def linked(span: ReadableSpan) -> set[int]:
    return {link.context.span_id for link in span.links}


def test_a_send_has_a_span_and_its_messages_carry_its_context() -> None:
    traced = Traced()
    first: dict[Any, Any] = {"mine": 1}
    second: dict[Any, Any] = {}
    operation = traced.instrument.begin(
        "contoso", "orders", Kind.SEND, Stage.DIRECT, sizes=[5, 6], carriers=[first, second]
    )
    operation.done()
    span = traced.spans()["send orders"]
    assert span.kind is SpanKind.PRODUCER  # its context is the messages' creation context
    assert dict(span.attributes or {}) == {
        "messaging.system": "servicebus",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.batch.message_count": 2,
        "messaging.client.id": "shop",
        "server.address": "contoso",
        "pairbus.stage": "direct",
    }
    assert span.status.status_code is StatusCode.UNSET
    assert first == {"mine": 1, "traceparent": header(span), "Diagnostic-Id": header(span)}
    assert second == {"traceparent": header(span), "Diagnostic-Id": header(span)}


def test_it_is_below_what_is_under_way() -> None:
    traced = Traced()
    with traced.provider.get_tracer("app").start_as_current_span("checkout") as checkout:
        traced.instrument.begin("contoso", "orders", Kind.SEND, Stage.DIRECT, carriers=[{}]).done()
    span = traced.spans()["send orders"]
    assert span.parent is not None
    assert span.parent.span_id == checkout.get_span_context().span_id


@pytest.mark.parametrize("as_bytes", [False, True])
@pytest.mark.parametrize("name", ["traceparent", "Diagnostic-Id"])
def test_what_a_message_carries_is_kept_and_linked(name: str, *, as_bytes: bool) -> None:
    """As the SDK writes it and as it comes back from the SDK: keys and values may be bytes."""
    traced = Traced()
    carried = f"00-{'a' * 32}-{'b' * 16}-01"
    properties: dict[Any, Any] = {name.encode(): carried.encode()} if as_bytes else {name: carried}
    before = dict(properties)
    traced.instrument.begin("contoso", "orders", Kind.SEND, Stage.DIRECT, carriers=[properties]).done()
    (span,) = traced.all()
    assert properties == before
    assert span.kind is SpanKind.CLIENT
    assert linked(span) == {0xBBBBBBBBBBBBBBBB}
    assert trace_of(span) == int("a" * 32, 16)  # with nothing else under way it goes on with the message's trace


def test_a_parked_messages_trace_goes_on_through_the_syphon_to_its_destination() -> None:
    traced = Traced()
    messages: list[dict[Any, Any]] = [{}, {}, {"traceparent": "nonsense"}]
    for message in messages[:2]:
        failed = traced.instrument.begin("contoso", "orders", Kind.SEND, Stage.DIRECT, carriers=[message])
        failed.failed(ConnectionError("the key is SECRET"), in_doubt=True)
        parked = traced.instrument.begin(
            "fabrikam", BACKLOG, Kind.SEND, Stage.PARK, destination="orders", carriers=[message]
        )
        parked.done()
    tried = [span for span in traced.all() if span.name == "send orders"]
    stays = [span for span in traced.all() if span.name == f"send {BACKLOG}"]
    assert [trace_of(span) for span in tried] == [trace_of(span) for span in stays]  # a second attempt, the same trace
    assert [dict(span.attributes or {})["pairbus.destination"] for span in stays] == ["orders", "orders"]
    assert all(dict(span.attributes or {})["error.type"] == "ConnectionError" for span in tried)
    assert {span.status.status_code for span in tried} == {StatusCode.ERROR}
    assert "SECRET" not in "".join(span.to_json() for span in traced.all())

    receive = traced.instrument.begin("fabrikam", BACKLOG, Kind.RECEIVE, Stage.SYPHON, carriers=messages)
    receive.done([1, 1, 1])
    traced.instrument.begin("contoso", "orders", Kind.SEND, Stage.SYPHON, sizes=[1, 1, 1], carriers=messages).done()
    moves = [span for span in traced.all() if span.name == "move orders"]
    assert [trace_of(span) for span in moves] == [trace_of(span) for span in tried]
    (sent,) = [span for span in traced.all() if span.name == "send orders" and span not in tried]
    contexts = {int(header(span).split("-")[2], 16) for span in tried}
    assert linked(sent) == contexts
    assert linked(traced.spans()[f"receive {BACKLOG}"]) == contexts
    assert trace_of(sent) not in {trace_of(span) for span in tried}  # it belongs to all of them, and below none
    assert [message["traceparent"] for message in messages[:2]] == [header(span) for span in tried]  # E2: unchanged


def test_messages_of_one_trace_move_together() -> None:
    traced = Traced()
    messages: list[dict[Any, Any]] = [{}, {}]
    traced.instrument.begin("contoso", "orders", Kind.SEND, Stage.DIRECT, carriers=messages).done()
    traced.instrument.begin("contoso", "orders", Kind.SEND, Stage.SYPHON, carriers=messages).done()
    (move,) = [span for span in traced.all() if span.name == "move orders"]
    assert dict(move.attributes or {})["messaging.batch.message_count"] == 2
    assert move.kind is SpanKind.CONSUMER


@pytest.mark.parametrize(
    ("kind", "name", "operation"),
    [
        (Kind.RECEIVE, "receive orders", "receive"),
        (Kind.COMPLETE, "complete orders", "settle"),
        (Kind.DEAD_LETTER, "dead_letter orders", "settle"),
        (Kind.RENEW, "renew orders", None),
        (Kind.PING, "ping orders", "send"),
    ],
)
def test_names_and_types_of_operations(kind: Kind, name: str, operation: str | None) -> None:
    traced = Traced()
    properties: dict[Any, Any] = {}
    traced.instrument.begin("contoso", "orders", kind, Stage.DIRECT, carriers=[properties]).done()
    span = traced.spans()[name]
    attributes = dict(span.attributes or {})
    assert attributes.get("messaging.operation.type") == operation
    settles = operation == "settle"
    assert attributes.get("messaging.servicebus.disposition_status") == (
        name.removesuffix(" orders") if settles else None
    )
    assert span.kind is SpanKind.CLIENT
    assert properties == {}


def test_the_processs_providers_are_used_if_none_is_given() -> None:
    Instrument([Metrics()], tracer=Traces()).begin("a", "b", Kind.SEND, Stage.DIRECT, carriers=[{}]).done()
    assert not trace.get_current_span().get_span_context().is_valid


def test_metrics_after_the_conventions() -> None:
    reader = InMemoryMetricReader()
    watched = Instrument([Metrics(MeterProvider([reader]))], elapsed=iter([0.0, 0.25, 1.0, 1.5, 2, 2, 3]).__next__)
    watched.begin("contoso", "orders", Kind.SEND, Stage.DIRECT, sizes=[1, 2]).done()
    watched.begin("contoso", "orders", Kind.SEND, Stage.DIRECT, sizes=[1]).failed(TimeoutError("SECRET"))
    watched.begin("contoso", "orders", Kind.RECEIVE, Stage.DIRECT).done([1])
    watched.turn("contoso", "orders", "engaged")
    data = reader.get_metrics_data()
    assert data is not None
    found = {
        metric.name: metric
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert found.keys() == {
        "messaging.client.operation.duration",
        "messaging.client.sent.messages",
        "messaging.client.consumed.messages",
        "pairbus.health.turns",
    }
    durations = list(found["messaging.client.operation.duration"].data.data_points)
    assert found["messaging.client.operation.duration"].unit == "s"
    sums = [point.sum for point in durations if isinstance(point, HistogramDataPoint)]
    assert sums == [0.25, 0.5, 0.0]
    first = durations[0]
    assert isinstance(first, HistogramDataPoint)
    assert first.explicit_bounds[0] == 0.005
    assert dict(first.attributes or {}) == {
        "messaging.system": "servicebus",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "server.address": "contoso",
        "pairbus.stage": "direct",
    }
    sent = [
        (point.value, dict(point.attributes or {}).get("error.type"))
        for point in found["messaging.client.sent.messages"].data.data_points
        if isinstance(point, NumberDataPoint)
    ]
    assert sent == [(2, None), (1, "TimeoutError")]


@pytest.mark.parametrize(
    ("module", "missing", "told"),
    [
        ("opentelemetry", "opentelemetry", "OpenTelemetry is not installed: pip install pairbus[telemetry]"),
        ("prometheus", "prometheus_client", "prometheus_client is not installed: pip install pairbus[telemetry]"),
    ],
)
def test_without_the_package_the_error_names_the_cure(module: str, missing: str, told: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; import pairbus.instrument.{module}"
    ran = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert ran.returncode == 1
    assert f"ImportError: {told}" in ran.stderr
