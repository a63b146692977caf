"""LIKE against the plainest definition of it, and patterns that are made to take for ever."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.broker.filters import EvaluationError
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


def test_no_pattern_from_a_property_takes_for_ever() -> None:
    assert not compile_like("%a_" * 10_000 + "b")("a" * 32_000)
