"""S10: the synchronous API never blocks longer than its ``timeout`` and a second, whatever the broker does."""

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

import pairbus
from pairbus.broker.faults.board import FaultKind
from pairbus.errors import PairbusError
from pairbus.testing import EmbeddedBroker

TIMEOUT = 1.0
LATER = datetime(2044, 1, 1, tzinfo=UTC)


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize("kind", FaultKind)
def test_s10_a_synchronous_call_ends_in_its_time_against_every_fault(kind: FaultKind) -> None:
    """Paired and not, with a link that is open and with one that is to be opened."""

    def ends_in_time(call: Callable[[], object]) -> None:
        began = time.monotonic()
        with suppress(ServiceBusError, PairbusError, TimeoutError):
            call()
        assert time.monotonic() - began < TIMEOUT + 1

    with (
        EmbeddedBroker(queues=["orders"]) as one,
        EmbeddedBroker() as two,
        pairbus.MessagingFactory.from_connection_string(one.connection_string) as paired,
        pairbus.MessagingFactory.from_connection_string(one.connection_string) as unpaired,
        pairbus.MessagingFactory.from_connection_string(two.connection_string) as secondary,
        pairbus.NamespaceManager.from_connection_string(two.connection_string) as manager,
    ):
        options = pairbus.SendAvailabilityPairedNamespaceOptions(manager, secondary, backlog_queue_count=1)
        paired.pair_namespace(options)
        for factory in (paired, unpaired):
            sender = factory.get_queue_sender("orders")
            sender.send_messages(ServiceBusMessage("before"))
            one.fault("localhost", kind, latency="5s" if kind is FaultKind.SLOW else None)
            ends_in_time(lambda sender=sender: sender.send_messages(ServiceBusMessage("open"), timeout=TIMEOUT))
            ends_in_time(
                lambda sender=sender: sender.schedule_messages(ServiceBusMessage("later"), LATER, timeout=TIMEOUT)
            )
            fresh = factory.get_queue_sender("orders")
            ends_in_time(lambda fresh=fresh: fresh.send_messages(ServiceBusMessage("to be opened"), timeout=TIMEOUT))
            one.fault("localhost", "clear")
