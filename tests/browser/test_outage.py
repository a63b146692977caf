"""An outage, as the operator sees it: made, watched and ended on the page itself."""

import re
from collections.abc import Generator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusSubQueue
from playwright.sync_api import Page, expect
from tests.browser.conftest import NARROW
from tests.browser.pair import Pair, dashboard

# Reads how well a text can be read against what is behind it, for every text of the page: WCAG's contrast ratio.
CONTRAST = """() => {
  const parts = text => text.match(/[\\d.]+/g).map(Number);
  const linear = c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => [r, g, b].map(c => linear(c / 255))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const colour = parts(getComputedStyle(e).backgroundColor);
      if (colour.length < 4 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const poor = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement, box = element.getBoundingClientRect();
    if (!walker.currentNode.data.trim() || !box.width || element.closest('script, style, svg, .unseen')) continue;
    if (!element.checkVisibility({checkOpacity: true, checkVisibilityCSS: true})) continue;
    const [a, b] = [light(parts(getComputedStyle(element).color)), light(behind(element))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) poor.push(walker.currentNode.data.trim() + ' ' + ratio.toFixed(2));
  }
  return poor;
}"""


UNNAMED = """() => [...document.querySelectorAll('button, input')]
  .filter(e => !e.ariaLabel && !e.innerText && !e.labels?.length).map(e => e.outerHTML)"""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Generator[Pair]:
    with Pair(tmp_path_factory.mktemp("pair"), failover_interval=4) as made:
        yield made


@pytest.fixture(scope="module")
def url(pair: Pair) -> Generator[str]:
    with dashboard("--ledger", str(pair.ledger), env=pair.connections) as address:
        yield address


def choose(page: Page, field: str, option: str) -> None:
    page.get_by_role("combobox", name=field).click()
    page.get_by_role("option", name=option, exact=True).click()


def test_dead_letters_are_looked_at_resubmitted_and_discarded_by_clicking(page: Page, pair: Pair, url: str) -> None:
    pair.dead_letter("returns", "BadAddress", "no such <street>", "return-1", "return-2")
    page.goto(url)
    letters = page.get_by_role("region", name="Dead letters")
    expect(letters.get_by_text("BadAddress")).to_have_count(2)
    expect(letters.get_by_text("no such <street>")).to_have_count(2)
    letters.get_by_role("button", name="Look: return-1").click()
    shown = page.get_by_role("dialog", name="Message return-1")
    expect(shown).to_contain_text('"body": "return-1"')
    page.keyboard.press("Escape")
    expect(shown).to_have_count(0)

    letters.get_by_role("button", name="Resubmit: return-1").click()
    asked = page.get_by_role("dialog", name="Send return-1 again?")
    asked.get_by_role("button", name="Resubmit").click()
    expect(page.get_by_text("1 message sent again.")).to_be_visible()
    expect(letters.get_by_text("return-1")).to_have_count(0)
    with pair.factory.get_queue_receiver("returns") as receiver:
        (message,) = receiver.receive_messages(max_wait_time=10)
        assert (message.message_id, str(message)) == ("return-1", "return-1")
        receiver.complete_message(message)

    letters.get_by_role("button", name="Discard: return-2").click()
    expect(page.get_by_role("button", name="Keep")).to_be_focused()
    page.get_by_role("dialog", name="Discard return-2?").get_by_role("button", name="Keep").click()
    expect(letters.get_by_text("return-2")).to_be_visible()
    letters.get_by_role("button", name="Discard: return-2").click()
    page.get_by_role("dialog", name="Discard return-2?").get_by_role("button", name="Discard").click()
    expect(letters).to_contain_text("No dead letters.")
    with pair.factory.get_queue_receiver("returns", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        assert receiver.peek_messages() == []


def test_the_page_shows_each_state_of_an_outage(page: Page, pair: Pair, url: str) -> None:
    """S3, S4, G2: healthy, suspect, engaged, and healthy again; the chart moves, and the backlog fills and drains."""
    pair.keep_sending("orders")
    page.goto(url)
    orders = page.get_by_role("region", name="Entities").get_by_role("listitem").filter(has_text="orders").first
    at = orders.locator("[aria-current=step]")
    activity, matter = (
        page.get_by_role("region", name="Activity"),
        page.get_by_role("region", name="What is the matter"),
    )
    expect(at).to_have_text("healthy")
    expect(matter).to_contain_text("healthy")
    expect(page.locator("path.line.sent")).not_to_have_count(0)
    before = page.locator("path.line.sent").last.get_attribute("d")
    expect(page.locator("path.line.sent").last).not_to_have_attribute("d", before or "")
    expect(activity.get_by_role("img")).to_have_attribute("aria-label", re.compile(r"Now: [1-9]\S* sent, 0 parked"))

    choose(page, "For", "until cleared")
    page.get_by_role("button", name="Switch on").click()
    expect(page.get_by_role("list", name="Faults that are on")).to_contain_text("contoso: down, until cleared")
    expect(at).to_have_text("suspect")
    expect(matter).to_contain_text("orders does not take messages.")
    expect(at).to_have_text("engaged")
    expect(matter).to_contain_text("orders is failing over")
    expect(matter).to_contain_text("The primary namespace contoso cannot be seen since")
    expect(page.get_by_role("status")).to_contain_text("orders is failing over")
    expect(page.locator("path.line.parked")).not_to_have_count(0)
    backlog = page.get_by_role("region", name="Backlog queues")
    expect(backlog).to_contain_text(re.compile(r"orders \d+"))
    expect(activity.locator(".lane i.engaged")).not_to_have_count(0)
    expect(page.get_by_role("region", name="Outages")).to_contain_text("and lasts")

    page.get_by_role("button", name="Clear contoso").click()
    expect(at).to_have_text("healthy")
    expect(page.locator("path.line.delivered")).not_to_have_count(0)
    expect(backlog).not_to_contain_text(re.compile(r"orders \d+"), timeout=30_000)
    expect(matter).to_contain_text("healthy")
    row = page.get_by_role("region", name="Outages").get_by_role("row").filter(has_text="orders")
    expect(row).not_to_contain_text("and lasts")
    assert int(row.get_by_role("cell").last.inner_text().replace(",", "")) > 0
    money = page.get_by_role("region", name="Operations and money")
    for stage in ("direct", "park", "ping", "syphon", "together"):
        expect(money.get_by_role("row").filter(has_text=stage).first).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_can_be_read_in_every_light_and_width(page: Page, url: str, scheme: str) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.goto(url)
    expect(page.get_by_role("region", name="Entities")).to_contain_text("orders")
    assert page.evaluate("document.body.classList.contains('body--dark')") is (scheme == "dark")
    for size in (None, NARROW):
        if size is not None:
            page.set_viewport_size(size)  # type: ignore[arg-type]
        assert page.evaluate(CONTRAST) == []
        assert page.evaluate("document.scrollingElement.scrollWidth - innerWidth") <= 0
        assert page.evaluate(UNNAMED) == []


def test_by_keyboard_and_by_landmarks(page: Page, url: str) -> None:
    page.goto(url)
    expect(page.get_by_role("banner")).to_have_count(1)
    expect(page.get_by_role("main")).to_have_count(1)
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    assert page.evaluate("document.documentElement.lang") == "en-US"
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    hour = page.get_by_role("button", name="1 hour")
    hour.focus()
    page.keyboard.press("Enter")
    expect(hour).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("img")).to_have_attribute("aria-label", re.compile("in the last 1 hour"))


def test_the_theme_that_was_chosen_is_kept(page: Page, url: str) -> None:
    page.goto(url)
    page.get_by_role("button", name="Dark").click()
    expect(page.locator("body.body--dark")).to_have_count(1)
    page.reload()
    expect(page.get_by_role("button", name="Dark")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("body.body--dark")).to_have_count(1)


def test_an_order_that_is_refused_is_told_in_words(page: Page, url: str) -> None:
    page.goto(url)
    page.get_by_label("Entity, or all").fill("orders")
    page.get_by_role("button", name="Switch on").click()
    expect(page.get_by_role("alert")).to_contain_text("kind='down' is not valid")


def test_nothing_is_left_behind(pair: Pair) -> None:
    assert {path.suffix for path in Path(pair.ledger).iterdir()} == {".jsonl"}
