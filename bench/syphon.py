"""The syphon inside an application beside the loop that a user would write on the SDK: parked messages a second.

Both move messages of 1 KB from ten backlog queues of one broker to a queue of another. The brokers run in processes of
their own and keep everything in memory; each mover has this process's one event loop, and opens its links within the
time that is measured. The user's loop receives 100, sends them one by one and completes them one by one.

Run by ``make bench``; ``--full`` takes 20,000 messages, and then 200,000 to see that a deep backlog is no slower.
"""

import argparse
import asyncio
import resource
import time
from collections.abc import Awaitable, Callable, Sequence

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient

from pairbus.amqp import build_message
from pairbus.amqp.message import encode_data_section
from pairbus.amqp.sections import Properties
from pairbus.core.envelope import PATH
from pairbus.core.naming import backlog_paths
from pairbus.links.sdk.transport import SdkTransport
from pairbus.links.transport import Outgoing
from pairbus.syphon.in_process import Syphon
from pairbus.testing import EmbeddedBroker

QUEUES = backlog_paths("contoso", 10)
BODY = encode_data_section(b"x" * 1024)
AT_ONCE = 200
WANTED = 3.0


async def fill(client: ServiceBusClient, messages: int, queues: Sequence[str] = QUEUES) -> None:
    """Park messages in all queues alike, encoded once and for all."""
    transport = SdkTransport(client)
    for queue in queues:
        for start in range(0, messages // len(queues), AT_ONCE):
            payloads = [
                build_message(
                    BODY,
                    properties=Properties(message_id=f"{queue}-{number}"),
                    application_properties={PATH: "orders", "number": number},
                )
                for number in range(start, min(start + AT_ONCE, messages // len(queues)))
            ]
            await transport.send(queue, Outgoing(payloads))
    await transport.close()


def unparked(message: ServiceBusReceivedMessage) -> ServiceBusMessage:
    """Make the message anew that was parked."""
    properties = {
        name: value for name, value in (message.application_properties or {}).items() if name != PATH.encode()
    }
    return ServiceBusMessage(b"".join(message.body), message_id=message.message_id, application_properties=properties)


async def users_loop(primary: ServiceBusClient, secondary: ServiceBusClient, messages: int) -> None:
    """Move messages as a user would."""
    async with primary.get_queue_sender("orders") as sender:
        for queue in QUEUES:
            async with secondary.get_queue_receiver(queue) as receiver:
                left = messages // len(QUEUES)
                while left:
                    for message in await receiver.receive_messages(min(100, left), max_wait_time=5):
                        await sender.send_messages(unparked(message))
                        await receiver.complete_message(message)
                        left -= 1


async def best_loop(
    primary: ServiceBusClient, secondary: ServiceBusClient, messages: int, queues: Sequence[str] = QUEUES
) -> None:
    """Move messages as well as the SDK's own methods can: sent as one batch, completed all at once."""
    async with primary.get_queue_sender("orders") as sender:
        for queue in queues:
            async with secondary.get_queue_receiver(queue) as receiver:
                left = messages // len(queues)
                while left:
                    burst = await receiver.receive_messages(min(100, left), max_wait_time=5)
                    await sender.send_messages([unparked(message) for message in burst])
                    await asyncio.gather(*map(receiver.complete_message, burst))
                    left -= len(burst)


async def syphon(primary: ServiceBusClient, secondary: ServiceBusClient, messages: int) -> None:
    """Move messages by the syphon."""
    made = Syphon(SdkTransport(primary), SdkTransport(secondary), QUEUES)
    made.start()
    while made.report().total().delivered < messages:  # noqa: ASYNC110 (looking now and then costs the least)
        await asyncio.sleep(0.02)
    await made.stop()


async def measure(
    move: Callable[[ServiceBusClient, ServiceBusClient, int], Awaitable[None]], messages: int, name: str
) -> float:
    """Return how many messages a second are moved."""
    with (
        EmbeddedBroker(namespaces=["contoso"], queues=["orders"], process=True) as one,
        EmbeddedBroker(namespaces=["fabrikam"], queues=QUEUES, process=True) as other,
    ):
        async with (
            ServiceBusClient.from_connection_string(one.connection_string, retry_total=0) as primary,
            ServiceBusClient.from_connection_string(other.connection_string, retry_total=0) as secondary,
        ):
            await fill(secondary, messages)
            began, worked = time.perf_counter(), time.process_time()
            await move(primary, secondary, messages)
            seconds, cpu = time.perf_counter() - began, time.process_time() - worked
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    each = cpu / messages * 1e6
    print(
        f"{name:<24} {messages:>7,} messages  {messages / seconds:>7,.0f}/s"
        f"  {each:>6,.0f} µs of CPU each  {peak:>5,.0f} MB at most"
    )
    return messages / seconds


async def main(user: int, some: int, many: int) -> None:
    """Measure the three, and say how they compare."""
    by_user = await measure(users_loop, user, "the user's loop")
    shallow = await measure(syphon, some, "syphon")
    deep = await measure(syphon, many, "syphon, deep backlog")
    print(f"syphon / the user's loop: {shallow / by_user:.1f} (wanted: {WANTED:g} or more)")
    print(f"deep / shallow backlog: {deep / shallow:.2f} (wanted: about 1 or more)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="20,000 and 200,000 messages")
    sizes = (20_000, 20_000, 200_000) if parser.parse_args().full else (1_000, 5_000, 20_000)
    asyncio.run(main(*sizes))
