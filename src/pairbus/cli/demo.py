"""``pairbus demo``: one outage, told as a story."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from pairbus.simulate.history import Line

STATES = {
    "suspect": "[yellow]{who}: 'orders' is suspect. The failover timer runs; sends are held and retried.[/]",
    "engaged": "[red]{who}: failover is engaged. From now on orders are parked in the secondary.[/]",
    "healthy": "[green]{who}: a ping was accepted. 'orders' is healthy; orders go to the primary again.[/]",
}


def demo() -> None:
    """Tell one outage as a story: what the senders, the pings and the syphon do, and that nothing is lost.

    The brokers are simulated, and so is time: three minutes without the primary pass in an instant. The rules that
    decide are pairbus's own.
    """
    from pairbus.simulate.checker import Fate
    from pairbus.simulate.story import outage
    from pairbus.simulate.world import World

    console = Console(highlight=False)
    console.print(
        "A shop, with a checkout and a kiosk, sends orders to the queue 'orders' of its primary namespace.\n"
        "It is paired: failover interval 30 s, ping interval 20 s, three backlog queues, one syphon.\n"
        "[dim]Brokers and time are simulated here; the rules that decide are pairbus's own.[/]\n"
    )
    result = World(outage()).run()
    for text in _story(result.history.lines):
        console.print(text, soft_wrap=True)
    sent = sum(result.fates.values())
    lost = sent - result.delivered
    table = Table(title="\nWhat became of the orders", title_justify="left", show_header=False)
    table.add_column(justify="right")
    for number, what in (
        (sent, "sent"),
        (sent - result.fates.get(Fate.ACCEPTED, 0), "sends that failed"),
        (result.parked, "of them parked while the primary was down"),
        (result.delivered, "arrived at 'orders'"),
        (lost, "lost"),
        (result.repeated, "arrived twice"),
    ):
        table.add_row(str(number), what)
    console.print(table)
    if result.ok and not lost:
        console.print("[bold green]No send failed, and no order was lost.[/]")
    console.print("[dim]Worlds in which everything goes wrong at once: pairbus simulate --seeds 1000[/]")


def _story(lines: Iterable["Line"]) -> Iterator[str]:
    """Tell the turning points, and what everybody did between two of them."""
    from pairbus.simulate.history import ACCEPTED, COMPLETED, NOT_TAKEN, PARKED, PINGED, TURNED, WORLD

    phrases = {
        ACCEPTED: ("order", "accepted by the primary"),
        NOT_TAKEN: ("attempt", "refused"),
        PARKED: ("order", "parked"),
        PINGED: ("ping", "sent"),
        COMPLETED: ("parked order", "delivered and removed from the backlog"),
    }

    def meanwhile() -> Iterator[str]:
        for who in sorted({who for who, _ in done}):
            counts = (
                f"{count} {what}{'s' * (count > 1)} {happened}"
                for form, (what, happened) in phrases.items()
                if (count := done[who, form])
            )
            yield f"[dim]               {who}: {', '.join(counts)}[/]"
        done.clear()

    done = Counter[tuple[str, str]]()
    for line in lines:
        if line.who == WORLD or line.form == TURNED:
            yield from meanwhile()
            when = f"[bold]{line.at:9.1f} s[/]"
            text = str(line).partition(WORLD)[2].strip()
            turn = STATES[str(line.args[-1])].format(who=line.who) if line.form == TURNED else f"[bold]{text}[/]"
            yield f"{when}  {turn}"
        elif line.form in phrases:
            done[line.who, line.form] += 1
    yield from meanwhile()
