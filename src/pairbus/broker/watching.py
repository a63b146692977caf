"""What a namespace's port tells those who watch it: ``GET /$health``, ``/$ready`` and ``/$metrics``.

Health and readiness are open to everybody: they say one word. Metrics name the entities; they are open where the broker
listens on this machine only, and elsewhere to those whom ``authorize`` lets in.
"""

import ipaddress
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Final, TypeAlias

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from pairbus.broker.metering import Meter
from pairbus.broker.server import NamespaceServer
from pairbus.broker.store.base import StoreError
from pairbus.broker.store.timing import BOUNDS, CommitTimes
from pairbus.broker.web import Handler, Request, Response

Authorize: TypeAlias = Callable[[Request], bool]
"""Tells whether a request may see the metrics."""

METRICS: Final = "$metrics"
HEALTH: Final = "$health"
READY: Final = "$ready"


def watch(server: NamespaceServer, host: str, authorize: Authorize | None = None) -> None:
    """Have a namespace's port answer those who watch it.

    :param host: where the broker listens.
    :param authorize: tells who may see the metrics from another machine; None: nobody.
    """
    metrics = Metrics(server)
    is_open = _is_loopback(host)

    async def answer_metrics(request: Request) -> Response:
        if not (is_open or (authorize is not None and authorize(request))):
            return Response(
                HTTPStatus.UNAUTHORIZED,
                b"The metrics are for those with a token that has the Manage claim, or on the broker's own machine.\n",
                headers={"www-authenticate": "SharedAccessSignature"},
            )
        return metrics.answer(request)

    async def answer_health(_request: Request) -> Response:
        return Response(HTTPStatus.OK, b"alive\n")

    async def answer_ready(_request: Request) -> Response:
        try:
            server.namespace.store.next_due(0)  # any question will do
        except StoreError as error:
            return Response(HTTPStatus.SERVICE_UNAVAILABLE, f"The store cannot be read: {error}\n".encode())
        return Response(HTTPStatus.OK, b"ready\n")

    for segment, handler in ((METRICS, answer_metrics), (HEALTH, answer_health), (READY, answer_ready)):
        server.routes.add(segment, _exactly(segment, handler))


def metered(handler: Handler, meter: Meter) -> Handler:
    """Have the requests that a handler answers counted as management, of the client that its user agent names."""

    async def answer(request: Request) -> Response:
        response = await handler(request)
        failed = response.status >= HTTPStatus.BAD_REQUEST
        meter.count_management(request.headers.get("user-agent", ""), request.path.strip("/"), failed=failed)
        return response

    return answer


def _exactly(segment: str, handler: Handler) -> Handler:
    async def answer(request: Request) -> Response:
        if request.path.strip("/").lower() != segment:
            return Response(HTTPStatus.NOT_FOUND, f"Nothing is served at {request.path}.\n".encode())
        if request.method not in {"GET", "HEAD"}:
            return Response(HTTPStatus.METHOD_NOT_ALLOWED, b"GET is all there is.\n", headers={"allow": "GET, HEAD"})
        return await handler(request)

    return answer


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


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
        there = {"", *(node.queue.path for node in self._server.namespace)}
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
        locks = GaugeMetricFamily("pairbus_locks", "Messages that are under lock.", labels=("entity",))
        for node in self._server.namespace:
            queue = node.queue
            counts.add_metric((queue.path, "active"), queue.active_count)
            counts.add_metric((queue.path, "scheduled"), queue.scheduled_count)
            counts.add_metric((queue.path, "deferred"), len(queue.deferred))
            if queue.dead is not None:
                counts.add_metric((queue.path, "dead-letter"), queue.dead.active_count)
            stored.add_metric((queue.path,), queue.size)
            locks.add_metric((queue.path,), len(queue.locks))
        for topic in self._server.namespace.topics:
            counts.add_metric((topic.path, "scheduled"), topic.scheduled_count)
        return counts, stored, locks


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
