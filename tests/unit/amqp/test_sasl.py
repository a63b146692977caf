"""SASL, both sides: the four mechanisms, refusals, and what is out of turn."""

# ruff: noqa: S106 (passwords of tests)

import pytest

from pairbus.amqp.conditions import NOT_ALLOWED, UNAUTHORIZED_ACCESS, AmqpError
from pairbus.amqp.performatives import (
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from pairbus.amqp.sasl import (
    ANONYMOUS,
    AUTHENTICATION_FAILED,
    EXTERNAL,
    MSSBCBS,
    OK,
    PLAIN,
    Credentials,
    SaslClient,
    SaslServer,
)
from pairbus.amqp.types import Symbol


@pytest.mark.parametrize("mechanism", [ANONYMOUS, MSSBCBS, PLAIN, EXTERNAL])
def test_each_mechanism_goes_through(mechanism: Symbol) -> None:
    server = SaslServer()
    client = SaslClient(mechanism, username="name", password="pass", hostname="host")
    first = client.answer(server.offer())
    assert first is not None
    outcome = server.answer(first)
    assert outcome == SaslOutcome(OK)
    assert client.answer(outcome) is None
    expected = ("name", "pass") if mechanism == PLAIN else ("", "")
    assert server.credentials == Credentials(mechanism, *expected, hostname="host")


@pytest.mark.parametrize("mechanism", [PLAIN, EXTERNAL])
def test_without_initial_response_the_server_asks_for_it(mechanism: Symbol) -> None:
    server = SaslServer()
    client = SaslClient(mechanism, username="u", password="p")
    client.answer(server.offer())
    challenge = server.answer(SaslInit(mechanism))
    assert isinstance(challenge, SaslChallenge)
    response = client.answer(challenge)
    assert isinstance(response, SaslResponse)
    assert server.answer(response) == SaslOutcome(OK)


@pytest.mark.parametrize(
    "init",
    [
        SaslInit(Symbol("SCRAM-SHA-256"), b""),
        SaslInit(PLAIN, b"no separators"),
        SaslInit(PLAIN, b"\0\xff\xff\0x"),
        SaslInit(PLAIN, b"\0user\0wrong"),
        SaslInit(EXTERNAL, b"\xff"),
    ],
)
def test_what_does_not_authenticate_is_refused(init: SaslInit) -> None:
    server = SaslServer(authenticate=lambda shown: shown.password == "right")  # noqa: S105 (a test's)
    assert server.answer(init) == SaslOutcome(AUTHENTICATION_FAILED)
    assert server.credentials is None


def test_a_frame_out_of_turn_is_not_allowed() -> None:
    for received in (SaslResponse(b""), SaslOutcome(0)):
        with pytest.raises(AmqpError) as caught:
            SaslServer().answer(received)
        assert caught.value.condition == NOT_ALLOWED


def test_a_second_init_is_not_allowed() -> None:
    server = SaslServer()
    server.answer(SaslInit(PLAIN))
    with pytest.raises(AmqpError) as caught:
        server.answer(SaslInit(PLAIN))
    assert caught.value.condition == NOT_ALLOWED


def test_a_client_gives_up_without_its_mechanism_or_with_a_refusal() -> None:
    for received in (SaslMechanisms((ANONYMOUS,)), SaslOutcome(1)):
        with pytest.raises(AmqpError) as caught:
            SaslClient(PLAIN).answer(received)
        assert caught.value.condition == UNAUTHORIZED_ACCESS
    with pytest.raises(AmqpError):
        SaslClient(PLAIN).answer(SaslInit(PLAIN))
