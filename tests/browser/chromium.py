"""Where a browser is for the tests; run as a program, it installs one where that can be done."""

import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright
from tests.support.packages import install as install_package

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HINT = "no browser: install Chromium with the system's packages, or with `playwright install chromium`"


def find() -> str | None:
    """Return the system's Chromium, or the one that playwright has fetched; None: there is none."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        with sync_playwright() as playwright:
            own = playwright.chromium.executable_path
        found = own if Path(own).exists() else None
    return found


def install() -> None:
    """Install one: by the system's packages if this may be done, else by playwright."""
    install_package("chromium")
    if find() is None:
        subprocess.run(
            [sys.executable, "-m", "playwright", "install", "chromium"], check=False, stdout=subprocess.DEVNULL
        )
    if find() is None:
        sys.exit(HINT)


if __name__ == "__main__" and find() is None:
    install()
