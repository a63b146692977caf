"""The options of a pairing: P2."""

import dataclasses
import math
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.core.options import SendAvailabilityPairedNamespaceOptions, check_pairing, check_timeout
from pairbus.core.verdict import ErrorFacts, Verdict, verdict_of
from pairbus.errors import OptionError, PairingError

PRIMARY = "contoso.servicebus.windows.net"
SECONDARY = "contoso-dr.servicebus.windows.net"

MICROSECOND = timedelta(microseconds=1)

DURATIONS = {  # option: lowest, highest, and both as a message writes them
    "failover_interval": (timedelta(0), timedelta(minutes=60), "0 to 3600"),
    "ping_primary_interval": (timedelta(seconds=1), timedelta(minutes=30), "1 to 1800"),
    "syphon_retry_interval": (timedelta(seconds=1), timedelta(minutes=2), "1 to 120"),
    "attempt_timeout": (timedelta(milliseconds=1), timedelta(minutes=10), "0.001 to 600"),
}
NOT_A_DURATION: list[object] = [
    True,
    False,
    None,
    "60",
    "",
    math.nan,
    math.inf,
    -math.inf,
    10**400,
    1j,
    Decimal(60),
    [60],
    -1,
    -0.001,
    timedelta.max,
    timedelta.min,
]


@dataclass(frozen=True)
class Namespace:
    fully_qualified_namespace: str = SECONDARY


@dataclass(frozen=True)
class Misnamed:
    fully_qualified_namespace: bytes = SECONDARY.encode()


def options(**given: Any) -> SendAvailabilityPairedNamespaceOptions:  # noqa: ANN401 (wrong types are the point)
    secondary: dict[str, Any] = {"secondary_namespace_manager": Namespace(), "secondary_messaging_factory": Namespace()}
    return SendAvailabilityPairedNamespaceOptions(**secondary | given)


def refusal(option: str, value: object) -> OptionError:
    """The error with which a value is refused; it always names the option, the value and what is valid."""
    with pytest.raises(OptionError) as caught:
        options(**{option: value})
    error = caught.value
    assert error.option == option
    assert error.value is value
    assert str(error) == f"{option}={value!r} is not valid: {error.valid}"
    return error


def all_outages(_: ErrorFacts) -> Verdict:
    return Verdict.OUTAGE


def test_p2_defaults() -> None:
    manager, factory = Namespace(), Namespace()
    made = SendAvailabilityPairedNamespaceOptions(manager, factory)
    assert made.secondary_namespace_manager is manager
    assert made.secondary_messaging_factory is factory
    assert made.backlog_queue_count == 10
    assert made.failover_interval == timedelta(minutes=1)
    assert made.enable_syphon is False
    assert made.ping_primary_interval == timedelta(minutes=1)
    assert made.syphon_retry_interval == timedelta(seconds=1)
    assert made.attempt_timeout == timedelta(seconds=15)
    assert made.syphon_transport == "native"
    assert made.on_outage == "hold"
    assert made.classify is verdict_of


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("backlog_queue_count", 1),
        ("backlog_queue_count", 10_000),
        ("enable_syphon", True),
        ("enable_syphon", False),
        ("syphon_transport", "sdk"),
        ("syphon_transport", "native"),
        ("on_outage", "hold"),
        ("on_outage", "raise"),
        ("classify", all_outages),
        *((option, low) for option, (low, _, _) in DURATIONS.items()),
        *((option, high) for option, (_, high, _) in DURATIONS.items()),
    ],
)
def test_p2_what_is_valid_is_kept_as_it_is(option: str, value: object) -> None:
    assert getattr(options(**{option: value}), option) == value


@pytest.mark.parametrize("option", DURATIONS)
def test_p2_a_number_means_seconds(option: str) -> None:
    low, high, _ = DURATIONS[option]
    assert getattr(options(**{option: 90}), option) == timedelta(minutes=1, seconds=30)
    assert getattr(options(**{option: 1.25}), option) == timedelta(seconds=1, milliseconds=250)
    assert getattr(options(**{option: low.total_seconds()}), option) == low
    assert getattr(options(**{option: high.total_seconds()}), option) == high


@given(st.sampled_from(sorted(DURATIONS)), st.timedeltas(timedelta(seconds=1), timedelta(minutes=2)))
def test_p2_a_timedelta_and_its_seconds_are_the_same_option(option: str, duration: timedelta) -> None:
    assert options(**{option: duration}) == options(**{option: duration.total_seconds()})
    assert getattr(options(**{option: duration}), option) == duration


@pytest.mark.parametrize("option", DURATIONS)
def test_p2_a_duration_just_outside_its_range_is_refused(option: str) -> None:
    low, high, span = DURATIONS[option]
    for outside in (low - MICROSECOND, high + MICROSECOND):
        assert refusal(option, outside).valid == f"a timedelta or a number of seconds from {span}"
        assert refusal(option, outside.total_seconds()).valid == f"a timedelta or a number of seconds from {span}"


@pytest.mark.parametrize("value", NOT_A_DURATION, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize("option", DURATIONS)
def test_p2_what_is_no_duration_is_refused(option: str, value: object) -> None:
    assert DURATIONS[option][2] in str(refusal(option, value))


def test_p2_zero_is_valid_for_the_failover_interval_only() -> None:
    assert options(failover_interval=0).failover_interval == timedelta(0)
    for option in DURATIONS.keys() - {"failover_interval"}:
        refusal(option, 0)


@pytest.mark.parametrize(
    ("option", "values", "valid"),
    [
        (
            "backlog_queue_count",
            (0, -1, True, False, None, 1.0, math.nan, math.inf, "10"),
            "a whole number, at least 1",
        ),
        ("enable_syphon", (0, 1, None, "yes", math.nan), "True or False"),
        ("syphon_transport", ("SDK", "", None, 1), "one of 'sdk', 'native'"),
        ("on_outage", ("HOLD", "", "retry", None, True, 0, ["hold"]), "one of 'hold', 'raise'"),
        ("classify", (None, "verdict_of", Verdict.OUTAGE), "a function that takes ErrorFacts and returns a Verdict"),
        *(
            (option, (None, SECONDARY, object(), Misnamed()), "required, and must have a 'fully_qualified_namespace'")
            for option in ("secondary_namespace_manager", "secondary_messaging_factory")
        ),
    ],
)
def test_p2_every_other_bad_value_is_refused(option: str, values: tuple[object, ...], valid: str) -> None:
    for value in values:
        assert refusal(option, value).valid == valid


def test_p2_a_message_reads_well() -> None:
    assert str(refusal("failover_interval", 3601)) == (
        "failover_interval=3601 is not valid: a timedelta or a number of seconds from 0 to 3600"
    )


def test_p2_both_secondaries_are_required() -> None:
    with pytest.raises(TypeError, match="secondary_messaging_factory"):
        SendAvailabilityPairedNamespaceOptions(Namespace())  # pyright: ignore[reportCallIssue]


def test_p2_options_do_not_change_and_a_changed_copy_is_validated_again() -> None:
    made = options(backlog_queue_count=3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.backlog_queue_count = 4  # pyright: ignore[reportAttributeAccessIssue]
    assert dataclasses.replace(made, failover_interval=5) == options(
        backlog_queue_count=3, failover_interval=timedelta(seconds=5)
    )
    with pytest.raises(OptionError, match="backlog_queue_count=0"):
        dataclasses.replace(made, backlog_queue_count=0)


def test_p2_two_namespaces_can_be_paired() -> None:
    check_pairing(PRIMARY, SECONDARY)


def test_p2_two_ports_of_one_host_can_be_paired() -> None:
    check_pairing("localhost:5671", "localhost:5672")


def test_p2_pairing_twice_is_refused() -> None:
    with pytest.raises(PairingError, match=f"'{PRIMARY}' is paired already"):
        check_pairing(PRIMARY, SECONDARY, primary_is_paired=True)


@pytest.mark.parametrize("secondary", [PRIMARY, PRIMARY.upper(), f"sb://{PRIMARY}/"])
def test_p2_pairing_a_namespace_with_itself_is_refused(secondary: str) -> None:
    with pytest.raises(PairingError, match=f"'{PRIMARY}' cannot be paired with itself"):
        check_pairing(PRIMARY, secondary)


def test_p2_pairing_with_a_paired_secondary_is_refused() -> None:
    with pytest.raises(PairingError, match=f"'{SECONDARY}' is itself paired"):
        check_pairing(PRIMARY, SECONDARY, secondary_is_paired=True)


def test_p2_a_manager_of_another_namespace_than_the_factorys_is_refused() -> None:
    manager, factory = Namespace("elsewhere.servicebus.windows.net"), Namespace("fabrikam.servicebus.windows.net")
    with pytest.raises(OptionError) as caught:
        SendAvailabilityPairedNamespaceOptions(manager, factory)
    assert str(caught.value) == (
        "secondary_namespace_manager='elsewhere.servicebus.windows.net' is not valid: "
        "it must manage the secondary, 'fabrikam.servicebus.windows.net'"
    )


@pytest.mark.parametrize("seconds", [-1e-7, 3600.0000001])
def test_p2_a_value_just_outside_is_not_rounded_into_the_range(seconds: float) -> None:
    with pytest.raises(OptionError):
        options(failover_interval=seconds)


@pytest.mark.parametrize("timeout", [None, 1, 0.001, 4e6])
def test_a_timeout_is_none_or_a_number_of_seconds(timeout: float | None) -> None:
    check_timeout(timeout)


@pytest.mark.parametrize(
    "timeout",
    [0, -1, -0.5, math.nan, math.inf, -math.inf, 4_294_968, 10**400, "5", b"5", True, False, 1j, Decimal(5), [5]],
)
def test_a_timeout_that_is_not_valid_is_refused_by_name(timeout: object) -> None:
    with pytest.raises(OptionError, match="greater than 0") as refused:
        check_timeout(timeout)
    assert (refused.value.option, refused.value.value) == ("timeout", timeout)
    assert str(refused.value).startswith(f"timeout={timeout!r} is not valid: a number of seconds")
