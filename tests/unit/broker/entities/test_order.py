"""The order in which messages are given out."""

from hypothesis import given
from hypothesis import strategies as st

from pairbus.broker.entities.order import DeliveryOrder


def drained(line: DeliveryOrder) -> list[int]:
    return list(iter(line.pop, None))


def test_an_empty_line_gives_nothing() -> None:
    line = DeliveryOrder()
    assert (line.pop(), len(line), list(line.ahead(5))) == (None, 0, [])


def test_numbers_come_in_the_order_in_which_they_were_pushed() -> None:
    line = DeliveryOrder()
    for number in (1, 2, 5):
        line.push(number)
    assert len(line) == 3
    assert list(line.ahead(2)) == [1, 2]
    assert drained(line) == [1, 2, 5]


@given(st.lists(st.integers(0, 30), unique=True, max_size=20), st.data())
def test_whatever_comes_back_takes_its_old_place(numbers: list[int], data: st.DataObject) -> None:
    line = DeliveryOrder()
    for number in sorted(numbers):
        line.push(number)
    taken = [line.pop() for _ in range(data.draw(st.integers(0, len(numbers))))]
    for number in data.draw(st.permutations(taken)):
        assert number is not None
        line.put_back(number)
    assert len(line) == len(numbers)
    assert set(line.ahead(len(numbers))) == set(numbers)
    assert drained(line) == sorted(numbers)


@given(st.lists(st.integers(0, 40), unique=True, max_size=30), st.data())
def test_what_was_dropped_does_not_come_nor_count_unless_it_is_put_back(
    numbers: list[int], data: st.DataObject
) -> None:
    line = DeliveryOrder()
    for number in sorted(numbers):
        line.push(number)
    returned = [line.pop() for _ in range(data.draw(st.integers(0, len(numbers))))]
    for number in returned:
        assert number is not None
        line.put_back(number)
    left = set(numbers)
    for number in data.draw(st.permutations(numbers)):
        if data.draw(st.booleans()):
            line.drop(number)
            left.discard(number)
        if number not in left and data.draw(st.booleans()):
            line.put_back(number)
            left.add(number)
    assert len(line) == len(left)
    assert set(line.ahead(len(numbers))) == left
    assert drained(line) == sorted(left)
    assert len(line) == 0


def test_a_line_from_which_all_is_dropped_keeps_nothing() -> None:
    line = DeliveryOrder()
    for number in range(1000):
        line.push(number)
        line.drop(number)
    assert not line._fresh  # pyright: ignore[reportPrivateUsage]
    assert not line._dropped  # pyright: ignore[reportPrivateUsage]
