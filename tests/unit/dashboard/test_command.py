"""``pairbus dashboard``, as far as it does not get to serve."""

import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from pairbus import cli
from pairbus.dashboard.faults import local_port

Command: TypeAlias = Callable[..., str]
SHORT = "guess me"
EVERYWHERE = "0.0.0.0"  # noqa: S104 (nobody listens)


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command in this process, which must end with 2: arguments in, what it says out."""
    for variable in ("PRIMARY_CONNECTION_STRING", "SECONDARY_CONNECTION_STRING", "DASHBOARD_TOKEN"):
        monkeypatch.delenv(f"PAIRBUS_{variable}", raising=False)

    def command(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["pairbus", "dashboard", *arguments])
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == 2
        return capsys.readouterr().err

    return command


def test_it_wants_something_to_show(refused: Command) -> None:
    assert "give at least one of --ledger, --primary and --secondary" in refused()


def test_it_is_not_shown_to_others_without_a_token(refused: Command, tmp_path: Path) -> None:
    said = refused("--ledger", str(tmp_path), "--host", EVERYWHERE)
    assert f"host='{EVERYWHERE}' is not valid: this machine only (127.0.0.1), or with a token" in said
    assert SHORT not in refused("--ledger", str(tmp_path), "--host", EVERYWHERE, "--token", SHORT)


def test_a_port_that_is_taken_is_named(refused: Command, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused("--ledger", str(tmp_path), "--port", str(port))
    assert f"port={port} is not valid: one that is free on 127.0.0.1 (Address already in use)" in said


def test_a_certificate_that_cannot_be_read_is_named(refused: Command, tmp_path: Path) -> None:
    file = tmp_path / "server.pem"
    said = refused("--ledger", str(tmp_path), "--port", "0", "--certificate", str(file), "--key", str(file))
    assert f"certificate='{file}' is not valid" in said


def test_a_connection_string_that_cannot_be_read_is_not_shown(refused: Command) -> None:
    said = refused("--primary", "Endpoint=nothing;SharedAccessKey=c2VjcmV0")
    assert "the connection string of the primary cannot be read" in said
    assert "c2VjcmV0" not in said


@pytest.mark.parametrize(
    ("endpoint", "port"),
    [
        ("sb://127.0.0.1:5672", 5672),
        ("sb://localhost:5673/", 5673),
        ("sb://[::1]:5674", 5674),
        ("sb://contoso.servicebus.windows.net/", None),
        ("sb://10.0.0.7:5672", None),
    ],
)
def test_faults_are_for_namespaces_of_this_machine(endpoint: str, port: int | None) -> None:
    assert local_port(f"Endpoint={endpoint};SharedAccessKeyName=Root;SharedAccessKey=x") == port
