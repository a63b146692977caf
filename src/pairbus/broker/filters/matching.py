"""Which rules of which subscriptions select a message.

A rule that comes to equalities (a correlation filter, or SQL such as ``color = 'red' AND sys.Label = 'a'``) is found
by the value of one of its properties, so that its cost does not grow with the number of such rules.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pairbus.broker.filters.errors import EvaluationError
from pairbus.broker.filters.facts import Facts
from pairbus.broker.filters.rules import Rule

S = TypeVar("S", bound=Hashable)
"""A subscription: its name, or whatever stands for it."""


@dataclass(slots=True)
class Selected:
    """What the rules of one subscription make of a message, in the order in which they were made."""

    rules: list[Rule] = field(default_factory=list[Rule])
    """Those that select it."""
    errors: list[tuple[Rule, EvaluationError]] = field(default_factory=list[tuple[Rule, EvaluationError]])
    """Those that failed, and why."""


class Matcher(Generic[S]):
    """The rules of all subscriptions of one topic. Names of rules are compared without regard to case."""

    def __init__(self) -> None:
        self._rules: dict[S, dict[str, Rule]] = {}

    def put(self, subscription: S, rule: Rule) -> None:
        """Add a rule, or replace the one of that name, which keeps its place."""
        self._rules.setdefault(subscription, {})[rule.name.lower()] = rule

    def remove(self, subscription: S, name: str) -> None:
        """Take a rule away, if it is there."""
        self._rules.get(subscription, {}).pop(name.lower(), None)

    def remove_all(self, subscription: S) -> None:
        """Take all rules of a subscription away."""
        self._rules.pop(subscription, None)

    def rules(self, subscription: S) -> list[Rule]:
        """Return the rules of a subscription, in the order in which they were made."""
        return list(self._rules.get(subscription, {}).values())

    def match(self, facts: Facts) -> dict[S, Selected]:
        """Return the subscriptions of which a rule selects a message or fails."""
        found: dict[S, Selected] = {}
        for subscription, rules in self._rules.items():
            selected = Selected()
            for rule in rules.values():
                try:
                    if rule.filter.matches(facts):
                        selected.rules.append(rule)
                except EvaluationError as error:
                    selected.errors.append((rule, error))
            if selected.rules or selected.errors:
                found[subscription] = selected
        return found
