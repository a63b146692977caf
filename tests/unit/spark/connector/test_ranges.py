"""Ranges of sequence numbers: found, shared out and cut, against what is plain to see."""

import asyncio
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pairbus.spark.connector.ranges import LEAST_TO_SPLIT, Range, available, share, split

NUMBERS = st.sets(st.integers(1, 5000) | st.integers(1, 10**12), max_size=60)


class Queue:
    """Knows which numbers there are, and counts the looks."""

    def __init__(self, numbers: set[int]) -> None:
        self.numbers = sorted(numbers)
        self.looks = 0

    async def first_at(self, number: int) -> int | None:
        self.looks += 1
        return next((each for each in self.numbers if each >= number), None)


@given(NUMBERS, st.integers(1, 6000), st.none() | st.integers(1, 1000))
def test_what_is_available_is_found(numbers: set[int], start: int, most: int | None) -> None:
    queue = Queue(numbers)
    found = asyncio.run(available(queue.first_at, "orders", start, most))
    there = [each for each in queue.numbers if each >= start]
    if not there:
        assert found == Range("orders", start, start)
    elif most is None or there[-1] < there[0] + most:
        assert found == Range("orders", there[0], there[-1] + 1)
    else:
        assert found == Range("orders", there[0], there[0] + most)


def test_finding_the_end_of_a_million_messages_takes_few_looks() -> None:
    queue = Queue(set())

    async def first_at(number: int) -> int | None:
        queue.looks += 1
        return number if number <= 1_000_000 else None

    assert asyncio.run(available(first_at, "orders", 1)).end == 1_000_001
    assert queue.looks < 40


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 1000), max_size=12), st.integers(1, 3000))
def test_a_batch_is_shared_out_evenly(wanted: dict[str, int], most: int) -> None:
    given_out = share(wanted, most)
    assert sum(given_out.values()) == min(most, sum(wanted.values()))
    assert all(0 <= given_out[path] <= wanted[path] for path in wanted)
    hungry = [given_out[path] for path in wanted if given_out[path] < wanted[path]]
    if hungry:
        assert max(given_out.values()) - min(hungry) <= 1


def test_who_wants_most_gets_what_cannot_be_divided() -> None:
    assert share({"a": 5, "b": 9, "c": 7}, 2) == {"a": 0, "b": 1, "c": 1}
    assert share({"a": 1, "b": 100}, 50) == {"a": 1, "b": 49}


RANGES = st.lists(st.tuples(st.integers(1, 10**9), st.integers(0, 10**5)), max_size=8)


@given(RANGES, st.integers(1, 64))
def test_parts_cover_what_they_are_cut_from(spans: list[tuple[int, int]], most: int) -> None:
    ranges = [Range(str(index), start, start + span) for index, (start, span) in enumerate(spans)]
    parts = split(ranges, most)
    for whole in ranges:
        own = [part for part in parts if part.path == whole.path]
        assert not whole.span or (own[0].start, own[-1].end) == (whole.start, whole.end)
        assert all(one.end == other.start for one, other in pairwise(own))
        assert len(own) == bool(whole.span) or all(part.span >= LEAST_TO_SPLIT for part in own)
    assert len(parts) <= max(most, 0) + len(ranges)


def test_one_range_is_cut_into_as_many_parts_as_asked() -> None:
    assert [part.span for part in split([Range("a", 1, 100_001)], 8)] == [12_500] * 8
    assert split([Range("a", 1, 400)], 8) == [Range("a", 1, 400)]
