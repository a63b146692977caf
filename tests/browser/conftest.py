"""The dashboard in a real browser."""

import os
from collections.abc import Generator

import pytest
from playwright.sync_api import Browser, Page, Request, expect, sync_playwright
from tests.browser import chromium

expect.set_options(timeout=30_000)

WIDE, NARROW = {"width": 1360, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="session")
def browser() -> Generator[Browser]:
    """Chromium, without a window."""
    there = chromium.find()
    if there is None:
        pytest.skip(chromium.HINT)
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        launched = playwright.chromium.launch(executable_path=there, args=arguments)
        yield launched
        launched.close()


@pytest.fixture
def page(browser: Browser) -> Generator[Page]:
    """An empty page. Whatever it loads must come from this machine, and no script of it may fail."""
    opened = browser.new_page(viewport=WIDE)  # type: ignore[arg-type]
    opened.set_default_timeout(30_000)
    elsewhere: list[str] = []
    errors: list[str] = []

    def look(request: Request) -> None:
        if not request.url.startswith(("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:")):
            elsewhere.append(request.url)

    opened.on("request", look)
    opened.on("websocket", lambda socket: None if "://127.0.0.1:" in socket.url else elsewhere.append(socket.url))
    opened.on("pageerror", lambda error: errors.append(str(error)))
    yield opened
    opened.close()
    assert (elsewhere, errors) == ([], [])
