"""Filters and actions of topic subscriptions, as in the cloud; pure.

A :class:`Rule` is valid once it can be made (else :class:`InvalidRuleError`), and goes into a :class:`Matcher`, which
tells of a message's :class:`Facts` which subscriptions select it; :func:`apply_action` makes the copy of a rule with
an action. How an expression is read is in ``grammar.lark``, ``parsing`` and ``reading``, what it means in ``values``
and ``compiling``.
"""

from pairbus.broker.filters.actions import RULE_NAME, Changes, apply_action, changes_of
from pairbus.broker.filters.errors import EvaluationError, ExpressionError, InvalidRuleError
from pairbus.broker.filters.facts import Facts
from pairbus.broker.filters.matching import Matcher, Selected
from pairbus.broker.filters.rules import (
    DEFAULT_RULE,
    CorrelationFilter,
    FalseFilter,
    Filter,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
)

__all__ = [
    "DEFAULT_RULE",
    "RULE_NAME",
    "Changes",
    "CorrelationFilter",
    "EvaluationError",
    "ExpressionError",
    "Facts",
    "FalseFilter",
    "Filter",
    "InvalidRuleError",
    "Matcher",
    "Rule",
    "Selected",
    "SqlAction",
    "SqlFilter",
    "TrueFilter",
    "apply_action",
    "changes_of",
]
