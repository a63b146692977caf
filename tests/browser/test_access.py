"""Who may see the page, and what it is worth when there is little to see."""

import signal
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Browser, Page, expect
from tests.browser.pair import TOKEN, dashboard
from tests.support.ports import free_port

from pairbus.instrument.hooks import Instrument
from pairbus.instrument.ledger import LedgerFile
from pairbus.testing import EmbeddedBroker

EVERYWHERE = "0.0.0.0"  # noqa: S104 (with a token)
NOBODY = "Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=Root;SharedAccessKey=c2VjcmV0;UseDevelopmentEmulator=true"


def test_an_empty_ledger_is_explained_and_what_comes_later_is_shown(page: Page, tmp_path: Path) -> None:
    with dashboard("--ledger", str(tmp_path)) as url:
        page.goto(url)
        expect(page.get_by_role("region", name="What is the matter")).to_contain_text("Nothing to report yet.")
        expect(page.get_by_role("region", name="Entities")).to_contain_text("No entity yet.")
        expect(page.get_by_role("region", name="Backlog queues")).to_contain_text("The secondary is not known.")
        expect(page.get_by_role("region", name="Dead letters")).to_contain_text("Not known.")
        expect(page.get_by_role("region", name="Faults")).to_have_count(0)
        ledger = LedgerFile(tmp_path)
        Instrument([ledger], client="shop").turn("contoso", "<b>orders</b>", "suspect")
        ledger.close()
        expect(page.get_by_role("region", name="Entities")).to_contain_text("<b>orders</b>")


def test_a_namespace_that_is_unreachable_is_named_and_tried_until_it_is_there(page: Page) -> None:
    port = free_port()
    variables = {"PAIRBUS_PRIMARY_CONNECTION_STRING": NOBODY.format(port=port)}
    with dashboard(env=variables) as url:
        page.goto(url)
        matter = page.get_by_role("region", name="What is the matter")
        expect(matter).to_contain_text(f"The primary namespace 127-0-0-1-{port} cannot be seen since")
        expect(matter).to_contain_text("it cannot be reached")
        expect(matter).to_contain_text("No ledger was given")
        expect(page.get_by_role("banner")).to_contain_text("unreachable")
        with EmbeddedBroker(namespaces=[f"contoso:{port}"]):
            expect(matter).to_contain_text("access is denied")  # the key is not this broker's


def test_elsewhere_than_on_this_machine_a_token_is_needed(browser: Browser, page: Page, tmp_path: Path) -> None:
    arguments = ("--ledger", str(tmp_path), "--host", EVERYWHERE)
    command = [sys.executable, "-m", "pairbus", "dashboard", *arguments]
    refused = subprocess.run(command, check=False, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "PAIRBUS_DASHBOARD_TOKEN" in refused.stderr.replace("\n", "")
    with dashboard(*arguments, env={"PAIRBUS_DASHBOARD_TOKEN": TOKEN}) as url:
        here = url.replace("localhost", "127.0.0.1")
        page.goto(here)
        expect(page.get_by_role("alert")).to_have_text("This page needs a token.")
        page.get_by_label("Token").fill("some other token")
        page.get_by_role("button").click()
        expect(page.get_by_role("alert")).to_have_text("That is not the token.")
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button").click()
        expect(page.get_by_text("Nothing to report yet.").first).to_be_visible()
        clock = page.locator(".clock")
        expect(clock).not_to_have_text(clock.inner_text())  # it is alive: the WebSocket passes too
        (cookie,) = page.context.cookies()
        assert (cookie.get("httpOnly"), cookie.get("sameSite")) == (True, "Strict")
        other = browser.new_page()
        other.goto(f"{here}?token={TOKEN}")
        expect(other.get_by_text("Nothing to report yet.").first).to_be_visible()
        assert TOKEN not in other.url
        other.close()


def test_ctrl_c_ends_it_while_somebody_looks(page: Page, tmp_path: Path) -> None:
    with dashboard("--ledger", str(tmp_path), ends_by=signal.SIGINT) as url:
        page.goto(url)
        expect(page.get_by_role("heading", name="pairbus")).to_be_visible()
