"""What the README and the documentation tell a reader to run does run."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from pairbus.testing import EmbeddedBroker

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TUTORIAL = "docs/tutorial.md"  # whose commands tests/client/test_tutorial.py runs, in their order
NOT_RUN = "# not run"
"""How a block begins that cannot be run here, and why."""
ELSEWHERE = {
    "make demo": "runs pairbus demo, which the command's tests run",
    "make test": "is what runs this test",
    "pairbus simulate --seeds 10000": "is what make chaos runs",
    "pairbus syphon --once": "tests/client/test_tutorial.py runs it",
    "pairbus report ledger/ --out tables/": "tests/spark runs it",
    "pairbus status": "needs a pair; tests/client/test_command_pages.py runs it",
    "pairbus drill": "likewise",
    "pairbus deadletter list": "likewise",
    "pairbus dashboard --ledger ledger/": "does not end by itself; tests/browser runs it",
    "pairbus dashboard --ledger ./ledger": "does not end by itself; tests/browser runs it",
    "export PAIRBUS_DASHBOARD_TOKEN=$(openssl rand -hex 16)": "is for the next command",
    "pairbus dashboard --ledger ./ledger --host 0.0.0.0 --certificate server.pem --key server.key": "likewise",
}
FOR_A_BROKER = ("pairbus broker", "pairbus fault ", "curl ")
"""These do not end by themselves, or need one that runs: see below, and tests/contract."""
FOR_A_PAIR = ("docs/how-to/messages.md", "docs/how-to/dead-letters.md", "docs/how-to/drill.md")
"""Pages whose commands need a pair: tests/client/test_command_pages.py runs them, in their order."""


def blocks(language: str) -> list[tuple[str, str]]:
    fence = re.compile(rf"^```{language}\n(.*?)^```", re.MULTILINE | re.DOTALL)
    return [
        (f"{page.relative_to(ROOT)}:{index}", block)
        for page in PAGES
        for index, block in enumerate(fence.findall(page.read_text(encoding="utf-8")))
    ]


def commands() -> list[tuple[str, str]]:
    return [(where, line.partition("#")[0].strip()) for where, block in blocks("sh") for line in block.splitlines()]


def pages() -> list[str]:
    return list(dict.fromkeys(where.partition(":")[0] for where, _ in blocks("python")))


@pytest.mark.parametrize("page", pages())
def test_python_blocks_of_a_page_run_one_after_the_other(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where they may leave files
    with EmbeddedBroker(namespaces=["contoso", "fabrikam"], queues=["contoso/orders"]) as broker:
        names: dict[str, object] = {
            "__name__": "__main__",
            "primary_connection_string": broker.endpoints["contoso"].connection_string,
            "secondary_connection_string": broker.endpoints["fabrikam"].connection_string,
        }
        with ExitStack() as opened:
            for where, code in blocks("python"):
                if where.partition(":")[0] == page and not code.startswith(NOT_RUN):
                    exec(compile(code, where, "exec"), names)  # noqa: S102 (the page's own code)
            for left_open in names.values():
                close: Callable[[], None] | None = getattr(left_open, "close", None)
                if close is not None and not isinstance(left_open, type):
                    opened.callback(close)


@pytest.mark.parametrize(("where", "command"), commands())
def test_commands_run(where: str, command: str) -> None:
    if command in ELSEWHERE or command.startswith(FOR_A_BROKER) or where.startswith((*FOR_A_PAIR, TUTORIAL)):
        return
    program, *arguments = shlex.split(command)
    assert program == "pairbus", where
    subprocess.run([Path(sys.executable).with_name(program), *arguments], check=True, capture_output=True)


def test_the_broker_of_the_readme_serves_a_script_of_the_sdk_and_ends_in_order(tmp_path: Path) -> None:
    """One terminal and another: what the broker prints is what the SDK needs."""
    command = [sys.executable, "-m", "pairbus", "broker", "--queue", "orders", "--data", str(tmp_path), "--port", "0"]
    with subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stdout is not None
            ready = json.loads(broker.stdout.readline())
            facts = {"namespace", "port", "connection_string", "address", "tls_connection_string", "ca_file"}
            assert ready.keys() == facts
            with ServiceBusClient.from_connection_string(ready["connection_string"]) as client:
                with client.get_queue_sender("orders") as sender:
                    sender.send_messages(ServiceBusMessage("one coffee"))
                with client.get_queue_receiver("orders") as receiver:
                    (message,) = receiver.receive_messages(max_wait_time=10)
                    assert str(message) == "one coffee"
                    receiver.complete_message(message)
        finally:
            broker.terminate()
    assert broker.returncode == 0
