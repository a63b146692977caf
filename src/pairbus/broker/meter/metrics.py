"""A namespace's metrics, as Prometheus reads them."""

from collections.abc import Iterable
from http import HTTPStatus

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from pairbus.broker.listen.server import NamespaceServer
from pairbus.broker.listen.web import Request, Response
from pairbus.broker.store.timing import BOUNDS, CommitTimes


class Metrics(Collector):
    """One namespace's metrics, in a registry of its own. Labels name entities that exist, kinds and outcomes only."""

    def __init__(self, server: NamespaceServer) -> None:
        self._server = server
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def answer(self, request: Request) -> Response:
        """Answer with the metrics, as OpenMetrics or in Prometheus' own text format, as the request accepts."""
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(HTTPStatus.OK, encode(self._registry), content_type)

    def describe(self) -> Iterable[Metric]:
        """Describe nothing beforehand: what there is depends on the entities."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Return the metrics as they are now."""
        yield from self._operations()
        yield from self._entities()
        yield from _commits(self._server.namespace.store.commits)
        connections = GaugeMetricFamily("pairbus_connections", "Clients that are connected.")
        connections.add_metric((), len(self._server.connections))
        links = GaugeMetricFamily("pairbus_links", "Links that are attached to entities.")
        links.add_metric((), len(self._server.namespace.meter))
        yield from (connections, links)

    def _operations(self) -> Iterable[Metric]:
        meter = self._server.namespace.meter
        meter.gather()
        there = {"", *(node.queue.path for node in self._server.namespace.entities)}
        there.update(topic.path for topic in self._server.namespace.topics)
        labels = ("entity", "kind", "outcome")
        operations = CounterMetricFamily("pairbus_operations", "Operations, as they are charged.", labels=labels)
        messages = CounterMetricFamily("pairbus_messages", "Messages of these operations.", labels=labels)
        size = CounterMetricFamily("pairbus_message_bytes", "Encoded size of these messages.", labels=labels)
        for (entity, kind, outcome), sums in meter.totals.items():
            if entity in there:
                values = (entity, kind.value, outcome.value)
                operations.add_metric(values, sums.operations)
                messages.add_metric(values, sums.messages)
                size.add_metric(values, sums.bytes)
        return operations, messages, size

    def _entities(self) -> Iterable[Metric]:
        counts = GaugeMetricFamily(
            "pairbus_entity_messages",
            "Messages that are there, by state; those under lock are active too.",
            labels=("entity", "state"),
        )
        stored = GaugeMetricFamily("pairbus_stored_bytes", "Encoded size of the messages there.", labels=("entity",))
        damaged = CounterMetricFamily(
            "pairbus_damaged_messages", "Messages that were damaged on the disk, and dead-lettered.", labels=("entity",)
        )
        locks = GaugeMetricFamily("pairbus_locks", "Messages that are under lock.", labels=("entity",))
        for node in self._server.namespace.entities:
            queue = node.queue
            counts.add_metric((queue.path, "active"), queue.active_count)
            counts.add_metric((queue.path, "scheduled"), queue.scheduled_count)
            counts.add_metric((queue.path, "deferred"), len(queue.deferred))
            if queue.dead is not None:
                counts.add_metric((queue.path, "dead-letter"), queue.dead.active_count)
            if queue.transfer_dead is not None:
                counts.add_metric((queue.path, "transfer-dead-letter"), queue.transfer_dead.active_count)
            stored.add_metric((queue.path,), queue.size)
            locks.add_metric((queue.path,), len(queue.locks))
            damaged.add_metric((queue.path,), queue.damaged_count)
        for topic in self._server.namespace.topics:
            counts.add_metric((topic.path, "scheduled"), topic.scheduled_count)
            damaged.add_metric((topic.path,), topic.damaged_count)
        return counts, stored, locks, damaged


def _commits(commits: CommitTimes) -> Iterable[Metric]:
    seconds = HistogramMetricFamily("pairbus_commit_seconds", "How long the store's commits took.")
    total, buckets = 0, list[tuple[str, float]]()
    for bound, count in zip((*map(str, BOUNDS), "+Inf"), tuple(commits.counts), strict=True):
        total += count
        buckets.append((bound, total))
    seconds.add_metric((), buckets, commits.seconds)
    failed = CounterMetricFamily("pairbus_failed_commits", "Commits that the store has refused: a full disk.")
    failed.add_metric((), commits.failed)
    return seconds, failed
