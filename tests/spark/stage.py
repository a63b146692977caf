"""A pairing for the tests of the syphon: two brokers, and messages that are parked."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient

from pairbus.amqp import build_message
from pairbus.amqp.message import encode_data_section
from pairbus.amqp.sections import Properties
from pairbus.core.envelope import Label, park
from pairbus.core.naming import backlog_paths
from pairbus.links.sdk.transport import SdkTransport
from pairbus.links.transport import Outgoing
from pairbus.syphon.accounts import Accounts
from pairbus.syphon.survey import Depths
from pairbus.testing import EmbeddedBroker, QueueSettings

AT_ONCE = 200


@dataclass
class Pair:
    """Two namespaces, and the backlog queues of the one in the other."""

    primary: EmbeddedBroker
    secondary: EmbeddedBroker
    queues: Sequence[str]
    accounts: Accounts = field(default_factory=Accounts)

    @property
    def host(self) -> str:
        return host_of(self.primary)

    def depths(self) -> Depths:
        return Depths(self.secondary.connection_string, self.host, len(self.queues))

    async def park(self, messages: Sequence[tuple[int, str, Label]], body: bytes = b"x" * 64) -> None:
        """Park messages: which queue, the message's id, and the label; one without a path is not parked properly."""
        async with ServiceBusClient.from_connection_string(self.secondary.connection_string, retry_total=0) as client:
            transport = SdkTransport(client)
            for index, queue in enumerate(self.queues):
                payloads = [
                    build_message(
                        encode_data_section(body),
                        properties=Properties(message_id=name),
                        application_properties=dict(label.application_properties),
                    )
                    for number, name, label in messages
                    if number == index
                ]
                for start in range(0, len(payloads), AT_ONCE):
                    await transport.send(queue, Outgoing(payloads[start : start + AT_ONCE]))
            await transport.close()


def host_of(broker: EmbeddedBroker) -> str:
    return ServiceBusClient.from_connection_string(broker.connection_string).fully_qualified_namespace


@contextmanager
def pair(
    queues: int = 3,
    destinations: Sequence[str] = ("orders",),
    *,
    process: bool = False,
    data: Path | None = None,
    lock_seconds: int = 60,
) -> Generator[Pair]:
    """Make a pairing."""
    with EmbeddedBroker(
        namespaces=["contoso"], queues=destinations, process=process, data=None if data is None else data / "primary"
    ) as primary:
        paths = backlog_paths(host_of(primary), queues)
        settings = QueueSettings(lock_duration=lock_seconds * 1000)
        with EmbeddedBroker(
            namespaces=["fabrikam"],
            queues=dict.fromkeys(paths, settings),
            process=process,
            data=None if data is None else data / "secondary",
        ) as secondary:
            yield Pair(primary, secondary, paths)


def for_orders(
    count: int, queue: int = 0, prefix: str = "m", destination: str = "orders"
) -> list[tuple[int, str, Label]]:
    """Return so many messages for a destination."""
    label = park(Label(), destination)
    return [(queue, f"{prefix}{number}", label) for number in range(count)]


async def arrived(pair: Pair, destination: str = "orders") -> list[str]:
    """Return the ids of the messages that have arrived, without removing any."""
    async with (
        ServiceBusClient.from_connection_string(pair.primary.connection_string) as client,
        client.get_queue_receiver(destination) as receiver,
    ):
        found: list[ServiceBusReceivedMessage] = []
        while page := await receiver.peek_messages(
            250, sequence_number=(found[-1].sequence_number or 0) + 1 if found else 1
        ):
            found += page
        return [str(message.message_id) for message in found]
