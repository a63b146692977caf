"""The switchboards of embedded brokers that run on this machine (:mod:`pairbus.broker.run.control`). Blocking."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pairbus.broker.faults.board import FaultKind
from pairbus.broker.run.control import ControlError, ask, running
from pairbus.dashboard.guard import is_loopback


@dataclass(frozen=True, slots=True)
class FaultOn:
    """A fault that is switched on; ``until`` None: until it is cleared."""

    where: str
    kind: str
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Board:
    """The switchboard of one namespace."""

    namespace: str
    port: int
    socket: Path
    faults: tuple[FaultOn, ...] = ()

    def switch_on(self, kind: str, *, entity: str = "", lasts: str = "", latency: str = "") -> None:
        """Switch a fault on, in words: ``silent``, ``orders``, ``30s``, ``200ms``."""
        where = f"{self.namespace}/{entity}" if entity else self.namespace
        options = {"lasts": lasts or None, "latency": latency or None, "rate": None}
        ask(self.socket, {"do": "fault", "where": where, "kind": kind, **options})

    def clear(self) -> None:
        """Switch all faults off."""
        ask(self.socket, {"do": "fault", "where": self.namespace, "kind": "clear"})


KINDS = tuple(kind.value for kind in FaultKind)


def local_port(connection_string: str) -> int | None:
    """Return the port of a namespace that is on this machine; None: it is elsewhere, or it is the cloud's."""
    found = re.search(r"(?i)(?:^|;)\s*Endpoint=\w+://(\[[^\]]*\]|[^;/:]*):(\d+)", connection_string)
    return int(found[2]) if found is not None and is_loopback(found[1].strip("[]")) else None


def boards(ports: Iterable[int]) -> list[Board]:
    """Return the switchboards of the namespaces on these ports, if a broker of this user serves them."""
    wanted = set(ports)
    found: list[Board] = []
    for path, _ in running() if wanted else ():
        try:
            served: dict[str, int] = ask(path, {"do": "ports"})["ports"]
            faults: dict[str, list[dict[str, Any]]] = ask(path, {"do": "faults"})["faults"]
        except ControlError:
            continue  # it has just ended
        found += [
            Board(name, port, path, tuple(_fault(name, each) for each in faults.get(name, ())))
            for name, port in served.items()
            if port in wanted
        ]
    return found


def _fault(namespace: str, document: dict[str, Any]) -> FaultOn:
    until = document.get("until")
    return FaultOn(
        f"{namespace}/{document['entity']}" if "entity" in document else namespace,
        str(document["kind"]),
        None if until is None else datetime.fromtimestamp(until / 1000, UTC),
    )
