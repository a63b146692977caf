"""The health of entities, from what clients have written down of it."""

from datetime import timedelta

import pytest
from tests.support.records import NOON, at, heard, outage, park, turn

from pairbus.core.health import State
from pairbus.core.ledger import Kind, MeteredBy, Outcome, Stage
from pairbus.dashboard.health import EntityHealth, Heard, Spell, Voices, merged, outages


def entity(*records: Heard, now: float) -> EntityHealth:
    """Return the one entity that these records tell of."""
    voices = Voices()
    for each in records:
        voices.take(each)
    (found,) = voices.entities(at(now))
    return found


def test_s1_an_entity_is_healthy_until_it_is_told_otherwise() -> None:
    found = entity(heard(Kind.SEND, 0), now=10)
    assert (found.state, found.since, found.clients) == (State.HEALTHY, None, ("shop",))
    assert (found.first_heard, found.heard) == (at(0), at(0))


def test_s3_s4_the_state_is_that_of_the_last_turn_and_since_then() -> None:
    engaged = [turn("suspect", 0), turn("engaged", 60), park(70, 3), park(80)]
    failed = [heard(Kind.PING, 90, outcome=Outcome.FAILED, stage=Stage.PING, detail="ServiceBusConnectionError")]
    found = entity(*engaged, *failed, now=100)
    assert (found.state, found.since) == (State.ENGAGED, at(60))
    assert (found.parked, found.pings, found.problem) == (4, 1, "ServiceBusConnectionError")
    assert found.spells == (Spell(State.SUSPECT, at(0), at(60)), Spell(State.ENGAGED, at(60), None, 4))


def test_g2_after_an_outage_the_entity_is_healthy_and_the_outage_is_told() -> None:
    found = entity(*outage(), now=1000)
    assert (found.state, found.since, found.problem) == (State.HEALTHY, at(600), None)
    (told,) = outages([found], at(1000))
    assert (told.start, told.end, told.failover, told.parked) == (at(0), at(600), timedelta(seconds=60), 8)


def test_doubt_that_passes_is_no_outage() -> None:
    found = entity(turn("suspect", 0), turn("healthy", 5), now=10)
    assert [spell.state for spell in found.spells] == [State.SUSPECT]
    assert outages([found], at(10)) == []


def test_the_worst_that_one_of_many_processes_says_is_the_state() -> None:
    found = entity(
        turn("suspect", 0, writer="host-1"),
        turn("engaged", 30, writer="host-1"),
        heard(Kind.SEND, 40, writer="host-2", client="kiosk", entity="ORDERS"),
        now=50,
    )
    assert (found.state, found.clients, found.all_clients) == (State.ENGAGED, ("shop",), 2)


def test_two_processes_of_one_name_are_told_apart() -> None:
    found = entity(
        turn("suspect", 0, writer="host-1"),
        turn("suspect", 1, writer="host-2"),
        turn("healthy", 2, writer="host-2"),
        now=3,
    )
    assert found.state is State.SUSPECT


def test_a_process_in_trouble_that_falls_silent_is_believed_no_longer() -> None:
    found = entity(turn("engaged", 0), park(10), now=3600)
    assert (found.state, found.silent, found.heard) == (State.ENGAGED, True, at(10))
    assert found.spells[-1].end == at(10)
    pinging = entity(turn("engaged", 0), heard(Kind.SEND, 3590, stage=Stage.SYPHON), now=3600)
    assert (pinging.state, pinging.silent) == (State.ENGAGED, False), "its process is alive"
    lively = entity(turn("engaged", 0), heard(Kind.SEND, 3590, writer="host-2"), now=3600)
    assert (lively.state, lively.silent) == (State.HEALTHY, False)


def test_what_brokers_and_later_versions_write_changes_no_health() -> None:
    voices = Voices()
    voices.take(heard(Kind.SEND, 0, metered_by=MeteredBy.BROKER))
    voices.take(turn("resting", 0))
    voices.take(park(0))  # of an entity that nothing is known of
    assert voices.entities(NOON) == []


def test_those_in_trouble_come_first() -> None:
    voices = Voices()
    for each in (
        heard(Kind.SEND, 0, entity="a"),
        turn("suspect", 0, entity="b"),
        turn("engaged", 0, entity="d"),
        turn("engaged", 0, entity="c"),
    ):
        voices.take(each)
    assert [found.entity for found in voices.entities(at(1))] == ["c", "d", "b", "a"]


@pytest.mark.parametrize(
    ("spells", "expected"),
    [
        ([], []),
        (
            [Spell(State.ENGAGED, at(0), at(10), 2), Spell(State.ENGAGED, at(5), at(20), 3)],
            [Spell(State.ENGAGED, at(0), at(20), 5)],
        ),
        (
            [Spell(State.SUSPECT, at(0), at(30)), Spell(State.ENGAGED, at(10), at(20), 1)],
            [
                Spell(State.SUSPECT, at(0), at(10)),
                Spell(State.ENGAGED, at(10), at(20), 1),
                Spell(State.SUSPECT, at(20), at(30)),
            ],
        ),
        (
            [Spell(State.SUSPECT, at(0), at(1)), Spell(State.SUSPECT, at(5), None)],
            [Spell(State.SUSPECT, at(0), at(1)), Spell(State.SUSPECT, at(5), None)],
        ),
    ],
)
def test_spells_of_many_are_laid_over_each_other(spells: list[Spell], expected: list[Spell]) -> None:
    assert merged(spells) == expected
