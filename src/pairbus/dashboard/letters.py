"""Dead letters on the page: what they are, why they are dead, and two buttons that ask before they do anything."""

import json
from collections.abc import Awaitable, Callable
from functools import partial
from html import escape
from typing import Final, TypeAlias

from nicegui import ui

from pairbus.dashboard.dead_letters import EntityDeadLetters
from pairbus.dashboard.monitor import Monitor
from pairbus.dashboard.snapshot import Role
from pairbus.dashboard.widgets import Live, panel
from pairbus.dashboard.words import plural, stamp
from pairbus.errors import PairbusError
from pairbus.operate.deadletters import Letter

Work: TypeAlias = Callable[[], Awaitable[str]]

_YES: Final = "yes"
_TOLD_SECONDS: Final = 8


class DeadLetters:
    """Shows the dead letters, and does what it is told to do with them."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._shown: tuple[EntityDeadLetters, ...] | None = None
        with panel("Dead letters"):
            self._place = ui.element("div").classes("piles")

    def refresh(self) -> None:
        """Show what is known now; nothing moves under a pointer as long as that stays the same."""
        piles = self._monitor.piles.piles
        if piles == self._shown:
            return
        self._shown = piles
        self._place.clear()
        with self._place:
            if not piles:
                known = bool(self._monitor.piles.is_informed)
                hint = "" if known else "They are looked for in the namespaces that the dashboard is given."
                Live(f'<p class="empty"><b>{"No dead letters." if known else "Not known."}</b> {hint}</p>')
            for pile in piles:
                self._pile(pile)

    def _pile(self, pile: EntityDeadLetters) -> None:
        with ui.element("div").classes("pile"):
            with ui.element("div").classes("pile-head"):
                Live(
                    f"<h3>{escape(pile.shelf.name)}</h3><span>{pile.role} · {plural(pile.count, 'dead letter')}</span>"
                )
                if pile.count > 1:
                    self._button("Resubmit all", partial(self._resubmit, pile, None), pile.shelf.name)
                    self._button("Discard all", partial(self._discard, pile, None), pile.shelf.name)
            if pile.problem is not None:
                Live(f'<p class="empty"><b>They cannot be looked at:</b> {escape(pile.problem)}.</p>')
            for letter in pile.letters:
                self._letter(pile, letter)
            if pile.letters and pile.count > len(pile.letters):
                Live(f'<p class="small">The oldest {len(pile.letters)} are shown.</p>')

    def _letter(self, pile: EntityDeadLetters, letter: Letter) -> None:
        name = letter.message_id or f"number {letter.sequence_number}"
        facts = [f"id {name}", *([stamp(letter.enqueued_at)] if letter.enqueued_at is not None else [])]
        if letter.destination:
            facts.append(f"for {letter.destination}")
        with ui.element("div").classes("letter"):
            Live(
                f"<p><b>{escape(letter.reason or 'no reason given')}</b> {escape(letter.description)}</p>"
                f'<p class="small">{escape(" · ".join(facts))}</p>'
            ).classes("grow")
            self._button("Look", partial(self._look, letter, name), name)
            self._button("Resubmit", partial(self._resubmit, pile, letter), name)
            self._button("Discard", partial(self._discard, pile, letter), name)

    def _button(self, label: str, on_click: Callable[[], Awaitable[None]], of: str) -> None:
        button = ui.button(label, on_click=on_click).props("outline dense no-caps color=ink").classes("act")
        button.props["aria-label"] = f"{label}: {of}"

    async def _look(self, letter: Letter, name: str) -> None:
        with self._place, ui.dialog() as dialog, ui.card().classes("card"):
            Live(f"<h2>{escape(name)}</h2>")
            text = json.dumps(letter.document(), indent=2, ensure_ascii=False)
            Live(f'<pre tabindex="0">{escape(text)}</pre>').classes("document")
            with ui.element("div").classes("answers"):
                ui.button("Close", on_click=dialog.close).props("flat no-caps color=ink autofocus")
        dialog.props["aria-label"] = f"Message {name}"
        await dialog
        dialog.delete()

    async def _resubmit(self, pile: EntityDeadLetters, letter: Letter | None) -> None:
        what = _named(pile, letter)
        role = Role.PRIMARY if pile.shelf.is_backlog else pile.role
        back = f"Left empty, it goes back to {pile.shelf.name}"
        back += ", from where the syphon carries it home." if pile.shelf.is_backlog else "."
        if pile.shelf.subscription is not None:
            back = f"Not to {pile.shelf.entity} itself, which would give every subscription another copy."
        with self._place, ui.dialog() as dialog, ui.card().classes("card"):
            Live(f"<h2>Send {escape(what)} again?</h2>")
            Live(
                f"<p>It keeps its id, and leaves the dead letters of <b>{escape(pile.shelf.name)}</b> when accepted. "
                "Nothing is lost if that fails half way.</p>"
            )
            to = ui.input(f"Queue or topic of the {role}").props("outlined dense autofocus").classes("full")
            Live(f'<p class="small">{escape(back)}</p>')
            with ui.element("div").classes("answers"):
                ui.button("Cancel", on_click=dialog.close).props("flat no-caps color=ink")
                yes = ui.button("Resubmit", on_click=partial(dialog.submit, _YES), color=None)
                yes.props("unelevated no-caps").classes("go")
        dialog.props["aria-label"] = f"Send {what} again?"
        agreed = await dialog
        where = str(to.value or "").strip()
        dialog.delete()
        if agreed:
            letters = None if letter is None else [letter]
            await self._do(partial(self._monitor.piles.resubmit, pile, letters, where))

    async def _discard(self, pile: EntityDeadLetters, letter: Letter | None) -> None:
        what = _named(pile, letter)
        with self._place, ui.dialog() as dialog, ui.card().classes("card"):
            Live(f"<h2>Discard {escape(what)}?</h2>")
            Live(f"<p>From the dead letters of <b>{escape(pile.shelf.name)}</b>, for good. It cannot be undone.</p>")
            with ui.element("div").classes("answers"):
                ui.button("Keep", on_click=dialog.close).props("flat no-caps color=ink autofocus")
                yes = ui.button("Discard", on_click=partial(dialog.submit, _YES), color=None)
                yes.props("unelevated no-caps").classes("danger")
        dialog.props["aria-label"] = f"Discard {what}?"
        agreed = await dialog
        dialog.delete()
        if agreed:
            await self._do(partial(self._monitor.piles.discard, pile, None if letter is None else [letter]))

    async def _do(self, work: Work) -> None:
        with self._place:
            note = ui.notification("Under way …", spinner=True, timeout=None, multi_line=True)
        try:
            note.message = await work()
            note.timeout = _TOLD_SECONDS
        except PairbusError as error:
            note.message, note.type = str(error), "negative"
            note.close_button = "Close"
        note.spinner = False
        self.refresh()


def _named(pile: EntityDeadLetters, letter: Letter | None) -> str:
    if letter is None:
        return f"all {plural(pile.count, 'dead letter')}"
    return letter.message_id or f"number {letter.sequence_number}"
