"""The page. It shows what the monitor knows, once a second, and changes only what has changed."""

from importlib import resources
from typing import Final, cast

from nicegui import ui

from pairbus.dashboard import sections
from pairbus.dashboard.account import WINDOWS
from pairbus.dashboard.letters import DeadLetters
from pairbus.dashboard.monitor import SHOW_SECONDS, Monitor
from pairbus.dashboard.snapshot import Role
from pairbus.dashboard.switchboard import Switchboard
from pairbus.dashboard.widgets import Live, panel

_THEMES: Final = {"auto": None, "light": False, "dark": True}
_REMEMBERED: Final = "localStorage.getItem('pairbus-theme')"


def add_page(monitor: Monitor) -> None:
    """Have the page at ``/``."""
    style = resources.files("pairbus.dashboard").joinpath("style.css").read_text(encoding="utf-8")

    @ui.page("/")
    def index() -> None:
        ui.add_css(style)
        page = Page(monitor)
        page.refresh()
        ui.timer(SHOW_SECONDS, page.refresh)
        ui.timer(0, page.recall_theme, once=True)


class Page:
    """What one browser shows."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._told: tuple[str, ...] = ()
        self._title = ""
        self._dark = ui.dark_mode(None)
        with ui.header(fixed=False, elevated=False, wrap=True):
            self._head()
        with ui.element("div").props("id=content tabindex=-1").classes("content"):
            with ui.element("section").props('aria-label="What is the matter"').classes("notices"):
                self._notices = Live()
            self._announcer = Live().props("role=status aria-live=polite").classes("unseen")
            with ui.element("section").props('aria-label="Figures"'):
                self._figures = Live()
            with ui.element("div").classes("columns"):
                with ui.element("div").classes("wide"):
                    self._main_column()
                with ui.element("div").classes("slim"):
                    self._side_column()

    def _head(self) -> None:
        Live('<a href="#content">Skip to the content</a>').classes("skip")
        Live("<h1>pairbus</h1>")
        self._namespaces = Live().classes("namespaces")
        Live().classes("stretch")
        self._clock = Live().classes("clock")
        self._theme = (
            ui.toggle({name: name.capitalize() for name in _THEMES}, value="auto", on_change=self._choose_theme)
            .props('flat dense no-caps toggle-color=ink aria-label="Theme"')
            .classes("choice")
        )

    def _main_column(self) -> None:
        with panel("Activity") as head:
            with head:
                self._window = (
                    ui.toggle({window.name: window.title for window in WINDOWS}, value=WINDOWS[0].name)
                    .props('flat dense no-caps toggle-color=ink aria-label="Time shown"')
                    .on_value_change(self.refresh)
                    .classes("choice")
                )
            self._activity = Live()
        with panel("Backlog queues", scrolls=True):
            self._backlog = Live()
        self._letters = DeadLetters(self._monitor)
        with panel("Outages", scrolls=True):
            self._outages = Live()

    def _side_column(self) -> None:
        with panel("Entities", first=True):
            self._entities = Live()
        with panel("Operations and money"):
            self._costs = Live()
        self._switchboard = Switchboard(self._monitor)

    def refresh(self) -> None:
        """Show what is known now."""
        view = self._monitor.view
        rates = next(rates for rates in view.rates if rates.window.name == self._window.value)
        self._notices.show(sections.notices(view.notices))
        self._namespaces.show(sections.namespaces(view.looks))
        self._clock.show(sections.clock_face(view.now))
        self._figures.show(sections.figures(view))
        self._activity.show(sections.activity(rates, view.entities))
        self._backlog.show(sections.backlog(view.look(Role.SECONDARY)))
        self._outages.show(sections.outages(view.outages, view.now))
        self._entities.show(sections.entities(view.entities, view.now))
        self._costs.show(sections.costs(view.costs))
        self._letters.refresh()
        self._switchboard.refresh()
        title = sections.title(view.notices)
        if title != self._title:
            self._title = title
            ui.page_title(title)
        told = tuple(notice.about for notice in view.notices)
        if told != self._told:  # figures that tick are not read out
            self._told = told
            self._announcer.show(sections.notices(view.notices))

    async def recall_theme(self) -> None:
        """Take the theme that this browser was given the last time."""
        await ui.context.client.connected()
        theme = cast("str | None", await ui.run_javascript(f"return {_REMEMBERED}"))
        if theme in _THEMES:
            self._theme.value = theme

    def _choose_theme(self) -> None:
        theme = str(self._theme.value)
        self._dark.value = _THEMES[theme]
        ui.run_javascript(f"localStorage.setItem('pairbus-theme', '{theme}')")
