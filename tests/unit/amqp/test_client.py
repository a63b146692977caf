"""What only a client needs of AMQP: settlements in ranges, and requests."""

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from pairbus.amqp import Message, build_message
from pairbus.amqp.client.requests import read_answer, request
from pairbus.amqp.client.settling import Group, Settlements, runs_of
from pairbus.amqp.message import encode_value_section
from pairbus.amqp.performatives import ACCEPTED, RELEASED, DeliveryState
from pairbus.amqp.sections import Properties
from pairbus.amqp.types import Int

TOP = 2**32 - 1


@given(st.lists(st.integers(0, 200)))
@example([1, 1, 3])
def test_runs_cover_exactly_what_was_given(ids: list[int]) -> None:
    runs = runs_of(ids)
    assert {number for first, last in runs for number in range(first, last + 1)} == set(ids)
    assert all(after[0] > before[1] + 1 for before, after in pairwise(runs))


def test_a_group_ends_with_its_last_answer_whatever_the_ranges() -> None:
    settlements = Settlements[str]()
    one, two = settlements.ask([(1, 3)], "one"), settlements.ask([(4, 5)], "two")
    assert settlements.answered(1, 2, ACCEPTED) == []
    assert settlements.answered(3, 4, RELEASED) == [one]
    assert one.answers == [(1, 2, ACCEPTED), (3, 3, RELEASED)]
    assert settlements.answered(0, TOP - 1, ACCEPTED) == [two]  # the peer chooses the range: it is not walked
    assert two.answers == [(4, 4, RELEASED), (5, 5, ACCEPTED)]
    assert settlements.lost() == []


def test_ids_wrap_around() -> None:
    settlements = Settlements[None]()
    group = settlements.ask(runs_of([TOP, 0]), None)
    assert settlements.answered(TOP, 0, ACCEPTED) == [group]


def test_what_is_lost_is_in_doubt() -> None:
    settlements = Settlements[None]()
    group = settlements.ask([(1, 2)], None)
    settlements.answered(1, 1, ACCEPTED)
    assert settlements.lost() == [group]
    assert group.answer(1) is not None
    assert group.answer(2) is None
    assert settlements.answered(2, 2, ACCEPTED) == []


@given(
    st.lists(st.sets(st.integers(0, 30), min_size=1), max_size=4),
    st.lists(st.tuples(st.integers(0, 31), st.integers(0, 31), st.sampled_from([ACCEPTED, RELEASED])), max_size=9),
)
def test_answers_for_runs_are_answers_for_each_of_them(
    asked: list[set[int]], answers: list[tuple[int, int, DeliveryState]]
) -> None:
    settlements = Settlements[None]()
    taken: set[int] = set()
    groups: list[tuple[Group[None], dict[int, DeliveryState | None]]] = []
    for ids in asked:
        own = ids - taken
        taken |= own
        groups.append((settlements.ask(runs_of(own), None), dict.fromkeys(own)))
    for first, last, state in answers:
        ended = settlements.answered(first, last, state)
        covered = [n for n in range(32) if (first <= n <= last if first <= last else n >= first or n <= last)]
        finished: list[Group[None]] = []
        for group, states in groups:
            new = [number for number in covered if number in states and states[number] is None]
            states.update(dict.fromkeys(new, state))
            if new and None not in states.values():
                finished.append(group)
        assert sorted(map(id, ended)) == sorted(map(id, finished))
    for group, states in groups:
        assert group.left == list(states.values()).count(None)
        for number, state in states.items():
            answer = group.answer(number)
            assert (answer.state if answer else None) == state
    assert {id(group) for group in settlements.lost()} == {id(group) for group, _ in groups if group.left}


def test_an_answer_finds_its_request() -> None:
    asked = Message(request(7, "reply", {"operation": "o"}, {"a": 1}))
    standard = asked.properties()
    assert standard is not None
    assert (standard.message_id, standard.reply_to) == ("7", "reply")
    for status, description, condition in (
        ("statusCode", "statusDescription", "errorCondition"),
        ("status-code", "status-description", "error-condition"),
    ):
        payload = build_message(
            encode_value_section(["x"]),
            properties=Properties(correlation_id="7"),
            application_properties={status: Int(404), description: "gone", condition: "amqp:not-found"},
        )
        number, answer = read_answer(payload)
        assert number == 7
        assert (answer.status, answer.description, answer.condition, answer.body) == (
            404, "gone", "amqp:not-found", ["x"],
        )  # fmt: skip
        assert not answer.is_good
    assert read_answer(build_message()) == (None, read_answer(build_message())[1])
