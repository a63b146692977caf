"""The namespaces that a command works with. Connection strings are secrets: nothing here shows one."""

import enum
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from pairbus.errors import ConnectionStringError

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusClient

    from pairbus.aio import MessagingFactory, NamespaceManager

PRIMARY_VARIABLE = "PAIRBUS_PRIMARY_CONNECTION_STRING"
SECONDARY_VARIABLE = "PAIRBUS_SECONDARY_CONNECTION_STRING"

PrimaryOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--primary",
        envvar=PRIMARY_VARIABLE,
        metavar="CONNECTION_STRING",
        show_default=False,
        help="Connection string of the primary namespace; best given by its variable.",
    ),
]
SecondaryOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--secondary",
        envvar=SECONDARY_VARIABLE,
        metavar="CONNECTION_STRING",
        show_default=False,
        help="Connection string of the secondary namespace; best given by its variable.",
    ),
]
BacklogQueuesOption: TypeAlias = Annotated[
    int, typer.Option("--backlog-queues", min=1, help="Backlog queues of the pairing.")
]


class Side(enum.Enum):
    """Which namespace of a pair."""

    PRIMARY = "primary"
    SECONDARY = "secondary"


OnOption: TypeAlias = Annotated[Side, typer.Option("--on", help="The namespace in which the entity is.")]


@dataclass(frozen=True, slots=True)
class Connection:
    """One namespace, and the secret that opens it.

    :ivar host: its host name, with the port if that is not the usual one.
    :ivar entity: the one entity that the connection string is for; None: all.
    """

    side: Side
    host: str
    entity: str | None = None
    secret: str = field(default="", repr=False)

    @property
    def label(self) -> str:
        """The first label of the host name, by which backlog queues are named."""
        from pairbus.core.naming import namespace_label

        return namespace_label(self.host)

    def factory(self, **options: Any) -> "MessagingFactory":  # noqa: ANN401 (the SDK's own)
        """Make a factory, with the SDK's options."""
        from pairbus.aio import MessagingFactory

        return MessagingFactory.from_connection_string(self.secret, **options)

    def client(self, **options: Any) -> "ServiceBusClient":  # noqa: ANN401 (the SDK's own)
        """Make a client of the SDK."""
        from azure.servicebus.aio import ServiceBusClient

        return ServiceBusClient.from_connection_string(self.secret, **options)

    def manager(self) -> "NamespaceManager":
        """Make an administration client."""
        from pairbus.aio import NamespaceManager

        return NamespaceManager.from_connection_string(self.secret, retry_total=1, connection_timeout=10)


def connection(side: Side, text: str | None) -> Connection:
    """Read the connection string of a namespace that the command cannot do without."""
    found = optional(side, text)
    if found is None:
        variable = PRIMARY_VARIABLE if side is Side.PRIMARY else SECONDARY_VARIABLE
        raise ConnectionStringError(f"no {side.value} namespace is given: set {variable}, or give --{side.value}")
    return found


def optional(side: Side, text: str | None) -> Connection | None:
    """Read the connection string of a namespace, if there is one."""
    if text is None or not text.strip():
        return None
    from pairbus.operate.connection_strings import host_of

    # What belongs to one entity opens its sub-queues too, of which the SDK would say that they are others.
    entity = re.search(r"(?i)(?:^|;)\s*EntityPath=([^;]*)", text)
    whole = re.sub(r"(?i)(^|;)\s*EntityPath=[^;]*", r"\1", text.strip())
    return Connection(side, host_of(whole, side.value), entity[1] if entity else None, whole)


def chosen(on: Side, primary: str | None, secondary: str | None) -> Connection:
    """Return the namespace that an option has chosen."""
    return connection(on, primary if on is Side.PRIMARY else secondary)
