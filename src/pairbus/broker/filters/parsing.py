"""Service Bus SQL, from text to a tree of tokens.

The parser is LALR(1) and keeps its own stack, so that neither time nor depth can run away. Parentheses nested deeper
than anybody writes them are refused all the same, because what is made of the tree calls itself.
"""

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from pairbus.broker.filters.errors import ExpressionError
from pairbus.extras import require

if TYPE_CHECKING:
    from lark import Lark, Token, Tree, UnexpectedToken

    Branch: TypeAlias = Tree[Token]

MAX_NESTING: Final = 32

_VALUE: Final = frozenset(("NAME", "INTEGER"))
_SAID: Final = {
    "_IN": "IN",
    "_LIKE": "LIKE",
    "_SET": "SET",
    "_REMOVE": "REMOVE",
    "NULL": "NULL",
    "NOT": "NOT",
    "LPAR": "'('",
    "RPAR": "')'",
    "COMMA": "','",
    "SEMICOLON": "';'",
    "EQUAL": "'='",
    "NAME": "a property name",
    "$END": "the end of the expression",
}
_UNCLOSED: Final = {"'": "this text has no end", '"': "this name has no end", "[": "this name has no end"}


def parse(text: str, start: str) -> "Branch":
    """Parse a ``filter`` or an ``action``; what cannot be understood raises :class:`ExpressionError`."""
    require("broker", "a SQL filter")
    from lark import UnexpectedCharacters, UnexpectedToken  # noqa: PLC0415 (only who has SQL filters pays)

    try:
        return _parser().parse(text, start=start)  # pyright: ignore[reportUnknownMemberType] (its text may be bytes)
    except UnexpectedCharacters as error:
        found = text[error.pos_in_stream or 0]
        why = _UNCLOSED.get(found, "this character has no meaning here")
        raise ExpressionError(why, error.line, error.column, found) from None
    except UnexpectedToken as error:
        raise _unexpected(error, text) from None


@cache
def _parser() -> "Lark":
    from lark import Lark  # noqa: PLC0415 (only who has SQL filters pays)

    grammar = files("pairbus.broker.filters").joinpath("grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", lexer="basic", start=["filter", "action"], postlex=_Nesting())


class _Nesting:
    """Looks at the tokens on their way to the parser, and refuses too many open parentheses."""

    always_accept: tuple[str, ...] = ()

    def process(self, stream: Iterator["Token"]) -> Iterator["Token"]:
        depth = 0
        for token in stream:
            if token.type == "LPAR":
                depth += 1
                if depth > MAX_NESTING:
                    raise ExpressionError(
                        f"parentheses are nested more than {MAX_NESTING} deep", *position(token), str(token)
                    )
            elif token.type == "RPAR":
                depth -= 1
            yield token


def position(token: "Token") -> tuple[int, int]:
    """Return the line and the column at which a token begins."""
    return token.line or 1, token.column or 1


def _unexpected(error: "UnexpectedToken", text: str) -> ExpressionError:
    token = cast("Token", error.token)
    why = f"{_expected(error.accepts or set())} was expected"
    if token.type == "$END":  # which has the last token's place
        before = text.rstrip()
        return ExpressionError(why, before.count("\n") + 1, len(before) - before.rfind("\n"))
    if token.upper() == token.type.strip("_"):
        why += f"; {token.upper()} is a reserved word: if a property has that name, write [{token}]"
    return ExpressionError(why, *position(token), str(token))


def _expected(accepted: set[str]) -> str:
    """Say in a few words what could have come."""
    if accepted >= _VALUE:
        return "a condition" if "_EXISTS" in accepted else "a value"
    if accepted >= {"EQUAL", "_LIKE"}:
        return "a comparison (=, <>, <, >, LIKE, IN, IS NULL)"
    return " or ".join(sorted({_SAID[name] for name in accepted if name in _SAID})) or "an operator"
