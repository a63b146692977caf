"""LIKE against the plainest definition of it, and patterns that are made to take for ever."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.filters import facts_of

from pairbus.broker.filters import EvaluationError, SqlFilter
from pairbus.broker.filters.like import compile_like


def matches_by_definition(pattern: str, text: str) -> bool:
    @cache
    def matches(i: int, j: int) -> bool:
        if i == len(pattern):
            return j == len(text)
        if pattern[i] == "%":
            return matches(i + 1, j) or (j < len(text) and matches(i, j + 1))
        return j < len(text) and pattern[i] in ("_", text[j]) and matches(i + 1, j + 1)

    return matches(0, 0)


@settings(max_examples=1000)
@given(st.text("ab_%", max_size=10), st.text("ab\n%_", max_size=14))
def test_a_pattern_means_what_its_definition_says(pattern: str, text: str) -> None:
    assert compile_like(pattern)(text) == matches_by_definition(pattern, text)


@given(st.text(), st.text("!%_a", max_size=8))
def test_what_is_escaped_means_itself(text: str, other: str) -> None:
    escaped = "".join("!" + character if character in "!%_" else character for character in text)
    assert compile_like(escaped, "!")(text)
    assert compile_like(escaped, "!")(other) == (other == text)
    assert compile_like("%" + escaped + "_%", "!")(other + text + "x" + other)


def test_an_escape_with_nothing_after_it_fails() -> None:
    with pytest.raises(EvaluationError, match="nothing follows"):
        compile_like("a!", "!")


@pytest.mark.parametrize(
    "pattern",
    [
        "%a" * 500 + "%b",
        "%_a" * 300 + "%b",
        "%" * 1000 + "b",
        "_" * 1000 + "%b",
        ("a" * 100 + "%") * 9 + "b",
        "%a_" * 300 + "b",
    ],
    ids=lambda pattern: pattern[:8],
)
def test_no_pattern_takes_for_ever(pattern: str) -> None:
    """A search that goes back and tries again would not come to an end here."""
    assert not compile_like(pattern)("a" * 32_000 + "c")
    assert compile_like(pattern + "%")("a" * 32_000 + "b")


def test_a_pattern_from_a_property_is_bounded() -> None:
    assert not compile_like("%a_" * 341 + "b")("a" * 32_000)
    with pytest.raises(EvaluationError, match="has at most 1024 characters, not 1025"):
        compile_like("%a_" * 341 + "bb")
    with pytest.raises(EvaluationError, match="has at most 1024 characters"):
        compile_like("_" + "".join(map(chr, range(0x4E00, 0x8000))))


def test_what_a_message_brings_as_pattern_and_text_is_bounded() -> None:
    """A filter with 80 comparisons of 32,000 characters took 2 s, in which no client was served."""
    sql = SqlFilter(" OR ".join(["a LIKE b"] * 80))
    with pytest.raises(EvaluationError, match="has at most 1024 characters, not 9000"):
        sql.matches(facts_of(user={"a": "a" * 10_000, "b": "%a_" * 3_000}))
    with pytest.raises(EvaluationError, match=r"at most 4096 characters .* a pattern that is no constant, not 10000"):
        sql.matches(facts_of(user={"a": "a" * 10_000, "b": "%a_" * 300}))
    assert sql.matches(facts_of(user={"a": "a" * 4_096, "b": "%a_" * 341})) is True
    assert sql.matches(facts_of(user={"a": 5, "b": "%a_"})) is None


def test_a_constant_pattern_is_compared_with_a_text_of_any_length() -> None:
    assert SqlFilter("a LIKE '%_b'").matches(facts_of(user={"a": "a" * 20_000 + "b"})) is True
