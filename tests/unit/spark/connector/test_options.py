"""Options: read once, every bad value refused with its name, its value and the cure, and no secret told."""

from pathlib import Path

import pytest
from azure.servicebus import ServiceBusSubQueue

from pairbus.core.verdict import verdict_of
from pairbus.errors import OptionError, PairingError
from pairbus.spark.connector.options import read_options, write_options

KEY = "c2VjcmV0"
ONE = f"Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=all;SharedAccessKey={KEY}"
TWO = ONE.replace("contoso", "fabrikam")


def test_defaults() -> None:
    made = read_options({"connectionString": ONE, "path": "orders"})
    assert [entity.path for entity in made.entities] == ["orders"]
    assert (made.start, made.end, made.max_per_trigger, made.partitions) == (1, None, None, 8)
    written = write_options({"CONNECTIONSTRING": ONE})
    assert (written.entity, written.secondary, written.pairing, written.transport) == (None, None, (), "sdk")
    assert write_options(PAIRED | {"transport": "Native"}).transport == "native"


def test_what_can_be_read() -> None:
    made = read_options({"connectionString": ONE, "entity": "t", "subscription": "s", "subQueue": "deadLetter"})
    (entity,) = made.entities
    assert (entity.path, entity.sub_queue) == ("t/Subscriptions/s/$DeadLetterQueue", ServiceBusSubQueue.DEAD_LETTER)
    backlog = read_options(
        {"connectionString": ONE, "secondaryConnectionString": TWO, "backlog": "true", "backlogQueueCount": "2"}
    )
    assert [each.path for each in backlog.entities] == [
        "contoso/x-servicebus-transfer/0",
        "contoso/x-servicebus-transfer/1",
    ]
    assert backlog.connection.host == "fabrikam.servicebus.windows.net"


def test_all_options_of_a_pairing_can_be_set() -> None:
    """P2."""
    made = write_options(
        {
            "connectionString": ONE,
            "secondaryConnectionString": TWO,
            "entity": "orders",
            "backlogQueueCount": "3",
            "failoverInterval": "0",
            "enableSyphon": "true",
            "pingPrimaryInterval": "1m",
            "syphonRetryInterval": "1500ms",
            "syphonTransport": "sdk",
            "attemptTimeout": "5 s",
            "onOutage": "raise",
            "classify": "pairbus.core.verdict:verdict_of",
        }
    )
    assert dict(made.pairing) == {
        "backlog_queue_count": 3,
        "failover_interval": 0.0,
        "enable_syphon": True,
        "ping_primary_interval": 60.0,
        "syphon_retry_interval": 1.5,
        "syphon_transport": "sdk",
        "attempt_timeout": 5.0,
        "on_outage": "raise",
        "classify": verdict_of,
    }


def test_secrets_can_be_kept_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "secret"
    file.write_text(ONE + "\n", encoding="utf-8")
    monkeypatch.setenv("ORDERS", TWO)
    assert write_options({"connectionString": f"file:{file}"}).connection.connection_string == ONE
    assert write_options({"connectionString": "env:ORDERS"}).connection.connection_string == TWO


PAIRED = {"connectionString": ONE, "secondaryConnectionString": TWO}


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, "connectionString=None is not valid: required"),
        ({"connectionString": "Endpoint=sb://x;SharedAccessKey=" + KEY}, r"connectionString='\*\*\* \(redacted\)'"),
        ({"connectionString": "env:NOWHERE"}, "the driver's environment has no variable NOWHERE"),
        ({"connectionString": "file:/nowhere/at/all"}, "the driver cannot read the file"),
        ({"connectionString": ONE, "conectionString2": KEY}, "did you mean connectionString?"),
        ({"connectionString": ONE, "zzz": KEY}, "there is no such option here; the options are attemptTimeout"),
        ({"connectionString": ONE, "failoverInterval": "5"}, "set secondaryConnectionString too"),
        (PAIRED | {"failoverInterval": "2h"}, "failoverInterval=7200.0 is not valid: .* from 0 to 3600"),
        (PAIRED | {"failoverInterval": "soon"}, "failoverInterval='soon' is not valid: a duration such as"),
        (PAIRED | {"backlogQueueCount": "0"}, "backlogQueueCount=0 is not valid: a whole number, at least 1"),
        (PAIRED | {"onOutage": "panic"}, "onOutage='panic' is not valid"),
        (PAIRED | {"transport": "pigeon"}, "transport='pigeon' is not valid: one of sdk, native"),
        (PAIRED | {"syphonTransport": "pigeon"}, "syphonTransport='pigeon' is not valid"),
        ({"connectionString": ONE, "transport": "native"}, "set secondaryConnectionString too"),
        (PAIRED | {"enableSyphon": "maybe"}, "enableSyphon='maybe' is not valid: true or false"),
        (PAIRED | {"classify": "nowhere:nothing"}, "classify='nowhere:nothing' is not valid"),
        ({"connectionString": ONE, "transportType": "pigeon"}, "one of amqp, amqpoverwebsocket"),
        ({"connectionString": ONE, "entity": " "}, "entity='' is not valid"),
    ],
)
def test_what_is_wrong_with_a_write_is_said(options: dict[str, str], error: str) -> None:
    with pytest.raises(OptionError, match=error) as caught:
        write_options(options)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, "entity=None is not valid: the name of a queue"),
        ({"entity": "a", "backlog": "true"}, "leave it out: a backlog is read as a whole"),
        ({"entity": "a", "secondaryConnectionString": TWO}, r"secondaryConnectionString='\*\*\* .* set backlog=true"),
        (
            {"entity": "a", "subQueue": "cellar"},
            "subQueue='cellar' is not valid: one of deadletter, transferdeadletter",
        ),
        ({"entity": "a", "startingSequenceNumber": "-1"}, "earliest, latest, or the sequence number"),
        ({"entity": "a", "maxMessagesPerTrigger": "0"}, "a whole number, at least 1"),
        ({"entity": "a", "reportDirectory": "x"}, "there is no such option here"),
    ],
)
def test_what_is_wrong_with_a_read_is_said(options: dict[str, str], error: str) -> None:
    with pytest.raises(OptionError, match=error) as caught:
        read_options({"connectionString": ONE, **options})
    assert KEY not in str(caught.value)


def test_a_namespace_is_not_paired_with_itself() -> None:
    with pytest.raises(PairingError, match="cannot be paired with itself"):
        write_options({"connectionString": ONE, "secondaryConnectionString": ONE})


def test_options_do_not_show_their_secrets() -> None:
    for made in (write_options(PAIRED), read_options({"connectionString": ONE, "entity": "a"})):
        assert KEY not in repr(made)
        assert "contoso" in repr(made)
