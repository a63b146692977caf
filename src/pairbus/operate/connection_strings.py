"""Connection strings as users give them. They are secrets: no error shows one."""

from azure.servicebus.aio import ServiceBusClient

from pairbus.errors import ConnectionStringError


def host_of(connection_string: str, whose: str) -> str:
    """Return the host name of the namespace that a connection string opens.

    :param whose: ``primary`` or ``secondary``, for the error.
    :raises ConnectionStringError: it cannot be read.
    """
    try:
        return ServiceBusClient.from_connection_string(connection_string).fully_qualified_namespace
    except (ValueError, KeyError, IndexError, AttributeError):
        raise ConnectionStringError(
            f"the connection string of the {whose} cannot be read: copy it whole, as the portal shows it "
            "(Endpoint=sb://...;SharedAccessKeyName=...;SharedAccessKey=...)"
        ) from None
