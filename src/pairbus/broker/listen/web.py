"""What the HTTP side of a namespace's port is made of: a request, a response, and who answers."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Request:
    """One request, whole.

    :ivar path: without its query, percent-decoded: ``/orders/Subscriptions/all``.
    :ivar query: the first value of each name; names in lower case.
    :ivar headers: names in lower case; the values of a name that comes several times are joined by a comma.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Response:
    """One response, whole."""

    status: HTTPStatus
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


Handler: TypeAlias = Callable[[Request], Awaitable[Response]]
"""Answers a request. It does not raise for what is wrong with the request: that is a response too."""


Admit: TypeAlias = Callable[[Request], bool]
"""Tells by a request's head whether its body is to be read: whether its sender may send one, and a handler wants it."""


def no_bodies(_request: Request) -> bool:
    """Have no body read."""
    return False


def when_asked(make: Callable[[], Handler]) -> Handler:
    """Have a handler made when the first request comes: until then what it needs is not even imported."""
    made: list[Handler] = []

    async def answer(request: Request) -> Response:
        if not made:
            made.append(make())
        return await made[0](request)

    return answer


class Routes:
    """Sends each request to who answers it, by the first segment of its path. It is a :data:`Handler` itself.

    :ivar administration: answers what nobody else does, for the other paths are those of entities; None: nobody.
    :ivar may_administer: tells whether the administration reads a request's body.
    """

    def __init__(self) -> None:
        self.administration: Handler | None = None
        self.may_administer: Admit = no_bodies
        self._by_segment: dict[str, Handler] = {}

    def add(self, segment: str, handler: Handler) -> None:
        """Have requests for ``/segment`` and all below it, ``$metrics`` for example, answered by a handler."""
        self._by_segment[segment.lower()] = handler

    def admits(self, request: Request) -> bool:
        """Tell whether a request's body is read: only the administration wants one, of those that may administer."""
        return _segment(request) not in self._by_segment and self.may_administer(request)

    async def __call__(self, request: Request) -> Response:
        """Have a request answered."""
        handler = self._by_segment.get(_segment(request), self.administration)
        if handler is None:
            return Response(HTTPStatus.NOT_FOUND, f"Nothing is served at {request.path}.\n".encode())
        return await handler(request)


def _segment(request: Request) -> str:
    return request.path.lstrip("/").partition("/")[0].lower()
