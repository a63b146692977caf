"""One outage of a simulated world, made by hand."""

from datetime import timedelta

from pairbus.core.envelope import Label
from pairbus.simulate.brokers import Fault, FaultKind, Message
from pairbus.simulate.setting import SenderSetting, Setting

OUTAGE_BEGINS, OUTAGE_ENDS = 20.0, 200.0


def outage(seed: int = 0) -> Setting:
    """A shop sends orders, one every few seconds; its broker goes down for three minutes."""
    orders = tuple(
        Message(f"order-{number}", Label(session_id=f"customer-{number % 3}", time_to_live=timedelta(days=1)))
        for number in range(1, 61)
    )
    return Setting(
        seed=seed,
        failover_interval=30.0,
        ping_interval=20.0,
        backlog_queues=3,
        senders=(
            SenderSetting("checkout", "orders", orders[:30], gap=8.0),
            SenderSetting("kiosk", "orders", orders[30:], gap=8.0),
        ),
        primary_faults=(Fault(FaultKind.REFUSED, None, OUTAGE_BEGINS, OUTAGE_ENDS),),
    )
