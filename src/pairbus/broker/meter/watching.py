"""What a namespace's port tells those who watch it: ``GET /$health``, ``/$ready`` and ``/$metrics``.

Health and readiness are open to everybody: they say one word. Metrics name the entities; they are open where the broker
listens on this machine only, and elsewhere to those with a token for the namespace that has the Listen claim: who may
read all messages may know how many there are.
"""

import ipaddress
import logging
from http import HTTPStatus
from typing import Final

from pairbus.broker.access.policies import Right
from pairbus.broker.listen.server import NamespaceServer
from pairbus.broker.listen.web import Handler, Request, Response
from pairbus.broker.meter.metering import Meter
from pairbus.broker.store.base import StoreError

_LOGGER = logging.getLogger(__name__)

METRICS: Final = "$metrics"
HEALTH: Final = "$health"
READY: Final = "$ready"


def watch(server: NamespaceServer, host: str) -> None:
    """Have a namespace's port answer those who watch it.

    :param host: where the broker listens.
    """
    namespace = server.namespace
    is_open = _is_loopback(host)

    async def answer_metrics(request: Request) -> Response:
        refused = None if is_open else namespace.access.authorize(request, "", Right.LISTEN, namespace.access_clock())
        if refused is not None:
            headers = {"www-authenticate": "SharedAccessSignature"}
            return Response(HTTPStatus.UNAUTHORIZED, f"{refused.text}\n".encode(), headers=headers)
        from pairbus.broker.meter.metrics import Metrics  # noqa: PLC0415 (nobody may ask, and a broker starts sooner without)

        return Metrics(server).answer(request)

    async def answer_health(_request: Request) -> Response:
        return Response(HTTPStatus.OK, b"alive\n")

    async def answer_ready(_request: Request) -> Response:
        try:
            namespace.store.next_due(0)  # any question will do
        except StoreError as error:
            _LOGGER.error("%s: not ready: %s", namespace.name, error)  # noqa: TRY400 (it says why)
            return Response(HTTPStatus.SERVICE_UNAVAILABLE, b"The store cannot be read; the broker's log says why.\n")
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
