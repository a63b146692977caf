"""``pairbus deadletter`` and the functions under it: nothing is lost, and nobody else's message is touched."""

import asyncio
import json
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncClient
from tests.client.commanding import UNPAIRED, Shell, broker, pairbus

from pairbus.errors import OptionError
from pairbus.operate.deadletters import Choice, Letter, Shelf, browse_letters, discard, resubmit
from pairbus.testing import QueueSettings

__all__ = ["broker", "pairbus"]


def bury(
    connection_string: str, queue: str, *letters: tuple[ServiceBusMessage, str], session_id: str | None = None
) -> None:
    """Send messages to a queue, and dead-letter each with its reason."""
    reasons = {message.message_id: reason for message, reason in letters}
    with ServiceBusClient.from_connection_string(connection_string) as client:
        with client.get_queue_sender(queue) as sender:
            sender.send_messages([message for message, _ in letters])
        with client.get_queue_receiver(queue, session_id=session_id) as receiving:
            left = len(letters)
            while left:
                for message in receiving.receive_messages(left, max_wait_time=5):
                    reason = reasons[message.message_id]
                    receiving.dead_letter_message(message, reason=reason, error_description=f"{reason} it is")
                    left -= 1


def order(name: str, **options: object) -> ServiceBusMessage:
    return ServiceBusMessage(f"body of {name}", message_id=name, **options)  # type: ignore[arg-type]


def bury_orders(shell: Shell) -> None:
    bury(
        shell.primary,
        "orders",
        (order("a", application_properties={"table": 4, "vip": True}), "Poison"),
        (order("b"), "Spoilt"),
        (order("c", application_properties={"table": 5}), "Poison"),
        (order("d"), "Poison"),
    )


def ids(output: str) -> list[str]:
    return [each["message_id"] for each in json.loads(output)]


def peeked(shell: Shell, queue: str = "orders") -> list[str]:
    lines = shell("receive", queue, "--peek", "--all").out.splitlines()
    return [json.loads(line)["message_id"] for line in lines]


def test_list_show_and_export_look_and_leave(pairbus: Shell, tmp_path: Path) -> None:
    bury_orders(pairbus)
    assert ids(pairbus("deadletter", "list", "orders", "--json").out) == ["a", "b", "c", "d"]
    for filters, expected in (
        (["--reason", "poison"], ["a", "c", "d"]),
        (["-p", "table=4", "-p", "vip=true"], ["a"]),
        (["--id", "b", "--id", "d"], ["b", "d"]),
        (["--sequence", "2"], ["b"]),
        (["--newer-than", "1h", "--max", "2"], ["a", "b"]),
        (["--older-than", "1h"], []),
    ):
        assert ids(pairbus("deadletter", "list", "orders", "--json", *filters).out) == expected
    table = pairbus("deadletter", "list", "orders")
    assert "Spoilt" in table.out
    assert "4 dead letters" in table.out
    shown = json.loads(pairbus("deadletter", "show", "orders", "--id", "b").out)
    assert (shown["body"], shown["received"]["dead_letter_reason"]) == ("body of b", "Spoilt")
    assert shown["received"]["dead_letter_error_description"] == "Spoilt it is"
    missing = pairbus("deadletter", "show", "orders", "--id", "nobody")
    assert missing.code == 1
    assert "there is no such dead letter" in missing.err
    file = tmp_path / "letters.jsonl"
    assert pairbus("deadletter", "export", "orders", "-o", str(file)).err == f"4 dead letters written to {file}\n"
    again = pairbus("deadletter", "export", "orders", "-o", str(file))
    assert again.code == 2
    assert "name a file that is not there yet" in again.err
    assert pairbus("send", "copy", "-f", str(file), **UNPAIRED).out == "4 sent, 0 parked, 0 failed\n"
    (first, *_) = map(json.loads, pairbus("receive", "copy", "--peek", "--all").out.splitlines())
    assert first["application_properties"] == {"table": 4, "vip": True}, "it is no dead letter any more"


def test_resubmit_sends_the_chosen_again_and_leaves_the_others(pairbus: Shell) -> None:
    bury_orders(pairbus)
    dry = pairbus("deadletter", "resubmit", "orders", "--reason", "Poison", "--dry-run")
    assert "3 dead letters would be sent again; nothing was done" in dry.out
    assert peeked(pairbus) == []
    done = pairbus("deadletter", "resubmit", "orders", "--sequence", "3", "--sequence", "4")
    assert (done.code, done.out) == (0, "2 dead letters sent again\n")
    assert peeked(pairbus) == ["c", "d"]
    assert ids(pairbus("deadletter", "list", "orders", "--json").out) == ["a", "b"]
    (c, _) = map(json.loads, pairbus("receive", "orders", "--peek", "--all").out.splitlines())
    assert c["application_properties"] == {"table": 5}
    elsewhere = pairbus("deadletter", "resubmit", "orders", "--id", "a", "--to", "copy", "--json")
    assert json.loads(elsewhere.out) == {"done": ["a"], "kept": [], "twice": [], "vanished": 0}
    assert peeked(pairbus, "copy") in (["a"], ["a", "b"]), "the one that was under way may be in both"
    failed = pairbus("deadletter", "resubmit", "orders", "--to", "nowhere")
    assert failed.code == 2
    assert "0 dead letters sent again before; the others are where they were" in failed.err
    assert ids(pairbus("deadletter", "list", "orders", "--json").out) == ["b"]


def test_sessions_are_kept_and_what_is_refused_is_kept(pairbus: Shell) -> None:
    bury(pairbus.primary, "tables", (order("a", session_id="s"), "Poison"), session_id="s")
    kept = pairbus("deadletter", "resubmit", "tables", "--to", "orders", "--id", "nobody")
    assert (kept.code, kept.out) == (0, "0 dead letters sent again\n")
    assert pairbus("deadletter", "resubmit", "tables").code == 0
    (got,) = map(json.loads, pairbus("receive", "tables", "--session", "s").out.splitlines())
    assert (got["message_id"], got["session_id"]) == ("a", "s")
    bury(pairbus.primary, "orders", (order("b"), "Poison"))
    refused = pairbus("deadletter", "resubmit", "orders", "--to", "tables")
    assert refused.code == 1
    assert "tables refuses it" in refused.err
    assert ids(pairbus("deadletter", "list", "orders", "--json").out) == ["b"]


def test_discard_asks_and_removes_only_the_chosen(pairbus: Shell) -> None:
    bury_orders(pairbus)
    assert "say which with a filter, or --all" in pairbus("deadletter", "discard", "orders").err
    asked = pairbus("deadletter", "discard", "orders", "--reason", "Poison")
    assert (asked.code, asked.err) == (2, "error: nobody is there to be asked; add --yes\n")
    done = pairbus("deadletter", "discard", "orders", "--reason", "Poison", "--yes")
    assert (done.code, done.out) == (0, "3 dead letters discarded\n")
    assert ids(pairbus("deadletter", "list", "orders", "--json").out) == ["b"]
    assert pairbus("deadletter", "discard", "orders", "--all", "--yes").out == "1 dead letter discarded\n"


def test_y3_the_backlogs_dead_letters_go_back_to_it_or_unparked_to_where_they_are_to_go(pairbus: Shell) -> None:
    path = f"{pairbus.backlog}/0"
    pairbus.broker.create_queue(path, QueueSettings(), namespace="fabrikam")
    try:
        parked = {"x-ms-path": "orders", "x-ms-sessionid": "s", "own": 1}
        bury(
            pairbus.secondary,
            path,
            (order("good", application_properties=parked), "DestinationGone"),
            (order("lost", application_properties={"own": 2}), "NoDestination"),
        )
        listed = json.loads(pairbus("deadletter", "list", "--json").out)
        assert [(each["message_id"], each["destination"]) for each in listed] == [("good", "orders"), ("lost", None)]
        assert ids(pairbus("deadletter", "list", "--json", "--destination", "Orders").out) == ["good"]
        assert "pairbus deadletter list" in pairbus("status").out
        back = pairbus("deadletter", "resubmit")
        assert (back.code, back.out) == (1, "1 dead letter sent again, 1 kept\n")
        assert (
            "x-ms-path is missing or empty: where the message belongs is not known; name where it belongs" in back.err
        )
        (again,) = map(json.loads, pairbus("receive", path, "--on", "secondary").out.splitlines())
        assert again["application_properties"] == {
            "x-ms-path": "orders",
            "x-ms-sessionid": "s",
            "own": 1,
        }
        bury(pairbus.secondary, path, (order("more", application_properties=parked), "DestinationGone"))
        assert pairbus("deadletter", "resubmit", path, "--to", "orders").out == "2 dead letters sent again\n"
        lost, more = map(json.loads, pairbus("receive", "orders", "--peek", "--all").out.splitlines())
        assert (lost["message_id"], lost["application_properties"]) == ("lost", {"own": 2})
        assert (more["session_id"], more["application_properties"]) == ("s", {"own": 1})
        assert pairbus("deadletter", "list").out == "There are no dead letters.\n"
    finally:
        pairbus.broker.delete_queue(path, namespace="fabrikam")


def test_a_subscriptions_dead_letters_want_to_be_told_where_to_go(pairbus: Shell) -> None:
    ended = pairbus("deadletter", "resubmit", "news", "-s", "all")
    assert ended.code == 2
    assert "gives every subscription whose rules match another copy" in ended.err

    async def scenario() -> None:
        async with AsyncClient.from_connection_string(pairbus.primary) as client:
            with pytest.raises(OptionError, match="gives every subscription a copy"):
                await resubmit(client, Shelf("news", "all"))

    asyncio.run(scenario())


def test_an_interrupted_resubmission_loses_nothing(pairbus: Shell) -> None:
    """Sent first, then removed: whatever the moment, each message is in one of both places at least."""
    bury_orders(pairbus)

    async def scenario() -> None:
        async with AsyncClient.from_connection_string(pairbus.primary, retry_total=0) as client:
            task: asyncio.Task[object] | None = None

            def interrupt(_letter: Letter) -> None:
                assert task is not None
                task.cancel()

            task = asyncio.create_task(resubmit(client, Shelf("orders"), to="copy", told=interrupt))
            with pytest.raises(asyncio.CancelledError):
                await task
            left = [letter.message_id async for letter in browse_letters(client, Shelf("orders"))]
            assert left == ["b", "c", "d"]
            outcome = await discard(client, Shelf("orders"), Choice(message_ids=frozenset({"b"})))
            assert [letter.message_id for letter in outcome.done] == ["b"], "nothing stayed under lock"

    asyncio.run(scenario())
    assert peeked(pairbus, "copy") in (["a"], ["a", "b"]), "the one that was under way may be in both"
