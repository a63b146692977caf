"""Which messages are under lock."""

import pytest

from pairbus.broker.entities.locks import Locks
from pairbus.broker.entities.message import Held
from pairbus.broker.store.base import Row, key_of

NOW = 1_000_000


def held(number: int) -> Held:
    return Held(Row(key_of(1, number), 0, NOW, None, None, None, 0, b""))


@pytest.fixture
def locks() -> Locks:
    return Locks()


def test_a_lock_holds_until_its_end_and_not_at_it(locks: Locks) -> None:
    one = held(1)
    locks.add(one, b"a", NOW + 50)
    assert locks.find(b"a", NOW + 49) is one
    assert locks.find(b"a", NOW + 50) is None
    assert locks.find(b"b", NOW) is None


def test_ended_locks_are_given_up_in_the_order_of_the_queue(locks: Locks) -> None:
    later, first, second = held(3), held(1), held(2)
    locks.add(later, b"c", NOW + 900)
    locks.add(second, b"b", NOW + 10)
    locks.add(first, b"a", NOW + 30)
    assert locks.take_ended(NOW + 9) == []
    assert locks.take_ended(NOW + 10) == [second]
    locks.add(second, b"d", NOW + 40)
    assert locks.take_ended(NOW + 40) == [first, second]
    assert (list(locks), first.token) == ([later], None)


def test_a_lock_is_noticed_to_have_ended_within_a_tenth_of_a_second(locks: Locks) -> None:
    assert locks.wake_at is None
    locks.add(held(1), b"a", NOW + 50)
    locks.add(held(2), b"b", NOW + 5000)
    assert locks.wake_at is not None
    assert NOW + 50 <= locks.wake_at <= NOW + 150
    assert len(locks.take_ended(locks.wake_at)) == 1


@pytest.mark.parametrize("until", [NOW + 20, NOW + 500])
def test_a_renewed_lock_ends_when_it_was_told_to(locks: Locks, until: int) -> None:
    one = held(1)
    locks.add(one, b"a", NOW + 100)
    locks.renew(one, until)
    assert locks.find(b"a", until - 1) is one
    assert locks.take_ended(until - 1) == []
    assert locks.take_ended(until) == [one]


def test_giving_up_a_lock_leaves_nothing_behind(locks: Locks) -> None:
    messages = [held(number) for number in range(10)]
    for number, each in enumerate(messages):
        locks.add(each, b"%d" % number, NOW + number * 70)
    for each in messages:
        locks.renew(each, each.until + 10_000)
        locks.remove(each)
        locks.remove(each)
        locks.renew(each, NOW)
    assert (len(locks), locks._by_token, locks._ending) == (0, {}, {})  # pyright: ignore[reportPrivateUsage]
