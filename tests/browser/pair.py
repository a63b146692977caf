"""A pair of embedded namespaces, a paired client that writes a ledger, and the dashboard."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from azure.servicebus import ServiceBusMessage

from pairbus import MessagingFactory, NamespaceManager, SendAvailabilityPairedNamespaceOptions
from pairbus.instrument.hooks import Instrument
from pairbus.instrument.ledger import LedgerFile
from pairbus.testing import EmbeddedBroker

TOKEN = "nobody-guesses-this"  # noqa: S105 (no secret)


class Pair:
    """Two namespaces in processes of their own, and an application that sends to the first one's queues."""

    def __init__(self, directory: Path, **options: Any) -> None:  # noqa: ANN401 (handed on)
        self.ledger = directory / "ledger"
        self.primary = EmbeddedBroker(
            namespaces=["contoso"],
            queues=["contoso/orders", "contoso/invoices", "contoso/returns"],
            process=True,
        )
        self.secondary = EmbeddedBroker(namespaces=["fabrikam"], process=True)
        self._options: dict[str, Any] = {
            "backlog_queue_count": 3,
            "failover_interval": 1,
            "ping_primary_interval": 1,
            "attempt_timeout": 2,
            "enable_syphon": True,
            **options,
        }
        self._stopped = threading.Event()
        self._sending: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self.primary.start()
        self.secondary.start()
        self._sink = LedgerFile(self.ledger)
        instrument = Instrument([self._sink], client="shop")
        self.factory = MessagingFactory.from_connection_string(self.primary.connection_string, instrument=instrument)
        self._other = MessagingFactory.from_connection_string(self.secondary.connection_string)
        self._manager = NamespaceManager.from_connection_string(self.secondary.connection_string)
        self.factory.pair_namespace(SendAvailabilityPairedNamespaceOptions(self._manager, self._other, **self._options))
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for thread in self._sending:
            thread.join()
        self.factory.close()
        self._other.close()
        self._manager.close()
        self._sink.close()
        self.primary.stop()
        self.secondary.stop()

    def keep_sending(self, queue: str, *, pause: float = 0.05) -> None:
        """Send to a queue until the end."""

        def send() -> None:
            with self.factory.get_queue_sender(queue) as sender:
                while not self._stopped.wait(pause):
                    sender.send_messages(ServiceBusMessage("one coffee"))

        thread = threading.Thread(target=send, name=f"sender to {queue}")
        thread.start()
        self._sending.append(thread)

    def dead_letter(self, queue: str, reason: str, description: str, *bodies: str) -> None:
        """Put messages into a queue of the primary, and have them dead-lettered."""
        with self.factory.get_queue_sender(queue) as sender:
            for body in bodies:
                sender.send_messages(ServiceBusMessage(body, message_id=body))
        with self.factory.get_queue_receiver(queue) as receiver:
            left = len(bodies)
            while left:
                for message in receiver.receive_messages(left, max_wait_time=10):
                    receiver.dead_letter_message(message, reason=reason, error_description=description)
                    left -= 1

    @property
    def connections(self) -> Mapping[str, str]:
        """Environment variables with the connection strings of both namespaces."""
        return {
            "PAIRBUS_PRIMARY_CONNECTION_STRING": self.primary.connection_string,
            "PAIRBUS_SECONDARY_CONNECTION_STRING": self.secondary.connection_string,
        }


@contextmanager
def dashboard(
    *arguments: str, env: Mapping[str, str] | None = None, ends_by: signal.Signals = signal.SIGTERM
) -> Generator[str]:
    """Run ``pairbus dashboard``; gives its address. It must end in order when it is asked to, and say nothing."""
    command = [sys.executable, "-m", "pairbus", "dashboard", "--port", "0", "--json", "--every", "1s", *arguments]
    with subprocess.Popen(
        command, env={"PATH": "/usr/bin:/bin", **(env or {})}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        assert line, process.stderr.read()
        try:
            yield json.loads(line)["url"]
        finally:
            process.send_signal(ends_by)
            said = process.stderr.read()
    assert (process.returncode, said) == (0, "")
