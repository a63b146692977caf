"""The ``pairbus`` command, as a user meets it."""

import json
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TypeAlias

import pytest
import typer

from pairbus import __version__, cli
from pairbus.cli.parsing import duration, size
from pairbus.core.envelope import Label
from pairbus.core.routing import Deliver, route

Command: TypeAlias = Callable[..., tuple[int, str, str]]


@pytest.fixture
def pairbus(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command in this process: arguments in; exit code, output and errors out."""

    def command(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["pairbus", *arguments])
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return command


def test_it_is_installed_as_a_command_of_its_own() -> None:
    command = Path(sys.executable).with_name("pairbus")
    ended = subprocess.run([command, "--version"], check=True, capture_output=True, text=True)
    assert ended.stdout == f"pairbus {__version__}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["cost", "--help"], ["simulate", "--help"], ["demo", "--help"]])
def test_help_teaches(pairbus: Command, arguments: list[str]) -> None:
    code, output, _ = pairbus(*arguments)
    assert code == 0
    assert "Usage: pairbus" in output


def test_y2_an_idle_pairing_of_ten_queues_is_28_800_receives_in_30_days(pairbus: Command) -> None:
    code, output, _ = pairbus("cost", "--backlog-queues", "10", "--days", "30", "--json")
    assert code == 0
    forecast = json.loads(output)
    assert forecast["idle_receives"] == 28_800
    assert forecast["operations"] == 28_800
    assert forecast["total"] == forecast["base_charge"] == "9.720000000"


def test_k3_a_forecast_with_outages_as_json(pairbus: Command) -> None:
    code, output, _ = pairbus(
        *["cost", "--messages-per-day", "86400", "--message-size", "65KB", "--clients", "3"],
        *["--outages-per-month", "2", "--outage-length", "1h", "--plan", "basic", "--json"],
    )
    assert code == 0
    forecast = json.loads(output)
    assert forecast["parked_messages"] == 7_200
    assert forecast["stages"]["park"]["operations"] == {"send": 14_400}
    assert forecast["stages"]["ping"]["total"] == 2 * 59 * 3
    assert forecast["stages"]["direct"]["operations"]["receive"] == 86_400 * 30 * 2
    costs = [stage["cost"] for stage in forecast["stages"].values()]
    assert sum(int(cost.replace(".", "")) for cost in costs) == int(forecast["operations_charge"].replace(".", ""))


def test_k2_a_forecast_tells_of_bandwidth(pairbus: Command) -> None:
    arguments = ["cost", "--messages-per-day", "86400", "--message-size", "64KB"]
    arguments += ["--outages-per-month", "2", "--outage-length", "1h", "--plan", "premium"]
    code, output, _ = pairbus(*arguments, "--json")
    assert code == 0
    forecast = json.loads(output)
    parked, size = forecast["parked_messages"] * 65_536, forecast["bytes"]
    assert forecast["stages"]["park"]["bytes"] == {"send": parked}
    assert forecast["stages"]["syphon"]["bytes"] == {"receive": parked, "send": parked}
    assert forecast["stages"]["syphon"]["total_bytes"] == 2 * parked
    assert forecast["stages"]["ping"]["total_bytes"] > 0
    assert size == sum(stage["total_bytes"] for stage in forecast["stages"].values())
    each = f"0.{parked * 20_000_000 // 10**9:09d}"
    assert forecast["stages"]["park"]["bandwidth_cost"] == forecast["stages"]["syphon"]["bandwidth_cost"] == each
    bandwidth = f"0.{2 * (parked * 20_000_000 // 10**9):09d}"
    assert (forecast["bandwidth_charge"], forecast["operations_charge"]) == (bandwidth, "0.000000000")
    assert Decimal(forecast["total"]) == Decimal(forecast["base_charge"]) + Decimal(bandwidth)
    code, output, _ = pairbus(*arguments)
    assert code == 0
    assert f"{size / 1e9:,.3f}" in output
    assert "GB are those of messages that are sent or received" in " ".join(output.split())


def test_k3_a_forecast_as_a_table(pairbus: Command) -> None:
    code, output, _ = pairbus("cost", "--messages-per-day", "1000000")
    assert code == 0
    assert "sent to the primary, received from it" in output
    assert "60,028,800" in output
    assert "List prices as of" in output


def test_k3_prices_are_data_the_user_can_replace(pairbus: Command, tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text(
        '[plans.mine]\ncurrency = "EUR"\nas_of = 2026-01-31\nbase_per_hour = "1"\ntiers = [{ per_million = "1000" }]\n'
    )
    code, output, _ = pairbus("cost", "--prices", str(prices), "--plan", "mine", "--days", "1", "--json")
    assert code == 0
    forecast = json.loads(output)
    assert (forecast["currency"], forecast["prices_as_of"]) == ("EUR", "2026-01-31")
    assert (forecast["base_charge"], forecast["operations_charge"]) == ("24.000000000", "0.960000000")


def test_a_price_file_that_cannot_be_used_is_named_with_what_is_wrong(pairbus: Command, tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text("[plans.mine]\n")
    code, _, errors = pairbus("cost", "--prices", str(prices))
    assert code == 2
    assert f"error: {prices}: plans.mine.currency is None; write a currency's name" in errors


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--plan", "gold"], "plan='gold' is not valid: one of basic, premium, standard"),
        (["--days", "0"], "days=0 is not valid: at least 1"),
        (["--outage-length", "soon"], "Invalid value for --outage-length: 'soon' is not a duration"),
        (["--message-size", "big"], "Invalid value for --message-size: 'big' is not a size"),
    ],
)
def test_bad_input_is_named_with_the_cure(pairbus: Command, arguments: list[str], says: str) -> None:
    code, _, errors = pairbus("cost", *arguments)
    assert code == 2
    assert says in errors


def test_simulate_lives_through_worlds(pairbus: Command) -> None:
    code, output, _ = pairbus("simulate", "--seeds", "60", "--jobs", "2")
    assert code == 0
    assert "60 worlds" in output
    assert "Every rule held in every world." in output


def test_simulate_as_json(pairbus: Command) -> None:
    code, output, _ = pairbus("simulate", "--seeds", "3", "--jobs", "1", "--json")
    assert code == 0
    summary = json.loads(output)
    assert summary["worlds"] == 3
    assert summary["broken_seeds"] == []
    assert summary["accepted"] > 0
    assert summary["seeds_per_second"] > 0


def test_simulate_tells_the_history_of_one_seed(pairbus: Command) -> None:
    code, output, _ = pairbus("simulate", "--seed", "4")
    assert code == 0
    assert "sends m0 to" in output
    assert output.endswith("Every rule held in the world of seed 4.\n")


def test_simulate_ends_with_1_and_the_seed_when_a_rule_is_broken(
    pairbus: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forget_sessions(label: Label) -> object:
        routed = route(label)
        return Deliver(routed.destination, Label()) if isinstance(routed, Deliver) else routed

    monkeypatch.setattr("pairbus.core.burst.route", forget_sessions)
    code, output, _ = pairbus("simulate", "--seeds", "40", "--jobs", "1")
    assert code == 1
    assert "broken: E2 at" in output
    seed = output.split("pairbus simulate --seed ")[-1].split()[0]
    code, history, _ = pairbus("simulate", "--seed", seed)
    assert code == 1
    assert "broken: E2 at" in history


def test_a_certificate_that_cannot_be_used_is_named_with_the_cure(pairbus: Command, tmp_path: Path) -> None:
    file = tmp_path / "server.pem"
    code, _, errors = pairbus("broker", "--port", "0", "--tls", "--certificate", str(file), "--key", str(file))
    assert code == 2
    assert f"error: certificate='{file}' is not valid: a PEM file that can be read" in errors
    code, _, errors = pairbus("broker", "--port", "0", "--certificate", str(file))
    assert code == 2
    assert "give both, or none and have them made" in errors


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("1.5H ", 5400), ("15m", 900), ("2d", 172_800)])
def test_durations(text: str, seconds: float) -> None:
    assert duration("--for", text) == seconds


@pytest.mark.parametrize(("text", "count"), [("512", 512), ("64KB", 65_536), ("1mb", 1_048_576)])
def test_sizes(text: str, count: int) -> None:
    assert size("--size", text) == count


@pytest.mark.parametrize("text", ["", "-1", "1w", "1KB2", "0x10"])
def test_what_is_neither(text: str) -> None:
    for read in (duration, size):
        with pytest.raises(typer.BadParameter):
            read("--option", text)
