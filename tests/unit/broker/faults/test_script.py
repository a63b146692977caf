"""Faults from words."""

from pathlib import Path

import pytest

from pairbus.broker.faults.board import FaultKind
from pairbus.broker.faults.script import Order, TimedOrder, read_duration, read_order, read_script
from pairbus.errors import OptionError


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("200ms", 200), ("30s", 30_000), ("1.5m", 90_000), ("2h", 7_200_000), (3, 3000)],
)
def test_durations(text: str | float, milliseconds: int) -> None:
    assert read_duration("for", text) == milliseconds


def test_an_order_names_a_place_and_a_kind() -> None:
    assert read_order("contoso", "down", lasts="30s") == Order("contoso", None, FaultKind.DOWN, 30_000)
    assert read_order("contoso/a/b", "slow", latency="1s", rate="10kb") == Order(
        "contoso", "a/b", FaultKind.SLOW, None, 1000, 10 * 1024
    )
    assert read_order("contoso", "clear") == Order("contoso", None, None)


@pytest.mark.parametrize(
    ("where", "kind", "options", "named"),
    [
        ("", "down", {}, "where"),
        ("contoso", "Down", {}, "kind"),
        ("contoso", "down", {"lasts": "soon"}, "for"),
        ("contoso", "slow", {"latency": "-1s"}, "latency"),
        ("contoso", "slow", {"rate": "fast"}, "rate"),
        ("contoso/orders", "down", {}, "kind"),
    ],
)
def test_a_bad_order_names_what_is_wrong(where: str, kind: str, options: dict[str, str], named: str) -> None:
    with pytest.raises(OptionError) as raised:
        read_order(where, kind, **options)
    assert raised.value.option == named


def test_a_script_is_read_in_the_order_of_time(tmp_path: Path) -> None:
    file = tmp_path / "outage.yaml"
    file.write_text("- {at: 1m, where: contoso, fault: clear}\n- {where: contoso, fault: cut}\n")
    assert read_script(file) == [
        TimedOrder(0, Order("contoso", None, FaultKind.CUT)),
        TimedOrder(60_000, Order("contoso", None, None)),
    ]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{", "script"),
        ("at: 1s", "script"),
        ("- down", "entry 1"),
        ("- {where: contoso}", "entry 1"),
        ("- {where: contoso, fault: cut, when: now}", "entry 1"),
        ("- {where: contoso, fault: cut}\n- {where: contoso, fault: broken}", "entry 2: kind"),
        ("- {at: soon, where: contoso, fault: cut}", "entry 1: at"),
    ],
)
def test_a_bad_script_names_the_entry(tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "outage.yaml"
    file.write_text(text)
    with pytest.raises(OptionError) as raised:
        read_script(file)
    assert raised.value.option == named


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="script"):
        read_script(tmp_path / "none.yaml")
