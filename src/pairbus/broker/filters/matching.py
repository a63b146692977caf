"""Which rules of which subscriptions select a message.

A rule that comes to equalities (a correlation filter, or SQL such as ``color = 'red' AND sys.Label = 'a'``) is filed
under the value of one of its properties, and found by the value that a message has: its cost does not grow with the
number of such rules. The others are tried one by one.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from pairbus.broker.filters.errors import EvaluationError
from pairbus.broker.filters.facts import SYSTEM, Facts
from pairbus.broker.filters.rules import FalseFilter, Rule
from pairbus.broker.filters.syntax import Condition
from pairbus.broker.filters.values import index_key

_NOTHING: Final[dict[Any, Any]] = {}

S = TypeVar("S", bound=Hashable)
"""A subscription: its name, or whatever stands for it."""


@dataclass(slots=True)
class Selected:
    """What the rules of one subscription make of a message, in the order in which they were made."""

    rules: list[Rule] = field(default_factory=list[Rule])
    """Those that select it."""
    errors: list[tuple[Rule, EvaluationError]] = field(default_factory=list[tuple[Rule, EvaluationError]])
    """Those that failed, and why."""


@dataclass(slots=True, eq=False)
class _Entry(Generic[S]):
    """A rule in its place; ``others`` are the conditions under which it is not filed."""

    number: int
    subscription: S
    rule: Rule
    filed: Condition | None = None
    others: tuple[Condition, ...] = ()

    def meets_others(self, facts: Facts) -> bool:
        for is_system, name, key in self.others:
            if index_key(SYSTEM[name](facts) if is_system else facts.user.get(name)) != key:
                return False
        return True


class _Files(Generic[S]):
    """Rules by the name of a property and its value."""

    def __init__(self) -> None:
        self.by_name: dict[str, dict[Hashable, dict[int, _Entry[S]]]] = {}

    def count(self, condition: Condition) -> int:
        return len(self.by_name.get(condition.name, {}).get(condition.value, ()))

    def add(self, condition: Condition, entry: _Entry[S]) -> None:
        self.by_name.setdefault(condition.name, {}).setdefault(condition.value, {})[entry.number] = entry

    def matching(self, name: str, value: object, facts: Facts) -> Iterable[_Entry[S]]:
        """Return what is filed under a value of a message and meets its other conditions as well."""
        entries = self.by_name.get(name, _NOTHING).get(index_key(value))
        return () if entries is None else [entry for entry in entries.values() if entry.meets_others(facts)]

    def remove(self, condition: Condition, number: int) -> None:
        by_value = self.by_name[condition.name]
        entries = by_value[condition.value]
        del entries[number]
        if not entries:
            del by_value[condition.value]
        if not by_value:
            del self.by_name[condition.name]


class Matcher(Generic[S]):
    """The rules of all subscriptions of one topic. Names of rules are compared without regard to case."""

    def __init__(self) -> None:
        self._entries: dict[S, dict[str, _Entry[S]]] = {}
        self._last = 0
        self._system = _Files[S]()
        self._user = _Files[S]()
        self._always: dict[int, _Entry[S]] = {}
        self._tried: dict[int, _Entry[S]] = {}

    # --- rules ------------------------------------------------------------------------------------------------------

    def put(self, subscription: S, rule: Rule) -> None:
        """Add a rule, or replace the one of that name, which keeps its place."""
        entries = self._entries.setdefault(subscription, {})
        replaced = entries.get(rule.name.lower())
        if replaced is None:
            self._last += 1
            entry = _Entry(self._last, subscription, rule)
        else:
            self._take_out(replaced)
            entry = _Entry(replaced.number, subscription, rule)
        entries[rule.name.lower()] = entry
        self._put_in(entry)

    def remove(self, subscription: S, name: str) -> None:
        """Take a rule away, if it is there."""
        entry = self._entries.get(subscription, {}).pop(name.lower(), None)
        if entry is not None:
            self._take_out(entry)

    def remove_all(self, subscription: S) -> None:
        """Take all rules of a subscription away."""
        for entry in self._entries.pop(subscription, {}).values():
            self._take_out(entry)

    def rules(self, subscription: S) -> list[Rule]:
        """Return the rules of a subscription, in the order in which they were made."""
        return [entry.rule for entry in self._entries.get(subscription, {}).values()]

    def _files(self, condition: Condition) -> _Files[S]:
        return self._system if condition.is_system else self._user

    def _put_in(self, entry: _Entry[S]) -> None:
        given = entry.rule.filter.conditions
        if given is None:
            if not isinstance(entry.rule.filter, FalseFilter):
                self._tried[entry.number] = entry
            return
        conditions = [condition._replace(value=index_key(condition.value)) for condition in given]
        if not conditions:
            self._always[entry.number] = entry
        elif all(condition.value is not None for condition in conditions):  # nothing equals NULL
            filed = min(conditions, key=lambda condition: self._files(condition).count(condition))
            entry.filed = filed
            entry.others = tuple(condition for condition in conditions if condition is not filed)
            self._files(filed).add(filed, entry)

    def _take_out(self, entry: _Entry[S]) -> None:
        self._tried.pop(entry.number, None)
        self._always.pop(entry.number, None)
        if entry.filed is not None:
            self._files(entry.filed).remove(entry.filed, entry.number)

    # --- messages ---------------------------------------------------------------------------------------------------

    def match(self, facts: Facts) -> dict[S, Selected]:
        """Return the subscriptions of which a rule selects a message or fails.

        Only the sections that some rule asks about are decoded; one that is malformed raises
        :class:`~pairbus.amqp.conditions.AmqpError`.
        """
        entries = self._found(facts)
        errors: dict[int, EvaluationError] = {}
        for entry in self._tried.values():
            try:
                if entry.rule.filter.matches(facts):
                    entries.append(entry)
            except EvaluationError as error:
                errors[entry.number] = error
                entries.append(entry)
        entries.sort(key=attrgetter("number"))
        selected: dict[S, Selected] = {}
        for entry in entries:
            one = selected.get(entry.subscription)
            if one is None:
                one = selected[entry.subscription] = Selected()
            if entry.number in errors:
                one.errors.append((entry.rule, errors[entry.number]))
            else:
                one.rules.append(entry.rule)
        return selected

    def _found(self, facts: Facts) -> list[_Entry[S]]:
        """Return the entries that select a message and need not be tried."""
        found = list(self._always.values())
        for name in self._system.by_name:
            found += self._system.matching(name, SYSTEM[name](facts), facts)
        if self._user.by_name:  # else the section need not be decoded
            for name, value in facts.user.items():
                found += self._user.matching(name, value, facts)
        return found
