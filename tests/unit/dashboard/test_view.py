"""What the page says first, and how it writes it down."""

from datetime import timedelta

import pytest
from tests.support.records import NOON, at, heard, outage, park, turn
from tests.unit.dashboard.test_account import account

from pairbus.core.health import State
from pairbus.core.ledger import Kind, Stage
from pairbus.dashboard import sections
from pairbus.dashboard.account import WINDOWS
from pairbus.dashboard.drawing import chart, nice, summary
from pairbus.dashboard.health import Heard
from pairbus.dashboard.snapshot import Look, Queue, Role, Top
from pairbus.dashboard.view import Level, Reading, View, view
from pairbus.dashboard.words import amount, lasting, names, plural, rate, volume

READ = Reading("./ledger")
PRIMARY = Look(Role.PRIMARY, "contoso", NOON)


def secondary(depth: int = 0, dead: int = 0) -> Look:
    top = Top(at(-90), {"orders": 20, "invoices": 12}, 32) if depth else None
    backlog = Queue("contoso/x-servicebus-transfer/0", depth, dead, 0, top)
    return Look(Role.SECONDARY, "fabrikam", NOON, queues=(Queue("other", 5, 0), backlog))


def seen(*records: Heard, looks: tuple[Look, ...] = (PRIMARY, secondary()), reading: Reading = READ) -> View:
    return view(account(*records), looks, reading, at(100))


def first(shown: View) -> tuple[Level, str]:
    return shown.notices[0].level, shown.notices[0].about


def test_calm_when_all_is_well() -> None:
    shown = seen(heard(Kind.SEND, 0), heard(Kind.SEND, 1, entity="invoices"))
    (notice,) = shown.notices
    assert (notice.level, notice.text) == (Level.CALM, "All 2 entities are healthy.")
    assert first(seen()) == (Level.CALM, "nothing")
    assert sections.title(shown.notices) == "pairbus"


def test_which_entity_is_failing_over_how_long_and_what_to_do() -> None:
    shown = seen(turn("suspect", 30), turn("engaged", 60), park(70, 1200))
    notice = shown.notices[0]
    assert notice.level is Level.ALARM
    assert notice.text == "orders is failing over, for 40 s."
    assert sections.title(shown.notices) == "(alarm) pairbus"
    assert "1,200 messages parked so far" in notice.advice


def test_a_suspect_entity_is_a_warning() -> None:
    assert first(seen(turn("suspect", 99))) == (Level.WARNING, "suspect ['orders']")


def test_a_silent_client_is_told_of() -> None:
    shown = view(account(turn("engaged", 0)), (PRIMARY,), READ, at(3600))
    assert [notice.about for notice in shown.notices] == ["nothing", "silent orders"]


@pytest.mark.parametrize(
    ("records", "level", "about"),
    [
        ([], Level.WARNING, "no syphon"),
        ([heard(Kind.EMPTY_RECEIVE, 0, stage=Stage.IDLE)], Level.NOTE, "waiting"),
        ([heard(Kind.SEND, 96, stage=Stage.SYPHON, messages=60)], Level.NOTE, "draining"),
    ],
)
def test_a_backlog_wants_a_syphon(records: list[Heard], level: Level, about: str) -> None:
    shown = seen(*records, looks=(PRIMARY, secondary(depth=600)))
    assert (level, about) in [(notice.level, notice.about) for notice in shown.notices]
    assert (shown.waiting, shown.oldest_at) == (600, at(-90))


def test_a_backlog_in_an_outage_is_as_it_should_be() -> None:
    shown = seen(turn("engaged", 60), looks=(PRIMARY, secondary(depth=600)))
    assert [notice.level for notice in shown.notices] == [Level.ALARM]


def test_a_namespace_that_cannot_be_seen_is_named_with_what_is_still_known() -> None:
    away = Look(Role.PRIMARY, "contoso", at(10), "it cannot be reached", at(20))
    shown = seen(looks=(away, secondary()))
    assert shown.notices[0].level is Level.WARNING
    assert shown.notices[0].text == "The primary namespace contoso cannot be seen since 12:00:20: it cannot be reached."
    assert "is from 12:00:10" in shown.notices[0].advice
    never = seen(looks=(Look(Role.SECONDARY, "fabrikam", None, "it does not answer", at(20)),))
    assert "Nothing is known of it yet" in never.notices[0].advice
    assert (never.waiting, never.dead_letters) == (None, None)
    assert "unreachable" in sections.namespaces([away])


def test_dead_letters_and_what_is_wrong_with_the_ledger_are_told() -> None:
    reading = Reading("./ledger", 0.5, "a line cannot be read")
    shown = seen(heard(Kind.DROPPED, 0, messages=3), looks=(PRIMARY, secondary(dead=2)), reading=reading)
    abouts = [notice.about for notice in shown.notices]
    assert abouts == ["ledger problem", "dead letters", "reading", "dropped"]
    assert shown.dead_letters == 2
    assert [notice.about for notice in seen(reading=Reading()).notices] == ["nothing", "no ledger"]


def test_embedded_namespaces_are_called_by_their_names() -> None:
    shown = view(account(heard(Kind.SEND, 0)), (PRIMARY,), READ, at(1), {"contoso": "Contoso of this machine"})
    assert shown.looks[0].name == shown.entities[0].namespace == "Contoso of this machine"


def test_every_section_has_something_to_say_when_there_is_nothing() -> None:
    shown = seen(looks=())
    assert "No entity yet" in sections.entities(shown.entities, shown.now)
    assert "No outage" in sections.outages(shown.outages, shown.now)
    assert "The secondary is not known" in sections.backlog(None)
    assert "it was not seen yet" in sections.backlog(Look(Role.SECONDARY, "fabrikam"))
    assert "Nothing was counted" in sections.costs(shown.costs)
    assert "<dd>—</dd>" in sections.figures(shown)
    assert "0 sent" in sections.activity(shown.rates[0], shown.entities)


def test_k2_bytes_are_shown_beside_the_operations() -> None:
    shown = sections.costs(seen(park(0, bytes=1_234_567_890), heard(Kind.PING, 0, stage=Stage.PING, bytes=150)).costs)
    assert "<th scope=col class=number>GB</th>" in shown
    assert shown.count("<td class=number>1.235</td>") == 2  # of the stage, and together
    assert "<td class=number>0.000000</td>" in shown
    assert "within a region nothing" in shown
    assert (volume(0), volume(999_999), volume(1_000_000)) == ("0.000", "0.001000", "0.001")


def test_what_comes_from_outside_is_escaped() -> None:
    evil = '<script>alert("x")</script>'
    shown = seen(
        *outage(entity=evil, client=evil),
        turn("engaged", 90, entity=evil, client=evil, namespace=evil),
        looks=(Look(Role.SECONDARY, evil, NOON, evil, NOON, None, (Queue(evil, 1, 1, 0, Top(NOON, {evil: 1}, 1)),)),),
    )
    for html in (
        sections.notices(shown.notices),
        sections.namespaces(shown.looks),
        sections.entities(shown.entities, shown.now),
        sections.outages(shown.outages, shown.now),
        sections.backlog(shown.look(Role.SECONDARY)),
        sections.activity(shown.rates[0], shown.entities),
    ):
        assert "script" in html
        assert "<script" not in html


def test_the_position_of_the_state_machine_is_marked() -> None:
    shown = seen(turn("suspect", 30), turn("engaged", 60))
    html = sections.entities(shown.entities, shown.now)
    assert '<li class="engaged" aria-current=step>engaged</li>' in html
    assert html.count("aria-current") == 1
    assert "engaged since 12:01:00, 40 s" in html


def test_backlog_queues_with_depth_oldest_age_and_destinations() -> None:
    html = sections.backlog(secondary(depth=600, dead=2))
    for text in ("contoso/x-servicebus-transfer/", "600", "1 min 30 s", "orders 20, invoices 12 (of the first 32)"):
        assert text in html
    assert "other" not in html


def test_the_chart_says_in_words_what_it_shows() -> None:
    shown = seen(heard(Kind.SEND, 96, messages=30), park(90, 3))
    assert "At most: 10 sent, 1.0 parked, 0 carried home." in summary(shown.rates[0])
    drawn = chart(shown.rates[0])
    assert drawn.count('class="line') == 2, "nothing is drawn where there is nothing"
    assert "12:01:36 · sent 10/s" in drawn


def test_outages_are_drawn_where_they_were() -> None:
    shown = view(account(*outage()), (), READ, at(3600))
    html = sections.activity(shown.rates[1], shown.entities)
    assert 'class="suspect" style="left:0.00%;width:1.67%"' in html
    assert 'class="engaged" style="left:1.67%;width:15.00%"' in html
    assert shown.rates[1].window is WINDOWS[1]
    assert shown.entities[0].state is State.HEALTHY


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3, "0 s"), (4, "4 s"), (200, "3 min 20 s"), (120, "2 min"), (7500, "2 h 5 min"), (273600, "3 d 4 h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert lasting(timedelta(seconds=seconds)) == text


def test_numbers() -> None:
    assert (plural(1, "ping"), plural(2, "ping"), plural(2000, "entity", "entities")) == (
        "1 ping",
        "2 pings",
        "2,000 entities",
    )
    assert (rate(0), rate(0.25), rate(1234)) == ("0", "0.2", "1,234")
    assert (amount(0), amount(1500), amount(12_345_000_000)) == ("0.00", "0.000002", "12.35")
    assert (names(["a"]), names(["a", "b"]), names(list("abcde"))) == ("a", "a and b", "a, b, c and 2 more")
    assert [nice(value) for value in (0, 1, 3, 55, 100, 101)] == [1, 1, 4, 60, 100, 200]
