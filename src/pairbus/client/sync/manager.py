"""The administration of a namespace: the SDK's own client, for Azure and for the embedded broker."""

# ruff: noqa: ANN401 (the SDK's own arguments are handed on)

from typing import Any, Self, cast

from azure.core.credentials import TokenCredential
from azure.core.pipeline.transport import RequestsTransport
from azure.servicebus.management import ServiceBusAdministrationClient

from pairbus.links.plain_http import plain


class NamespaceManager(ServiceBusAdministrationClient):
    """The SDK's administration client, which also reaches a broker without TLS.

    Everything but ``use_tls`` is as with :class:`azure.servicebus.management.ServiceBusAdministrationClient`.

    :param use_tls: whether the namespace speaks TLS; :meth:`from_connection_string` knows it by itself.
    """

    def __init__(
        self, fully_qualified_namespace: str, credential: TokenCredential, *, use_tls: bool = True, **options: Any
    ) -> None:
        if not use_tls and "transport" not in options:
            options["transport"] = _PlainTransport(**{"use_env_settings": False, **options})
        super().__init__(fully_qualified_namespace, credential, **options)

    @classmethod
    def from_connection_string(cls, conn_str: str, **options: Any) -> Self:
        """Make a manager from the connection string that the data client has too."""
        return cast("Self", super().from_connection_string(conn_str, **options))

    def __enter__(self) -> Self:
        super().__enter__()
        return self


class _PlainTransport(RequestsTransport):
    def send(self, request: Any, **options: Any) -> Any:
        sdk: Any = super()
        with plain(request):
            return sdk.send(request, **options)
