"""One tree of errors, and the facts they carry."""

import enum
import inspect
import pickle
import re

import pytest

from pairbus import errors
from pairbus.errors import (
    BacklogUnavailableError,
    CancelUnavailableError,
    ColumnError,
    ConnectionStringError,
    DocumentError,
    FactoryClosedError,
    FactoryEndedError,
    FactoryFaultedError,
    FactoryForkedError,
    IllegalMoveError,
    LedgerError,
    MessageError,
    MissingExtraError,
    OptionError,
    PairbusError,
    PairingError,
    ParkedMessageTooLargeError,
    PricesError,
    ReservedPropertyError,
    SendTimeoutError,
    SparkUnavailableError,
    TablesError,
)

REFUSED = ConnectionRefusedError("refused")
FULL = OSError("full")

BASES = {
    PairbusError: (Exception,),
    OptionError: (PairbusError, ValueError),
    ConnectionStringError: (PairbusError,),
    PairingError: (PairbusError,),
    MessageError: (PairbusError, ValueError),
    ReservedPropertyError: (MessageError,),
    ParkedMessageTooLargeError: (MessageError,),
    BacklogUnavailableError: (PairbusError,),
    SendTimeoutError: (PairbusError, TimeoutError),
    CancelUnavailableError: (PairbusError,),
    FactoryEndedError: (PairbusError,),
    FactoryClosedError: (FactoryEndedError,),
    FactoryFaultedError: (FactoryEndedError,),
    FactoryForkedError: (FactoryEndedError,),
    IllegalMoveError: (PairbusError, RuntimeError),
    DocumentError: (PairbusError, ValueError),
    LedgerError: (PairbusError, ValueError),
    TablesError: (PairbusError,),
    PricesError: (PairbusError, ValueError),
    MissingExtraError: (PairbusError, ImportError),
    SparkUnavailableError: (PairbusError,),
    ColumnError: (PairbusError, ValueError),
}


class Door(enum.Enum):
    SHUT = "shut"
    OPEN = "open"


@pytest.mark.parametrize("kind", BASES, ids=lambda kind: kind.__name__)
def test_every_error_is_in_one_tree(kind: type[PairbusError]) -> None:
    assert kind.__bases__ == BASES[kind]


def test_the_tree_is_complete_and_drawn_as_it_is() -> None:
    defined = {kind for _, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__}
    assert defined == set(BASES)
    drawn: list[tuple[int, str, str | None]] = [
        (match.start(1), match[1], match[2])
        for line in (errors.__doc__ or "").splitlines()
        if (match := re.search(r"(?:── |^    )(\w+Error)(?: \((\w+)\))?", line))
    ]
    path: list[tuple[int, str]] = []
    as_drawn: dict[str, set[str]] = {}
    for depth, name, also in drawn:
        path = [*((d, n) for d, n in path if d < depth), (depth, name)]
        as_drawn[name] = {path[-2][1] if len(path) > 1 else "Exception"} | ({also} if also else set())
    assert as_drawn == {kind.__name__: {base.__name__ for base in bases} for kind, bases in BASES.items()}


@pytest.mark.parametrize(
    ("error", "text", "facts"),
    [
        (
            OptionError("backlog_queue_count", 0, "a whole number, at least 1"),
            "backlog_queue_count=0 is not valid: a whole number, at least 1",
            {"option": "backlog_queue_count", "value": 0, "valid": "a whole number, at least 1"},
        ),
        (
            ReservedPropertyError(("x-ms-path",)),
            (
                "application property x-ms-path: "
                "reserved for parked messages while the namespace is paired; rename in the application"
            ),
            {"names": ("x-ms-path",)},
        ),
        (
            ReservedPropertyError(("x-ms-path", "x-ms-sessionid")),
            (
                "application properties x-ms-path, x-ms-sessionid: "
                "reserved for parked messages while the namespace is paired; rename in the application"
            ),
            {"names": ("x-ms-path", "x-ms-sessionid")},
        ),
        (
            ParkedMessageTooLargeError(262_000, 262_200, 262_144),
            (
                "a message of 262000 bytes would be 262200 bytes once rewritten for a backlog queue, "
                "which takes 262144 at most; send it in smaller parts"
            ),
            {"size": 262_000, "parked_size": 262_200, "limit": 262_144},
        ),
        (
            ColumnError("body", "array<int>", "it must be binary"),
            "column 'body' (array<int>): it must be binary",
            {"column": "body", "kind": "array<int>", "cure": "it must be binary", "row": None},
        ),
        (
            ColumnError("body", None, "it is null", row="row 3"),
            "column 'body' of row 3: it is null",
            {"column": "body", "kind": None, "cure": "it is null", "row": "row 3"},
        ),
        (
            BacklogUnavailableError("orders", REFUSED, FULL),
            (
                "'orders' is failing over and no backlog queue is left; it was not sent "
                "(primary: ConnectionRefusedError('refused'); backlog: OSError('full'))"
            ),
            {"entity": "orders", "primary_cause": REFUSED, "backlog_cause": FULL, "maybe_sent": False},
        ),
        (
            BacklogUnavailableError("orders", REFUSED, None, maybe_sent=True),
            (
                "'orders' is failing over and no backlog queue is left; it may have arrived all the same "
                "(primary: ConnectionRefusedError('refused'); backlog: no failure)"
            ),
            {"entity": "orders", "primary_cause": REFUSED, "backlog_cause": None, "maybe_sent": True},
        ),
        (
            SendTimeoutError("orders", 30.0, REFUSED, FULL, maybe_sent=False),
            (
                "'orders' did not accept the message within 30 s; it was not sent "
                "(primary: ConnectionRefusedError('refused'); backlog: OSError('full'))"
            ),
            {
                "entity": "orders",
                "timeout": 30.0,
                "primary_cause": REFUSED,
                "backlog_cause": FULL,
                "maybe_sent": False,
            },
        ),
        (
            SendTimeoutError("orders", 0.5, None, maybe_sent=True),
            (
                "'orders' did not accept the message within 0.5 s; it may have arrived all the same "
                "(primary: no failure; backlog: no failure)"
            ),
            {"entity": "orders", "timeout": 0.5, "primary_cause": None, "backlog_cause": None, "maybe_sent": True},
        ),
        (
            CancelUnavailableError("orders"),
            "'orders' is failing over: cancel its scheduled messages when it is back",
            {"entity": "orders"},
        ),
        (
            DocumentError("subject", 7, "text"),
            "subject is 7: text",
            {"field": "subject", "value": 7, "cure": "text"},
        ),
        (FactoryClosedError(), "the factory is closed; make a new one", {}),
        (
            FactoryForkedError(17, 18),
            "the factory belongs to process 17, and this is process 18; make a new one after the fork",
            {"made_in": 17, "used_in": 18},
        ),
        (
            FactoryFaultedError("the disk is full"),
            "the factory has faulted: the disk is full; make a new one",
            {"cause": "the disk is full"},
        ),
        (
            IllegalMoveError(Door.SHUT, Door.OPEN),
            "'open' cannot happen while 'shut'",
            {"state": Door.SHUT, "event": Door.OPEN},
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_error_says_what_happened_and_carries_its_facts(
    error: PairbusError, text: str, facts: dict[str, object]
) -> None:
    """S5, S7, S8, E3, C1: the text is for people, the attributes are for programs."""
    assert str(error) == text
    assert vars(error) == facts


def test_s7_an_error_of_pairbus_that_does_not_say_so_was_raised_before_anything_was_sent() -> None:
    assert not ReservedPropertyError(("x-ms-path",)).maybe_sent
    assert not FactoryClosedError().maybe_sent


def test_c1_a_fault_without_words_is_named_by_its_kind() -> None:
    assert "faulted: TimeoutError()" in str(FactoryFaultedError(TimeoutError()))


@pytest.mark.parametrize(
    "error",
    [
        OptionError("days", 0, "at least 1"),
        ReservedPropertyError(("x-ms-path",)),
        ParkedMessageTooLargeError(1, 2, 3),
        BacklogUnavailableError("orders", OSError("a"), None),
        SendTimeoutError("orders", 1.5, None, maybe_sent=True),
        FactoryFaultedError("why"),
        FactoryClosedError(),
    ],
)
def test_errors_survive_a_journey_to_another_process(error: PairbusError) -> None:
    arrived = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (type(arrived), str(arrived)) == (type(error), str(error))
    assert repr(arrived.__dict__) == repr(error.__dict__)
