"""What a topic costs: fan-out beside a queue of as many completions, and finding subscriptions among many.

The cost is the CPU time of the broker, whatever else the machine does. Run by ``make bench``; it takes a minute.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.load import Login, consume, produce

from pairbus.amqp import build_message
from pairbus.amqp.message import encode_data_section
from pairbus.amqp.sections import Properties
from pairbus.broker.config.options import BrokerConfig, NamespaceConfig, to_document
from pairbus.broker.config.topic_documents import SubscriptionConfig, TopicConfig
from pairbus.broker.entities.settings import QueueSettings
from pairbus.broker.filters import CorrelationFilter, Filter, Rule, SqlFilter

WIDTH = 10
MOST = 3.0
"""How many times the cost of a queue fan-out may have."""
CURVE = (1, 10, 100, 500, 2000)
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Server:
    """A broker that runs."""

    port: int
    pid: int
    login: Login

    def cpu(self) -> float:
        """Return the seconds of CPU that it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS


@contextmanager
def broker(directory: Path, filters: Sequence[Filter], *, durable: bool) -> Generator[Server]:
    """A broker with a queue, ``queue``, and a topic, ``topic``, with a subscription, ``s0``, ``s1``, … per filter."""
    subscriptions = {
        f"s{number}": SubscriptionConfig(rules=(Rule("rule", each),)) for number, each in enumerate(filters)
    }
    namespace = NamespaceConfig(
        "bench", 0, {"queue": QueueSettings()}, {"topic": TopicConfig(subscriptions=subscriptions)}
    )
    file = directory / "Config.json"
    file.write_text(json.dumps(to_document(BrokerConfig((namespace,)))))
    command = [sys.executable, "-m", "pairbus", "broker", "--json", "--port", "0", "--config", str(file)]
    if durable:
        command += ["--data", tempfile.mkdtemp(dir=directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            yield Server(ready["port"], process.pid, Login.of(ready["connection_string"]))
        finally:
            process.terminate()


def message(**properties: object) -> bytes:
    """Return a message of 1 KB."""
    return build_message(
        encode_data_section(b"x" * 1024),
        properties=Properties(message_id="0123456789", subject="new"),
        application_properties=properties,
    )


async def send(server: Server, path: str, count: int, payload: Callable[[int], bytes]) -> None:
    """Send so many messages."""
    await produce(server.port, server.login, path, map(payload, range(count)))


async def complete(server: Server, paths: Sequence[str], count: int) -> None:
    """Receive and complete so many messages from each of the paths, all at once."""
    await asyncio.gather(*(consume(server.port, server.login, path, count) for path in paths))


def through_queue(server: Server, count: int) -> None:
    """Have a queue take and give as many messages as a topic has copies."""
    payload = message(color="red", n=5)
    asyncio.run(send(server, "queue", WIDTH * count, lambda _: payload))
    asyncio.run(complete(server, ["queue"], WIDTH * count))


def through_topic(server: Server, count: int) -> None:
    """Have a topic copy messages into all its subscriptions, and each copy completed."""
    payload = message(color="red", n=5)
    asyncio.run(send(server, "topic", count, lambda _: payload))
    asyncio.run(complete(server, [f"topic/Subscriptions/s{number}" for number in range(WIDTH)], count))


def cost(server: Server, work: Callable[[Server, int], None], count: int) -> tuple[float, float]:
    """Return microseconds of CPU, and of time, per completion."""
    before, began = server.cpu(), time.perf_counter()
    work(server, count)
    each = 1e6 / (WIDTH * count)
    return (server.cpu() - before) * each, (time.perf_counter() - began) * each


def fan_out(directory: Path, count: int, rounds: int, *, durable: bool) -> float:
    """Print what fan-out costs, and return its ratio to a queue."""
    half = WIDTH // 2
    filters: list[Filter] = [SqlFilter(f"color = 'red' AND n > {number}") for number in range(half)]
    filters += [CorrelationFilter(subject="new", properties={"color": "red"}) for _ in range(half)]
    with broker(directory, filters, durable=durable) as server:
        found = [(cost(server, through_queue, count), cost(server, through_topic, count)) for _ in range(rounds)]
    queue = [statistics.median(each[0][index] for each in found) for index in (0, 1)]
    topic = [statistics.median(each[1][index] for each in found) for index in (0, 1)]
    ratio = topic[0] / queue[0]
    print(
        f"  {'durable' if durable else 'in memory':10} queue {queue[0]:6.1f} µs CPU ({queue[1]:6.1f} µs), "
        f"topic {topic[0]:6.1f} µs CPU ({topic[1]:6.1f} µs) per completion: {ratio:.2f} times"
    )
    return ratio


def curve(directory: Path, name: str, kind: Callable[[int], Filter], widths: Sequence[int], count: int) -> list[float]:
    """Print what a send costs to a topic with so many subscriptions, of which one selects the message."""
    costs: list[float] = []
    for width in widths:
        with broker(directory, [kind(number) for number in range(width)], durable=False) as server:
            payloads = [message(key=f"s{number}") for number in range(width)]
            before = server.cpu()
            asyncio.run(send(server, "topic", count, lambda number, known=payloads: known[number % len(known)]))
            costs.append(1e6 * (server.cpu() - before) / count)
    shown = "  ".join(f"{width}: {each:.0f}" for width, each in zip(widths, costs, strict=True))
    print(f"  {name:34} {shown}")
    return costs


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--messages", type=int, default=1500)
    arguments.add_argument("--rounds", type=int, default=3)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        print(f"one message to {WIDTH} subscriptions with filters, beside {WIDTH} messages through a queue (1 KB):")
        ratios = [fan_out(directory, given.messages, given.rounds, durable=durable) for durable in (True, False)]
        print("µs of CPU per send, by subscriptions of the topic, of which one selects the message:")
        indexed = curve(
            directory,
            "correlation filters (by index)",
            lambda number: CorrelationFilter(properties={"key": f"s{number}"}),
            CURVE,
            4 * given.messages,
        )
        curve(
            directory,
            "SQL that no index serves",
            lambda number: SqlFilter(f"key LIKE 's{number}'"),
            CURVE[:-1],
            given.messages // 5,
        )
    print(f"  {CURVE[-1]} subscriptions / {CURVE[1]}: {indexed[-1] / indexed[1]:.2f} times")
    if max(ratios) >= MOST:
        sys.exit(f"fan-out costs {max(ratios):.2f} times a queue: {MOST} was promised")


if __name__ == "__main__":
    main()
