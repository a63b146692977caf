r"""What the commands print on a terminal. No other module of ``pairbus.cli`` makes a console.

Most of what a command shows was written by somebody else: message ids, dead-letter reasons, destinations in
``x-ms-path``, names of entities, texts of errors. Printed by Rich's own console, ``orders[eu]`` is shown as
``orders``, ``orders[/b]`` raises an error, and ``\x1b[2J`` clears the operator's screen. So the console that
:func:`console` makes takes every ``str`` literally, in lines, cells, titles and headings alike: no markup, no emoji
codes, no highlighting, and control characters are shown as Python writes them. What is to be coloured is said with
:func:`line`, not with markup.

JSON for machines does not go through a console; :func:`json_text` makes it as safe to look at.
"""

import json
import re
from typing import Any, Final

from rich.console import Console
from rich.text import Text

_ESCAPED_IN_JSON: Final = re.compile("[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff]")
"""What JSON leaves as it is and a terminal may obey (DEL, C1, bidirectional overrides) or not show, and surrogates."""


def visible(text: object) -> str:
    """Return a text in one line, with every character that a terminal would obey or hide written as an escape."""
    return "".join(each if each.isprintable() else _escape(each) for each in str(text))


def line(*parts: str | tuple[str, str]) -> Text:
    """Put a styled text together: each part is literal, or literal with a style."""
    return Text.assemble(*(_safe(part) if isinstance(part, str) else (_safe(part[0]), part[1]) for part in parts))


def console(*, stderr: bool = False) -> Console:
    """Make a console that takes every ``str`` literally."""
    return _LiteralConsole(stderr=stderr, markup=False, emoji=False, highlight=False)


def json_text(document: object, *, indent: int | None = None) -> str:
    """Return JSON in the characters that it is about, but for those that a terminal would obey: they are escaped."""
    written = json.dumps(document, ensure_ascii=False, indent=indent)
    return _ESCAPED_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", written)


class _LiteralConsole(Console):
    """Rich turns every ``str`` that it is to show into text by this one method."""

    def render_str(self, text: str, **options: Any) -> Text:  # noqa: ANN401 (Rich's own)
        literal: dict[str, Any] = {**options, "markup": False, "emoji": False}
        return super().render_str(_safe(text), **literal)


def _safe(text: str) -> str:
    """Return a text that may have lines of ours, and nothing else that a terminal obeys."""
    return text if text.isprintable() else "\n".join(map(visible, text.split("\n")))


def _escape(character: str) -> str:
    return repr(character)[1:-1]
