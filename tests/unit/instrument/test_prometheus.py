"""A client's metrics for Prometheus."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from pairbus.core.ledger import Kind, Stage
from pairbus.instrument.hooks import Instrument
from pairbus.instrument.prometheus import PrometheusMetrics

LABELS = ("namespace", "entity", "kind", "stage", "outcome")


def samples(registry: CollectorRegistry) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *(sample.labels[name] for name in LABELS if name in sample.labels)): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
        if not sample.name.endswith(("_created", "_bucket"))
    }


def test_operations_messages_bytes_seconds_and_failover() -> None:
    registry = CollectorRegistry()
    sink = PrometheusMetrics(registry)
    watched = Instrument([sink], elapsed=iter([0.0, 0.5, 1.0, 1.25, *range(2, 20)]).__next__)
    watched.begin("fabrikam", "b/0", Kind.SEND, Stage.PARK, sizes=[10, 70_000]).done()
    watched.begin("contoso", "orders", Kind.SEND, Stage.DIRECT, sizes=[10]).failed(OSError())
    watched.begin("contoso", "orders", Kind.PING, Stage.PING, sizes=[10]).done()
    watched.turn("contoso", "orders", "engaged")
    seen = samples(registry)
    assert seen["pairbus_client_operations_total", "fabrikam", "b/0", "send", "park", "done"] == 3
    assert seen["pairbus_client_messages_total", "fabrikam", "b/0", "send", "park", "done"] == 2
    assert seen["pairbus_client_message_bytes_total", "fabrikam", "b/0", "send", "park", "done"] == 70_010
    assert seen["pairbus_client_operations_total", "contoso", "orders", "send", "direct", "failed"] == 1
    assert seen["pairbus_client_messages_total", "contoso", "orders", "ping", "ping", "done"] == 0  # G3
    assert seen["pairbus_client_operation_seconds_sum", "fabrikam", "send", "park"] == 0.5
    assert seen["pairbus_client_failover_engaged", "contoso", "orders"] == 1
    watched.turn("contoso", "orders", "healthy")
    assert samples(registry)["pairbus_client_failover_engaged", "contoso", "orders"] == 0


def test_a_registry_takes_one_which_instruments_share() -> None:
    registry = CollectorRegistry()
    sink = PrometheusMetrics(registry)
    for client in ("one", "other"):
        Instrument([sink], client=client).begin("a", "b", Kind.SEND, Stage.DIRECT, sizes=[1]).done()
    assert samples(registry)["pairbus_client_operations_total", "a", "b", "send", "direct", "done"] == 2
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        PrometheusMetrics(registry)
