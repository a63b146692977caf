"""The few parts that the page is put together from."""

from collections.abc import Generator
from contextlib import contextmanager
from html import escape

from nicegui import ui
from nicegui.element import Element


class Live(ui.html):
    """A piece of HTML that is sent to the browser only when it has changed. What it is given must be escaped."""

    def __init__(self, content: str = "") -> None:
        super().__init__(content, sanitize=False)

    def show(self, content: str) -> None:
        """Show this."""
        if content != self.content:
            self.set_content(content)


@contextmanager
def panel(title: str, *, scrolls: bool = False, first: bool = False) -> Generator[Element]:
    """Make a part of the page with a title; gives the place beside the title.

    :param first: on a narrow page it comes before the others.
    :param scrolls: what is in it may be wider than the window: then it scrolls by itself, with the keyboard too.
    """
    with ui.element("section").props(f'aria-label="{escape(title)}"').classes("panel first" if first else "panel"):
        with ui.element("div").classes("panel-head") as head:
            Live(f"<h2>{escape(title)}</h2>")
        if scrolls:
            with (
                ui.element("div").props(f'tabindex=0 role=group aria-label="{escape(title)}, table"').classes("scroll")
            ):
                yield head
        else:
            yield head
