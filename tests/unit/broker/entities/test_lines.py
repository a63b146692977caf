"""The order in which messages are given out."""

from hypothesis import given
from hypothesis import strategies as st

from pairbus.broker.entities.lines import Line


def drained(line: Line) -> list[int]:
    return list(iter(line.pop, None))


def test_an_empty_line_gives_nothing() -> None:
    line = Line()
    assert (line.pop(), len(line), list(line.ahead(5))) == (None, 0, [])


def test_numbers_come_in_the_order_in_which_they_were_pushed() -> None:
    line = Line()
    for number in (1, 2, 5):
        line.push(number)
    assert len(line) == 3
    assert list(line.ahead(2)) == [1, 2]
    assert drained(line) == [1, 2, 5]


@given(st.lists(st.integers(0, 30), unique=True, max_size=20), st.data())
def test_whatever_comes_back_takes_its_old_place(numbers: list[int], data: st.DataObject) -> None:
    line = Line()
    for number in sorted(numbers):
        line.push(number)
    taken = [line.pop() for _ in range(data.draw(st.integers(0, len(numbers))))]
    for number in data.draw(st.permutations(taken)):
        assert number is not None
        line.put_back(number)
    assert len(line) == len(numbers)
    assert set(line.ahead(len(numbers))) == set(numbers)
    assert drained(line) == sorted(numbers)
