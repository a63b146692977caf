"""The administration of a namespace, asynchronous: the SDK's own client, for Azure and for the embedded broker."""

# ruff: noqa: ANN401 (the SDK's own arguments are handed on)

from typing import Any, Final, Self, cast

from azure.core.credentials_async import AsyncTokenCredential
from azure.core.pipeline.transport import AioHttpTransport
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from pairbus.links.plain_http import plain

MANAGEMENT_SECONDS: Final = 60.0
"""How long one management operation may take."""


class NamespaceManager(ServiceBusAdministrationClient):
    """The SDK's administration client, which also reaches a broker without TLS.

    Everything but ``use_tls`` is as with :class:`azure.servicebus.aio.management.ServiceBusAdministrationClient`.

    :param use_tls: whether the namespace speaks TLS; :meth:`from_connection_string` knows it by itself.
    """

    def __init__(
        self, fully_qualified_namespace: str, credential: AsyncTokenCredential, *, use_tls: bool = True, **options: Any
    ) -> None:
        if not use_tls and "transport" not in options:
            options["transport"] = _PlainTransport(**{"use_env_settings": False, **options})
        super().__init__(fully_qualified_namespace, credential, **options)

    @classmethod
    def from_connection_string(cls, conn_str: str, **options: Any) -> Self:
        """Make a manager from the connection string that the data client has too."""
        return cast("Self", super().from_connection_string(conn_str, **options))

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        return self


class _PlainTransport(AioHttpTransport):
    async def send(self, request: Any, **options: Any) -> Any:
        sdk: Any = super()
        with plain(request):
            return await sdk.send(request, **options)
