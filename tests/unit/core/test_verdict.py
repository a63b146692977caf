"""What counts as an outage: the table of rule 3.1, S7, S10."""

import asyncio
import dataclasses
import inspect
import logging
import socket
import ssl
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import cast

import azure.core.exceptions as core_errors
import azure.servicebus.exceptions as sdk
import pytest
from azure.servicebus._common import constants
from azure.servicebus._pyamqp.error import ErrorCondition
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport

from pairbus.core.verdict import (
    CAUSE_OF_CONDITION,
    CAUSE_OF_TYPE,
    VERDICTS,
    Cause,
    ErrorFacts,
    Verdict,
    facts_of,
    verdict_of,
)
from pairbus.errors import OptionError

OF_SDK: Mapping[type[Exception], tuple[Cause, Verdict]] = {
    sdk.OperationTimeoutError: (Cause.TIMEOUT, Verdict.OUTAGE),
    sdk.ServiceBusConnectionError: (Cause.CONNECTION, Verdict.OUTAGE),
    sdk.ServiceBusCommunicationError: (Cause.CONNECTION, Verdict.OUTAGE),
    sdk.ServiceBusError: (Cause.INTERNAL, Verdict.OUTAGE),
    sdk.MessagingEntityDisabledError: (Cause.DISABLED, Verdict.OUTAGE),
    sdk.ServiceBusQuotaExceededError: (Cause.FULL, Verdict.OUTAGE),
    sdk.ServiceBusServerBusyError: (Cause.BUSY, Verdict.BUSY),
    sdk.ServiceBusAuthenticationError: (Cause.UNAUTHORIZED, Verdict.CALLERS),
    sdk.ServiceBusAuthorizationError: (Cause.UNAUTHORIZED, Verdict.CALLERS),
    sdk.MessagingEntityNotFoundError: (Cause.NOT_FOUND, Verdict.CALLERS),
    sdk.MessageSizeExceededError: (Cause.TOO_LARGE, Verdict.CALLERS),
    sdk.MessagingEntityAlreadyExistsError: (Cause.BAD_ARGUMENT, Verdict.CALLERS),
    sdk.MessageAlreadySettled: (Cause.SETTLEMENT, Verdict.CALLERS),
    sdk.MessageLockLostError: (Cause.SETTLEMENT, Verdict.CALLERS),
    sdk.MessageNotFoundError: (Cause.SETTLEMENT, Verdict.CALLERS),
    sdk.SessionCannotBeLockedError: (Cause.SETTLEMENT, Verdict.CALLERS),
    sdk.SessionLockLostError: (Cause.SETTLEMENT, Verdict.CALLERS),
    sdk.AutoLockRenewFailed: (Cause.SETTLEMENT, Verdict.CALLERS),
    sdk.AutoLockRenewTimeout: (Cause.SETTLEMENT, Verdict.CALLERS),
}

OF_CONDITION: Mapping[Verdict, set[str]] = {
    Verdict.OUTAGE: {
        "com.microsoft:timeout",
        "com.microsoft:container-close",
        "com.microsoft:entity-disabled",
        "amqp:internal-error",
        "amqp:resource-limit-exceeded",
        "amqp:socket-error",
        "amqp:connection:forced",
        "amqp:connection:framing-error",
        "amqp:connection:redirect",
        "amqp:session:errant-link",
        "amqp:session:handle-in-use",
        "amqp:session:unattached-handle",
        "amqp:session:window-violation",
        "amqp:link:detach-forced",
        "amqp:link:redirect",
        "amqp:link:stolen",
    },
    Verdict.BUSY: {"com.microsoft:server-busy"},
    Verdict.CALLERS: {
        "com.microsoft:argument-error",
        "com.microsoft:argument-out-of-range",
        "com.microsoft:auth-failed",
        "com.microsoft:entity-already-exists",
        "com.microsoft:message-lock-lost",
        "com.microsoft:message-not-found",
        "com.microsoft:precondition-failed",
        "com.microsoft:session-cannot-be-locked",
        "com.microsoft:session-lock-lost",
        "amqp:decode-error",
        "amqp:invalid-field",
        "amqp:link:message-size-exceeded",
        "amqp:not-allowed",
        "amqp:not-found",
        "amqp:not-implemented",
        "amqp:precondition-failed",
        "amqp:resource-deleted",
        "amqp:unauthorized-access",
    },
}

LEFT_TO_THE_CLASS = {
    "amqp:client-error",
    "amqp:frame-size-too-small",
    "amqp:illegal-state",
    "amqp:link:transfer-limit-exceeded",
    "amqp:resource-locked",
    "amqp:unknown-error",
    "amqp:vendor-error",
}
"""Conditions that the SDK knows and the table need not: the class of the error decides."""


def made(kind: Callable[..., Exception]) -> Exception:
    return kind(message="told by the SDK")


@pytest.mark.parametrize("kind", OF_SDK, ids=lambda kind: kind.__name__)
def test_3_1_each_error_of_the_sdk(kind: type[Exception]) -> None:
    facts = facts_of(made(kind))
    assert (facts.cause, verdict_of(facts)) == OF_SDK[kind]


def test_3_1_every_error_of_the_installed_sdk_has_a_cause_of_its_own() -> None:
    of_sdk = {kind for _, kind in inspect.getmembers(sdk, inspect.isclass) if kind.__module__ == sdk.__name__}
    assert len(of_sdk) >= 19
    assert {kind.__name__ for kind in of_sdk} <= CAUSE_OF_TYPE.keys() | {"ServiceBusError"}
    assert of_sdk == set(OF_SDK)


@pytest.mark.parametrize(
    ("row", "causes", "verdict"),
    [
        ("time-out, connection, communication, internal, dropped link", "TIMEOUT CONNECTION INTERNAL", Verdict.OUTAGE),
        ("entity disabled, quota exceeded", "DISABLED FULL", Verdict.OUTAGE),
        ("server busy", "BUSY", Verdict.BUSY),
        (
            "authentication, authorization, not found, too large, bad argument, settled/lock",
            "UNAUTHORIZED NOT_FOUND TOO_LARGE BAD_ARGUMENT SETTLEMENT",
            Verdict.CALLERS,
        ),
    ],
)
def test_3_1_each_row_of_the_table(row: str, causes: str, verdict: Verdict) -> None:
    error = ValueError(row)
    assert {verdict_of(ErrorFacts(Cause[name], error)) for name in causes.split()} == {verdict}


def test_3_1_every_cause_has_a_verdict_and_nobody_changes_the_table() -> None:
    assert set(VERDICTS) == set(Cause)
    for table in (VERDICTS, CAUSE_OF_CONDITION, CAUSE_OF_TYPE):
        with pytest.raises(TypeError):
            cast("dict[object, object]", table)["mine"] = Cause.BUSY


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError(),  # what our own deadline of an attempt raises
        ConnectionRefusedError(),
        ConnectionResetError(),
        BrokenPipeError(),
        socket.gaierror(),
        ssl.SSLError(),
        EOFError(),
        asyncio.IncompleteReadError(b"half", 9),
        core_errors.ServiceRequestError("no connection"),
        core_errors.ServiceRequestTimeoutError("no connection in time"),
        core_errors.ServiceResponseError("no answer"),
        core_errors.ServiceResponseTimeoutError("no answer in time"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_s10_a_peer_that_is_silent_or_stops_half_way_is_an_outage_in_doubt(error: Exception) -> None:
    facts = facts_of(error)
    assert facts.cause in {Cause.TIMEOUT, Cause.CONNECTION}
    assert verdict_of(facts) is Verdict.OUTAGE
    assert facts.in_doubt


def test_s10_a_time_out_is_told_apart_from_other_errors_of_the_system() -> None:
    assert facts_of(TimeoutError()).cause is Cause.TIMEOUT
    assert facts_of(ConnectionResetError()).cause is Cause.CONNECTION


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (core_errors.ClientAuthenticationError("no"), Cause.UNAUTHORIZED),
        (core_errors.ResourceNotFoundError("gone"), Cause.NOT_FOUND),
        (ValueError("bad"), Cause.BAD_ARGUMENT),
        (TypeError("bad"), Cause.BAD_ARGUMENT),
        (OptionError("option", 1, "2"), Cause.BAD_ARGUMENT),
    ],
)
def test_3_1_what_is_no_fault_of_the_broker_is_the_callers(error: Exception, cause: Cause) -> None:
    facts = facts_of(error)
    assert facts.cause is cause
    assert verdict_of(facts) is Verdict.CALLERS
    assert not facts.in_doubt


@pytest.mark.parametrize("cause", Cause)
def test_s7_only_without_a_clear_answer_is_a_message_in_doubt(cause: Cause) -> None:
    unanswered = {Cause.TIMEOUT, Cause.CONNECTION, Cause.INTERNAL}
    assert ErrorFacts(cause, ValueError()).in_doubt is (cause in unanswered)


@pytest.mark.parametrize(
    ("condition", "verdict"), [(c, verdict) for verdict, conditions in OF_CONDITION.items() for c in sorted(conditions)]
)
def test_3_1_each_condition(condition: str, verdict: Verdict) -> None:
    assert verdict_of(facts_of(sdk.ServiceBusError("told by the SDK"), condition=condition)) is verdict


def test_3_1_every_condition_that_the_installed_sdk_knows_has_a_cause() -> None:
    of_protocol = {condition.value.decode() for condition in ErrorCondition}
    of_service = {
        cast("bytes", value).decode() for name, value in vars(constants).items() if name.startswith("ERROR_CODE_")
    }
    assert len(of_protocol) >= 29
    assert len(of_service) >= 12
    assert (of_protocol | of_service) - CAUSE_OF_CONDITION.keys() <= LEFT_TO_THE_CLASS
    assert {c for conditions in OF_CONDITION.values() for c in conditions} == CAUSE_OF_CONDITION.keys()


@pytest.mark.parametrize(
    ("condition", "cause"),
    [
        ("com.microsoft:timeout", Cause.TIMEOUT),
        ("amqp:link:detach-forced", Cause.CONNECTION),
        ("amqp:internal-error", Cause.INTERNAL),
        ("com.microsoft:entity-disabled", Cause.DISABLED),
        ("amqp:resource-limit-exceeded", Cause.FULL),
        ("com.microsoft:server-busy", Cause.BUSY),
        ("amqp:unauthorized-access", Cause.UNAUTHORIZED),
        ("amqp:not-found", Cause.NOT_FOUND),
        ("amqp:link:message-size-exceeded", Cause.TOO_LARGE),
        ("com.microsoft:argument-error", Cause.BAD_ARGUMENT),
        ("com.microsoft:message-lock-lost", Cause.SETTLEMENT),
    ],
)
def test_3_1_a_condition_says_more_than_a_class(condition: str, cause: Cause) -> None:
    assert facts_of(sdk.ServiceBusError("several conditions share it"), condition=condition).cause is cause


@pytest.mark.parametrize("condition", [None, "", "com.contoso:unheard-of", *sorted(LEFT_TO_THE_CLASS)])
def test_3_1_without_a_known_condition_the_class_decides(condition: str | None) -> None:
    assert facts_of(made(sdk.ServiceBusServerBusyError), condition=condition).cause is Cause.BUSY


def test_3_1_the_most_specific_class_decides() -> None:
    class Throttled(sdk.ServiceBusServerBusyError):
        """Derived by somebody else."""

    assert facts_of(Throttled()).cause is Cause.BUSY


@pytest.mark.parametrize("condition", [None, "com.microsoft:server-busy"])
def test_facts_keep_the_error_and_how_long_to_wait(condition: str | None) -> None:
    error = sdk.ServiceBusServerBusyError()
    facts = facts_of(error, condition=condition, retry_after=timedelta(seconds=4))
    assert facts.error is error
    assert facts.retry_after == timedelta(seconds=4)
    assert facts_of(error, condition=condition).retry_after is None
    assert facts_of(KeyError(), retry_after=timedelta(seconds=4)).retry_after == timedelta(seconds=4)


def test_facts_do_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        facts_of(TimeoutError()).cause = Cause.BUSY  # pyright: ignore[reportAttributeAccessIssue]


def sdk_error(wrapped: Exception) -> Exception:
    """What the SDK itself makes of an error that its transport has met."""
    return PyamqpTransport.create_servicebus_exception(logging.getLogger("quiet"), wrapped)


@pytest.mark.parametrize("wrapped", [TypeError("no encoding"), ValueError("too large"), OverflowError("too large")])
def test_3_1_a_message_that_cannot_be_encoded_is_the_callers_although_the_sdk_wraps_it(
    wrapped: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="quiet")
    error = sdk_error(wrapped)
    assert type(error) is sdk.ServiceBusError
    assert facts_of(error).cause is Cause.BAD_ARGUMENT


@pytest.mark.parametrize(
    ("wrapped", "cause"),
    [
        (AttributeError("'NoneType' has no attribute"), Cause.INTERNAL),
        (ConnectionResetError("reset"), Cause.CONNECTION),
        (TimeoutError("slow"), Cause.TIMEOUT),
    ],
)
def test_3_1_what_else_the_sdk_wraps_is_told_apart_by_what_it_is(
    wrapped: Exception, cause: Cause, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="quiet")
    assert facts_of(sdk_error(wrapped)).cause is cause


def test_3_1_a_class_that_says_something_decides_before_the_condition() -> None:
    expired = sdk.ServiceBusAuthenticationError(message="token expired")
    assert facts_of(expired, condition="amqp:internal-error").cause is Cause.UNAUTHORIZED
    dropped = sdk.ServiceBusCommunicationError(message="dropped")
    assert facts_of(dropped, condition="amqp:not-found").cause is Cause.CONNECTION


def test_3_1_a_service_that_fails_is_an_outage_whatever_the_class() -> None:
    sick = sdk.ServiceBusAuthenticationError(message="the token service is down")
    assert facts_of(sick, status=503).cause is Cause.INTERNAL
    assert facts_of(sick, status=401).cause is Cause.UNAUTHORIZED


def test_3_1_a_class_that_the_sdk_has_added_since_is_an_outage() -> None:
    class BrandNewError(sdk.ServiceBusError):
        pass

    assert facts_of(BrandNewError(message="?")).cause is Cause.INTERNAL


def test_3_1_a_bug_is_nobodys_outage() -> None:
    assert facts_of(KeyError("x")).cause is Cause.UNEXPECTED
    assert verdict_of(facts_of(KeyError("x"))) is Verdict.CALLERS


def test_s7_what_was_never_begun_is_not_in_doubt() -> None:
    assert not facts_of(ConnectionRefusedError(), begun=False).in_doubt
    assert facts_of(ConnectionRefusedError()).in_doubt


@pytest.mark.parametrize("cause", Cause)
def test_a_broker_that_says_disabled_or_full_answers(cause: Cause) -> None:
    assert ErrorFacts(cause, RuntimeError()).answered is (cause in {Cause.DISABLED, Cause.FULL})
