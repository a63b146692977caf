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
    :ivar headers: names in lower case.
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
