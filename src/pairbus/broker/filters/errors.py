"""What can be wrong with a rule when it is made, and what can go wrong when it meets a message.

.. code-block:: text

    RefusedError (com.microsoft:argument-error)
    └── InvalidRuleError       a rule that cannot be made: its name, a filter without conditions, a value
        └── ExpressionError    its SQL cannot be understood; ``line``, ``column`` and ``found`` say where
    PairbusError
    └── EvaluationError        a rule that fails on this message; a subscription may dead-letter it for that
"""

from pairbus.broker.refusals import ARGUMENT_ERROR, RefusedError
from pairbus.errors import PairbusError


class InvalidRuleError(RefusedError):
    """A rule that cannot be made."""

    def __init__(self, description: str) -> None:
        super().__init__(ARGUMENT_ERROR, description)


class ExpressionError(InvalidRuleError):
    """The SQL of a filter or an action cannot be understood; lines and columns are counted from 1."""

    def __init__(self, why: str, line: int, column: int, found: str = "") -> None:
        self.why = why
        self.line = line
        self.column = column
        self.found = found
        super().__init__(
            "There was an error parsing the SQL expression. "
            f"[Token line={line}, column={column}, Token in error={found}, Additional details={why}]"
        )


class EvaluationError(PairbusError):
    """A filter or an action that fails on a message: it divides by zero, subtracts from a text, and the like."""
