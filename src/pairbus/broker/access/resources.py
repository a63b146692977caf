"""What tokens are for: a namespace, or an entity in it, written as a URI."""

from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import unquote

Path: TypeAlias = tuple[str, ...]
"""The segments of an entity's path, in lower case; empty: the whole namespace."""

MANAGEMENT: Final = "$management"
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_EVERYWHERE: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 (compared with, not listened on)


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource: ``sb://contoso:5672/Orders/`` is the path ``("orders",)`` on the host ``contoso``."""

    host: str
    path: Path


@dataclass(frozen=True, slots=True)
class Hosts:
    """The names under which a namespace is known.

    :param namespace: its name; ``contoso.servicebus.windows.net`` is ``contoso`` too.
    :param address: where it listens. If that is every address of the machine, it cannot know its names: all fit.
    """

    namespace: str
    address: str = "127.0.0.1"

    def fit(self, host: str) -> bool:
        """Tell whether a host is this namespace's."""
        return (
            self.address in _EVERYWHERE
            or host in _LOOPBACK
            or host == self.address.lower()
            or host.partition(".")[0] == self.namespace.lower()
        )


def resource(uri: str) -> Resource:
    """Read a URI: the scheme, the port, a query and slashes too many say nothing. Never raises."""
    rest = uri.partition("://")[2] if "://" in uri else uri
    authority, _, path = rest.partition("/")
    host = authority.rpartition("@")[2]
    host = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return Resource(host.lower(), path_of(path.partition("?")[0]))


def path_of(text: str) -> Path:
    """Return the segments of a path; ``$management`` at its end is the entity itself."""
    parts = tuple(part for part in unquote(text).lower().split("/") if part)
    return parts[:-1] if parts and parts[-1] == MANAGEMENT else parts


def covers(outer: Path, inner: Path) -> bool:
    """Tell whether a path is another one, or above it."""
    return inner[: len(outer)] == outer
