"""Traces and metrics for OpenTelemetry, after its conventions for messaging and for Azure Service Bus.

A message that is sent carries the context of its trace in its application properties, as the Azure SDK has it: in
``traceparent`` and ``Diagnostic-Id``, and in ``tracestate``. What a message carries already is kept. When a syphon
carries a parked message home, the message's own trace goes on with a span ``move``.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pairbus.core.ledger import Kind, Outcome, Record, Stage
from pairbus.instrument.hooks import Properties, Started

try:
    from opentelemetry import metrics, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise ImportError("OpenTelemetry is not installed: pip install pairbus[telemetry]") from error

SCOPE: Final = "pairbus"
TRACE_PARENT: Final = "traceparent"
DIAGNOSTIC_ID: Final = "Diagnostic-Id"
TRACE_STATE: Final = "tracestate"

_TYPES: Final = {
    Kind.SEND: "send",
    Kind.SCHEDULE: "send",
    Kind.PING: "send",
    Kind.RECEIVE: "receive",
    Kind.EMPTY_RECEIVE: "receive",
    Kind.PEEK: "receive",
    Kind.COMPLETE: "settle",
    Kind.ABANDON: "settle",
    Kind.DEFER: "settle",
    Kind.DEAD_LETTER: "settle",
}
"""The conventions' types of operations; the others have none."""
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
_PROPAGATOR: Final = TraceContextTextMapPropagator()


class Traces:
    """Begins a span for each operation. Give it to an instrument as its ``tracer``.

    :param provider: makes the tracer; None: the one that is set for the process, as OpenTelemetry has it.
    """

    def __init__(self, provider: trace.TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=provider)

    def begin(self, started: Started) -> "OperationSpan":
        """Begin a span, and give its context to messages that are sent and carry none."""
        carried = [_carried(properties) for properties in started.carriers]
        contexts = _distinct(carried)
        creates = started.kind in {Kind.SEND, Kind.SCHEDULE}
        is_creation = creates and None in carried
        span = self._tracer.start_span(
            f"{_name(started.kind)} {started.entity}",
            context=_parent(started, contexts),
            kind=SpanKind.PRODUCER if is_creation else SpanKind.CLIENT,
            links=[Link(context) for context in contexts],
            attributes={
                **_attributes(started.kind, started.namespace, started.entity, started.stage),
                "messaging.client.id": started.client,
            },
        )
        if is_creation:
            headers: dict[str, str] = {}
            _PROPAGATOR.inject(headers, trace.set_span_in_context(span, Context()))
            for properties, context in zip(started.carriers, carried, strict=True):
                if context is None:
                    _inject(properties, headers)
        moves: list[trace.Span] = []
        if creates and started.stage is Stage.SYPHON:
            moves = [self._move(started, context, carried.count(context), span) for context in contexts]
        return OperationSpan(span, moves)

    def _move(self, started: Started, context: SpanContext, messages: int, operation: trace.Span) -> trace.Span:
        return self._tracer.start_span(
            f"move {started.entity}",
            context=_in_trace(context),
            kind=SpanKind.CONSUMER,
            links=[Link(operation.get_span_context())],
            attributes={
                **_attributes(started.kind, started.namespace, started.entity, started.stage),
                "messaging.operation.name": "move",
                "messaging.operation.type": "process",
                "messaging.batch.message_count": messages,
            },
        )


class OperationSpan:
    """One operation's span, and those that go on with the traces of its messages."""

    def __init__(self, span: trace.Span, moves: Sequence[trace.Span]) -> None:
        self._span = span
        self._moves = moves

    def end(self, record: Record, error: BaseException | None) -> None:
        """End them as the operation ended. An error's text stays out of it: it may tell what is secret."""
        del error
        self._span.set_attribute("messaging.batch.message_count", record.messages)
        if record.destination is not None:
            self._span.set_attribute("pairbus.destination", record.destination)
        for span in (*self._moves, self._span):
            if record.outcome is not Outcome.DONE:
                span.set_attribute("error.type", record.detail or record.outcome.value)
                span.set_status(Status(StatusCode.ERROR, record.outcome.value))
            span.end()


class Metrics:
    """Counts operations and messages, and how long they took. It is a :class:`~pairbus.instrument.hooks.Sink`.

    :param provider: makes the meter; None: the one that is set for the process, as OpenTelemetry has it.
    """

    def __init__(self, provider: metrics.MeterProvider | None = None) -> None:
        meter = metrics.get_meter(SCOPE, meter_provider=provider)
        self._duration = meter.create_histogram(
            "messaging.client.operation.duration",
            unit="s",
            description="Duration of messaging operation initiated by a producer or consumer client.",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )
        self._sent = meter.create_counter(
            "messaging.client.sent.messages",
            unit="{message}",
            description="Number of messages producer attempted to send to the broker.",
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages",
            unit="{message}",
            description="Number of messages that were delivered to the application.",
        )
        self._turns = meter.create_counter(
            "pairbus.health.turns", unit="{turn}", description="How often an entity's health has turned."
        )

    def record(self, record: Record) -> None:
        """Count an operation, or a turn of health."""
        if record.kind is Kind.TURN:
            turned = {"messaging.destination.name": record.entity, "pairbus.state": record.detail or ""}
            self._turns.add(1, {**turned, "server.address": record.namespace})
            return
        attributes = _attributes(record.kind, record.namespace, record.entity, record.stage)
        if record.outcome is not Outcome.DONE:
            attributes["error.type"] = record.detail or record.outcome.value
        self._duration.record(record.duration_us / 1e6, attributes)
        if record.kind in {Kind.SEND, Kind.SCHEDULE}:
            self._sent.add(record.messages, attributes)
        elif record.kind is Kind.RECEIVE:
            self._consumed.add(record.messages, attributes)


def _attributes(kind: Kind, namespace: str, entity: str, stage: Stage) -> dict[str, str | int]:
    attributes: dict[str, str | int] = {
        "messaging.system": "servicebus",
        "messaging.operation.name": _name(kind),
        "messaging.destination.name": entity,
        "server.address": namespace,
        "pairbus.stage": stage.value,
    }
    operation = _TYPES.get(kind)
    if operation is not None:
        attributes["messaging.operation.type"] = operation
    if operation == "settle":
        attributes["messaging.servicebus.disposition_status"] = _name(kind)
    return attributes


def _name(kind: Kind) -> str:
    return "receive" if kind is Kind.EMPTY_RECEIVE else kind.value.replace("-", "_")


def _parent(started: Started, contexts: Sequence[SpanContext]) -> Context | None:
    """Return what a span is below: what is under way here; else the message's trace, which a new attempt goes on with.

    A syphon moves messages of many traces at once: its own spans are below none of them.
    """
    if trace.get_current_span().get_span_context().is_valid or started.stage is Stage.SYPHON or not contexts:
        return None
    return _in_trace(contexts[0])


def _in_trace(context: SpanContext) -> Context:
    return trace.set_span_in_context(trace.NonRecordingSpan(context), Context())


def _distinct(carried: Iterable[SpanContext | None]) -> list[SpanContext]:
    return list({(context.trace_id, context.span_id): context for context in carried if context is not None}.values())


def _carried(properties: Properties) -> SpanContext | None:
    """Return the context that a message carries."""
    headers = {
        TRACE_PARENT: _text(properties, TRACE_PARENT) or _text(properties, DIAGNOSTIC_ID),
        TRACE_STATE: _text(properties, TRACE_STATE),
    }
    found = _PROPAGATOR.extract({name: value for name, value in headers.items() if value}, Context())
    context = trace.get_current_span(found).get_span_context()
    return context if context.is_valid else None


def _text(properties: Properties, name: str) -> str:
    value = properties.get(name, properties.get(name.encode(), ""))
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _inject(properties: Properties, headers: Mapping[str, str]) -> None:
    if TRACE_PARENT in headers:
        properties[DIAGNOSTIC_ID] = headers[TRACE_PARENT]
    properties.update(headers)
