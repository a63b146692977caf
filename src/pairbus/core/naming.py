"""Names of namespaces, entities and backlog queues."""

import re
from collections.abc import Iterable

from pairbus.errors import OptionError

TRANSFER = "x-servicebus-transfer"
DEFAULT_PORT = "5671"


def namespace_label(host: str) -> str:
    """Return the first label of a namespace's host name: ``contoso`` of ``contoso.servicebus.windows.net``.

    A scheme, a port and a trailing slash are allowed, as they stand in connection strings. A bare address and
    ``localhost`` name a machine, which may have many namespaces: they stand for themselves, with the port if there is
    one: ``127-0-0-1-5672``.
    """
    name, port = _host_and_port(host)
    label = name.partition(".")[0]
    if name == "localhost" or re.fullmatch(r"[\d.]+|[\da-f:]+:[\da-f:.]*", name):
        label = re.sub("[.:]+", "-", name).strip("-") + (f"-{port}" if port else "")
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", label):
        raise OptionError("namespace", host, "a host name such as 'contoso.servicebus.windows.net'")
    return label


def same_namespace(one: str, other: str) -> bool:
    """Tell whether two host names, with their ports if they have any, mean the same namespace."""
    (name, port), (other_name, other_port) = _host_and_port(one), _host_and_port(other)
    return name == other_name and (port or DEFAULT_PORT) == (other_port or DEFAULT_PORT)


def _host_and_port(host: str) -> tuple[str, str]:
    """Return the host, and the port, which is empty if it is not said."""
    address = host.rpartition("://")[2].partition("/")[0].strip().lower()
    match = re.fullmatch(r"\[(.*)\](?::(\d*))?|([^:]*)(?::(\d*))?", address)
    if match is None:  # an address of many colons, and so without a port
        return address, ""
    name = match[1] if match[1] is not None else match[3]
    return name.removesuffix("."), match[2] or match[4] or ""


def entity_key(path: str) -> str:
    """Return what two spellings of one entity have in common: names are compared case-insensitively (S1)."""
    return path.strip("/").lower()


def backlog_path(primary: str, index: int) -> str:
    """Return the path of the primary's backlog queue ``index`` (B1)."""
    return f"{namespace_label(primary)}/{TRANSFER}/{index}"


def backlog_paths(primary: str, count: int) -> tuple[str, ...]:
    """Return the paths of all backlog queues of a pairing, for index in [0, count) (B1)."""
    return tuple(backlog_path(primary, index) for index in range(count))


def backlog_index(path: str, primary: str) -> int | None:
    """Return which backlog queue of ``primary`` a path names, or None if it names none."""
    prefix = f"{namespace_label(primary)}/{TRANSFER}/"
    match = re.fullmatch(re.escape(prefix) + r"(0|[1-9][0-9]{0,8})", entity_key(path))
    return int(match[1]) if match else None


def extra_backlog_paths(existing: Iterable[str], primary: str, count: int) -> tuple[str, ...]:
    """Return the backlog queues that exist beyond those asked for, which stay as they are (B4)."""
    indexes = ((backlog_index(path, primary), path) for path in existing)
    return tuple(path for _, path in sorted((i, p) for i, p in indexes if i is not None and i >= count))
