"""A producer that knows nothing of pairing but its two lines of set-up.

    PAIRBUS_PRIMARY_CONNECTION_STRING=… PAIRBUS_SECONDARY_CONNECTION_STRING=… python examples/orders.py --orders 1000

sends orders of a few customers, one session each, to the queue ``orders``. Kill the primary meanwhile, and start it
again: no exception reaches this program, and every order arrives.
"""

import argparse
import asyncio
import os

from azure.servicebus import ServiceBusMessage

from pairbus.aio import MessagingFactory, NamespaceManager, SendAvailabilityPairedNamespaceOptions

CUSTOMERS = 5


async def produce(factory: MessagingFactory, customer: int, orders: int, pause: float) -> None:
    """Send the orders of one customer, in their order."""
    async with factory.get_queue_sender("orders") as sender:
        for number in range(orders):
            order = f"customer {customer}, order {number}"
            await sender.send_messages(
                ServiceBusMessage(order, message_id=f"{customer}-{number}", session_id=f"customer-{customer}")
            )
            await asyncio.sleep(pause)


async def main() -> None:
    """Produce, and say when all is sent."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=int, default=200, help="of each customer")
    parser.add_argument("--pause", type=float, default=0.05, help="between two orders of a customer, in seconds")
    parser.add_argument("--failover-interval", type=float, default=5, help="in seconds")
    arguments = parser.parse_args()
    primary = os.environ["PAIRBUS_PRIMARY_CONNECTION_STRING"]
    secondary = os.environ["PAIRBUS_SECONDARY_CONNECTION_STRING"]
    async with (
        MessagingFactory.from_connection_string(primary) as factory,
        MessagingFactory.from_connection_string(secondary) as backup,
        NamespaceManager.from_connection_string(secondary) as manager,
    ):
        options = SendAvailabilityPairedNamespaceOptions(
            manager,
            backup,
            failover_interval=arguments.failover_interval,
            ping_primary_interval=1,
            enable_syphon=True,
        )
        await factory.pair_namespace(options)
        await asyncio.gather(
            *(produce(factory, customer, arguments.orders, arguments.pause) for customer in range(CUSTOMERS))
        )
        print(f"sent {CUSTOMERS * arguments.orders} orders", flush=True)
        while factory.availability.entity("orders").state.value != "healthy":  # noqa: ASYNC110
            await asyncio.sleep(0.5)  # or leave: what is parked is carried home by any process that hosts the syphon


if __name__ == "__main__":
    asyncio.run(main())
