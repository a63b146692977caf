"""A client's metrics for Prometheus, in a registry that is handed in."""

from typing import Final

from pairbus.core.health import State
from pairbus.core.ledger import Kind, Record

try:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
except ImportError as error:
    raise ImportError("prometheus_client is not installed: pip install pairbus[telemetry]") from error

_LABELS: Final = ("namespace", "entity", "kind", "stage", "outcome")
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 900.0)
"""Seconds; a syphon's long poll is 900 (Y2)."""


class PrometheusMetrics:
    """Counts operations, messages and bytes, and shows failover. It is a :class:`~pairbus.instrument.hooks.Sink`.

    :param registry: where the metrics are shown, ``prometheus_client.REGISTRY`` for example. A registry takes one of
        these; any number of instruments may share it.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._operations = Counter(
            "pairbus_client_operations", "Operations, as they are charged.", _LABELS, registry=registry
        )
        self._messages = Counter("pairbus_client_messages", "Messages of these operations.", _LABELS, registry=registry)
        self._bytes = Counter(
            "pairbus_client_message_bytes", "Encoded size of these messages.", _LABELS, registry=registry
        )
        self._seconds = Histogram(
            "pairbus_client_operation_seconds",
            "How long operations took.",
            ("namespace", "kind", "stage"),
            buckets=_BUCKETS,
            registry=registry,
        )
        self._engaged = Gauge(
            "pairbus_client_failover_engaged",
            "1 as long as messages for the entity are parked.",
            ("namespace", "entity"),
            registry=registry,
        )

    def record(self, record: Record) -> None:
        """Count an operation, or show a turn of health."""
        if record.kind is Kind.TURN:
            engaged = record.detail == State.ENGAGED.value
            self._engaged.labels(record.namespace, record.entity).set(engaged)
            return
        labels = (
            record.namespace,
            record.entity,
            record.kind.value,
            record.stage.value,
            record.outcome.value,
        )
        self._operations.labels(*labels).inc(record.operations)
        self._messages.labels(*labels).inc(record.messages)
        self._bytes.labels(*labels).inc(record.bytes)
        self._seconds.labels(record.namespace, record.kind.value, record.stage.value).observe(record.duration_us / 1e6)
