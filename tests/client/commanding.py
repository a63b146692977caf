"""The ``pairbus`` command in this process, between two brokers."""

import io
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from pairbus import cli
from pairbus.testing import EmbeddedBroker, QueueSettings

QUEUES = {
    "contoso/orders": QueueSettings(),
    "contoso/copy": QueueSettings(),
    "contoso/tables": QueueSettings(requires_session=True),
}


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


@dataclass
class Shell:
    """Runs commands.

    :ivar broker: the namespaces contoso, which is the primary, and fabrikam.
    """

    broker: EmbeddedBroker
    capsys: pytest.CaptureFixture[str]
    monkeypatch: pytest.MonkeyPatch

    @property
    def primary(self) -> str:
        return self.broker.endpoints["contoso"].connection_string

    @property
    def secondary(self) -> str:
        return self.broker.endpoints["fabrikam"].connection_string

    @property
    def backlog(self) -> str:
        """Where the secondary has the backlog queues."""
        return f"127-0-0-1-{self.broker.endpoints['contoso'].port}/x-servicebus-transfer"

    def __call__(self, *arguments: str, stdin: str | None = None, **environment: str | None) -> Ended:
        """Run a command, paired unless the environment says otherwise."""
        given = {
            "PAIRBUS_PRIMARY_CONNECTION_STRING": self.primary,
            "PAIRBUS_SECONDARY_CONNECTION_STRING": self.secondary,
            "COLUMNS": "160",
            **environment,
        }
        with self.monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["pairbus", *arguments])
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((stdin or "").encode())))
            for name, value in given.items():
                if value is None:
                    patch.delenv(name, raising=False)
                else:
                    patch.setenv(name, value)
            with pytest.raises(SystemExit) as ended:
                cli.main()
        captured = self.capsys.readouterr()
        for secret in (self.primary, self.secondary):
            key = secret.partition("SharedAccessKey=")[2].partition(";")[0]
            assert key not in captured.out + captured.err, "a key was shown"
        return Ended(int(ended.value.code or 0), captured.out, captured.err)


UNPAIRED: dict[str, Any] = {"PAIRBUS_SECONDARY_CONNECTION_STRING": None}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """Two namespaces, for all tests of a module."""
    topics = {"contoso/news": ["all", "audit"]}
    with EmbeddedBroker(namespaces=["contoso", "fabrikam"], queues=QUEUES, topics=topics) as broker:
        yield broker


@pytest.fixture
def pairbus(
    broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shell]:
    """The command; whatever a test has left in the queues is removed."""
    shell = Shell(broker, capsys, monkeypatch)
    yield shell
    for namespace in broker.faults():
        broker.fault(namespace, "clear")
    for path, settings in QUEUES.items():
        namespace, _, name = path.partition("/")
        broker.delete_queue(name, namespace=namespace)
        broker.create_queue(name, settings, namespace=namespace)
