"""The options of a pairing, validated once (P2)."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal, Protocol, TypeAlias, cast, get_args

from pairbus.core.naming import same_namespace
from pairbus.core.verdict import Classify, verdict_of
from pairbus.errors import OptionError, PairingError

Duration: TypeAlias = timedelta | float
"""A ``timedelta``, or a number of seconds."""

OnOutage: TypeAlias = Literal["hold", "raise"]

TransportName: TypeAlias = Literal["sdk", "native"]
"""What carries messages: the official SDK, or the native AMQP client."""


class Namespaced(Protocol):
    """Anything that stands for one namespace: a messaging factory, an administration client."""

    @property
    def fully_qualified_namespace(self) -> str:
        """The namespace's host name."""
        ...


@dataclass(frozen=True, slots=True, init=False)
class SendAvailabilityPairedNamespaceOptions:
    """How sends stay available while the primary namespace is not.

    :param secondary_namespace_manager: administration client of the secondary namespace.
    :param secondary_messaging_factory: factory of the secondary namespace.
    :param backlog_queue_count: how many backlog queues the secondary has for this primary, at least 1.
    :param failover_interval: how long an entity may fail before its messages are parked, 0 to 60 minutes;
        0 redirects the failing send itself.
    :param enable_syphon: carry parked messages home from within this process.
    :param ping_primary_interval: how often an entity that is failing over is asked whether it is back,
        1 second to 30 minutes.
    :param syphon_retry_interval: how long the syphon pauses after a failure, 1 second to 2 minutes.
    :param syphon_transport: what carries messages for the syphon: "native", or "sdk", which is many times slower.
    :param attempt_timeout: the deadline of one attempt to send, 1 millisecond to 10 minutes.
    :param on_outage: "hold" retries a failing send until it is accepted or parked; "raise" gives the
        caller the SDK's error until failover engages.
    :param classify: replaces the table that tells an outage from the caller's own errors.

    A duration is a ``timedelta`` or a number of seconds.
    """

    secondary_namespace_manager: Namespaced
    secondary_messaging_factory: Namespaced
    backlog_queue_count: int
    failover_interval: timedelta
    enable_syphon: bool
    ping_primary_interval: timedelta
    syphon_retry_interval: timedelta
    syphon_transport: TransportName
    attempt_timeout: timedelta
    on_outage: OnOutage
    classify: Classify

    def __init__(
        self,
        secondary_namespace_manager: Namespaced,
        secondary_messaging_factory: Namespaced,
        *,
        backlog_queue_count: int = 10,
        failover_interval: Duration = timedelta(minutes=1),
        enable_syphon: bool = False,
        ping_primary_interval: Duration = timedelta(minutes=1),
        syphon_retry_interval: Duration = timedelta(seconds=1),
        syphon_transport: TransportName = "native",
        attempt_timeout: Duration = timedelta(seconds=15),
        on_outage: OnOutage = "hold",
        classify: Classify = verdict_of,
    ) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        put(
            "secondary_namespace_manager",
            _namespaced("secondary_namespace_manager", secondary_namespace_manager),
        )
        put(
            "secondary_messaging_factory",
            _namespaced("secondary_messaging_factory", secondary_messaging_factory),
        )
        _check_same(secondary_namespace_manager, secondary_messaging_factory)
        put("backlog_queue_count", _count("backlog_queue_count", backlog_queue_count))
        for name, value, low, high in (
            ("failover_interval", failover_interval, timedelta(0), timedelta(minutes=60)),
            ("ping_primary_interval", ping_primary_interval, timedelta(seconds=1), timedelta(minutes=30)),
            ("syphon_retry_interval", syphon_retry_interval, timedelta(seconds=1), timedelta(minutes=2)),
            ("attempt_timeout", attempt_timeout, timedelta(milliseconds=1), timedelta(minutes=10)),
        ):
            put(name, _duration(name, value, low, high))
        put("enable_syphon", _flag("enable_syphon", enable_syphon))
        put("syphon_transport", _one_of("syphon_transport", syphon_transport, get_args(TransportName)))
        put("on_outage", _one_of("on_outage", on_outage, ("hold", "raise")))
        put("classify", _callable("classify", classify))


LONGEST_TIMEOUT: Final = 4_294_967
"""The longest time-out of a send, in seconds (seven weeks): threads cannot wait longer on every platform."""


def check_timeout(timeout: object) -> None:
    """Refuse what is no time-out of a send, before anything is sent.

    :raises OptionError: it is neither None nor a number of seconds greater than 0 that a thread can wait for.
    """
    if timeout is None:
        return
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not is_number or not 0 < cast("float", timeout) <= LONGEST_TIMEOUT:  # also refuses nan
        valid = f"a number of seconds greater than 0, at most {LONGEST_TIMEOUT}, or None for no time-out"
        raise OptionError("timeout", timeout, valid)


def check_pairing(
    primary: str, secondary: str, *, primary_is_paired: bool = False, secondary_is_paired: bool = False
) -> None:
    """Refuse a pairing that cannot work: twice, with itself, or with a secondary that is itself paired (P2)."""
    if primary_is_paired:
        raise PairingError(f"{primary!r} is paired already; make a new factory for another pairing")
    if same_namespace(primary, secondary):
        raise PairingError(
            f"{primary!r} cannot be paired with itself; the secondary must be another namespace, best in another region"
        )
    if secondary_is_paired:
        raise PairingError(
            f"the secondary {secondary!r} is itself paired, and its own failover would hide where messages are; "
            "give the pairing an unpaired factory"
        )


def _namespaced(option: str, value: object) -> object:
    if not isinstance(getattr(value, "fully_qualified_namespace", None), str):
        raise OptionError(option, value, "required, and must have a 'fully_qualified_namespace'")
    return value


def _check_same(manager: Namespaced, factory: Namespaced) -> None:
    managed, sent_to = manager.fully_qualified_namespace, factory.fully_qualified_namespace
    if not same_namespace(managed, sent_to):
        raise OptionError("secondary_namespace_manager", managed, f"it must manage the secondary, {sent_to!r}")


def _count(option: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise OptionError(option, value, "a whole number, at least 1")
    return value


def _flag(option: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise OptionError(option, value, "True or False")
    return value


def _one_of(option: str, value: object, choices: tuple[str, ...]) -> object:
    if value not in choices:
        raise OptionError(option, value, "one of " + ", ".join(map(repr, choices)))
    return value


def _callable(option: str, value: object) -> object:
    if not callable(value):
        raise OptionError(option, value, "a function that takes ErrorFacts and returns a Verdict")
    return value


def _duration(option: str, value: object, low: timedelta, high: timedelta) -> timedelta:
    valid = f"a timedelta or a number of seconds from {low.total_seconds():g} to {high.total_seconds():g}"
    if isinstance(value, bool) or not isinstance(value, timedelta | int | float):
        raise OptionError(option, value, valid)
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if not low.total_seconds() <= seconds <= high.total_seconds():  # also refuses what is not a number
        raise OptionError(option, value, valid)
    return value if isinstance(value, timedelta) else timedelta(seconds=value)
