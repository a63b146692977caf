"""HTTP without TLS, for the SDK's administration clients, which have ``https`` hard-coded."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol


class Addressed(Protocol):
    """A request of either generation of the SDK's core."""

    url: str


@contextmanager
def plain(request: Addressed) -> Generator[None]:
    """Have a request go to ``http``; afterwards it has its own address again, for those who sign or repeat it."""
    address = request.url
    request.url = "http://" + address.removeprefix("https://")
    try:
        yield
    finally:
        request.url = address
