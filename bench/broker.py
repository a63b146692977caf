"""The embedded broker beside RabbitMQ, and beside itself in memory: messages a second on one core, and what they cost.

Durable, 1 KB messages, the server pinned to one core, a pre-encoded AMQP client on the other. Rounds are interleaved
and medians taken. Where the core is not the server's alone, the time that it has run per message tells more than the
rate: both are shown. RabbitMQ comes from Debian's package ``rabbitmq-server`` (with its AMQP 1.0 plugin) and is started
here; where it is not installed that part is left out, with a message.

Run by ``make bench``; ``python -m bench.broker --rounds 1 --messages 5000`` for a quick look.
"""

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise, repeat
from pathlib import Path

from bench.load import Login, consume, produce

from pairbus.amqp import build_message
from pairbus.amqp.message import encode_data_section
from pairbus.amqp.sections import Properties

SERVER_CORE, CLIENT_CORE = 0, 1
PAYLOAD = build_message(encode_data_section(b"x" * 1024), properties=Properties(message_id="0123456789"))
RABBIT_PORT = 25672
FLUSHES = """\
    (Its latency is that of a send which is not on the disk yet: perf counts 2 flushes of RabbitMQ's classic queue for
    200 sends one after the other, 203 of its quorum queue, and 201 of pairbus.)"""


@dataclass(frozen=True)
class Server:
    """A broker under test."""

    name: str
    port: int
    pid: int
    path: str
    login: Login
    confirms: bool = True
    """Whether completions are confirmed, which RabbitMQ 3.10 cannot do: beside it ours are not either."""


@dataclass(frozen=True)
class Figures:
    """What was measured of a server, medians: a second, microseconds of processor time each, milliseconds."""

    sends: float
    deliveries: float
    send_cost: float
    delivery_cost: float
    latency: float


def family(pid: int) -> list[int]:
    """Return a process and those that it has started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(found for child in children for found in family(int(child)))]


def processor_microseconds(pid: int) -> float:
    """Return how long a process and those that it has started have run so far."""
    threads = [thread for each in family(pid) for thread in Path(f"/proc/{each}/task").iterdir()]
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1000


def resident_kilobytes(pid: int) -> int:
    """Return how much memory a process and those that it has started have."""
    lines = [line for each in family(pid) for line in Path(f"/proc/{each}/status").read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


@contextmanager
def pairbus(data: Path | None, bytecode: Path | None = None) -> Generator[Server]:
    """Our broker, durable or in memory.

    :param bytecode: where Python keeps what it has compiled, as an installer does; None: where it does anyway, if so.
    """
    command = [sys.executable, "-m", "pairbus", "broker", "--json", "--port", "0", "--queue", "orders"]
    if data is not None:
        command += ["--data", str(data)]
    environment = dict(os.environ)
    if bytecode is not None:
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environment["PYTHONPYCACHEPREFIX"] = str(bytecode)
    pinned = ["taskset", "-c", str(SERVER_CORE), *command]
    with subprocess.Popen(pinned, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            name = "pairbus, durable" if data else "pairbus, in memory"
            yield Server(name, ready["port"], process.pid, "orders", Login.of(ready["connection_string"]))
        finally:
            process.terminate()


@contextmanager
def rabbitmq(data: Path, kind: str) -> Generator[Server]:
    """RabbitMQ with one durable queue of a kind, on one core."""
    plugins, definitions, config = data / "plugins", data / "definitions.json", data / "rabbitmq.conf"
    plugins.write_text("[rabbitmq_amqp1_0].")
    queue = {"name": "orders", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {"x-queue-type": kind}}
    login = Login("load", "load")
    user = {"name": login.name, "password": login.key, "tags": "administrator"}
    permission = {"user": login.name, "vhost": "/", "configure": ".*", "read": ".*", "write": ".*"}
    everything = {"vhosts": [{"name": "/"}], "users": [user], "permissions": [permission], "queues": [queue]}
    definitions.write_text(json.dumps(everything))
    config.write_text(f"listeners.tcp.1 = 127.0.0.1:{RABBIT_PORT}\nload_definitions = {definitions}\n")
    environment = {
        **os.environ,
        "HOME": str(data),
        "RABBITMQ_NODENAME": f"bench-{kind}@localhost",
        "RABBITMQ_MNESIA_BASE": str(data / "mnesia"),
        "RABBITMQ_LOG_BASE": str(data / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
        "RABBITMQ_CONFIG_FILE": str(config),
        "RABBITMQ_DIST_PORT": str(RABBIT_PORT + 1),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1",
    }
    command = ["taskset", "-c", str(SERVER_CORE), "/usr/lib/rabbitmq/bin/rabbitmq-server"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if b"Starting broker... completed" in line:
                    break
            else:
                raise RuntimeError(f"RabbitMQ did not start: see {data / 'log'}")
            yield Server(
                f"RabbitMQ, {kind} queue", RABBIT_PORT, process.pid, "/amq/queue/orders", login, confirms=False
            )
        finally:
            process.terminate()


async def send(server: Server, count: int, window: int = 500) -> float:
    """Return how many single sends a second are accepted."""
    began = time.perf_counter()
    await produce(server.port, server.login, server.path, repeat(PAYLOAD, count), window=window)
    return count / (time.perf_counter() - began)


async def receive(server: Server, count: int) -> float:
    """Return how many messages a second are delivered and completed one by one."""
    began = time.perf_counter()
    await consume(server.port, server.login, server.path, count, confirmed=server.confirms)
    return count / (time.perf_counter() - began)


async def latency(server: Server, count: int = 300) -> float:
    """Return the median milliseconds of one send after another."""
    accepted: list[float] = []

    def on_accepted() -> None:
        accepted.append(time.perf_counter())

    payloads = repeat(PAYLOAD, count)
    await produce(server.port, server.login, server.path, payloads, window=1, on_accepted=on_accepted)
    await receive(server, count)
    return 1000 * statistics.median(later - earlier for earlier, later in pairwise(accepted))


def with_cost(server: Server, work: Callable[[Server, int], Coroutine[None, None, float]], count: int) -> list[float]:
    """Do something with so many messages, and return its rate, and what each has cost the server."""
    before = processor_microseconds(server.pid)
    rate = asyncio.run(work(server, count))
    return [rate, (processor_microseconds(server.pid) - before) / count]


def measure(servers: list[Server], count: int, rounds: int) -> dict[str, Figures]:
    """Return what servers do, medians of interleaved rounds."""
    found: dict[str, list[list[float]]] = {server.name: [] for server in servers}
    for _ in range(rounds):
        for server in servers:
            found[server.name].append(with_cost(server, send, count) + with_cost(server, receive, count))
    result: dict[str, Figures] = {}
    for server in servers:
        sends, send_cost, deliveries, delivery_cost = map(statistics.median, zip(*found[server.name], strict=True))
        result[server.name] = Figures(sends, deliveries, send_cost, delivery_cost, asyncio.run(latency(server)))
    return result


def show(server: Server, figures: Figures) -> None:
    """Print a line."""
    memory = resident_kilobytes(server.pid) // 1024
    print(
        f"  {server.name:28} {figures.sends:8,.0f} sends/s ({figures.send_cost:3.0f} µs) "
        f"{figures.deliveries:8,.0f} deliveries/s ({figures.delivery_cost:3.0f} µs) "
        f"{figures.latency:6.2f} ms a send {memory:4} MB"
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--messages", type=int, default=20_000)
    arguments.add_argument("--rounds", type=int, default=3)
    given = arguments.parse_args()
    os.sched_setaffinity(0, {CLIENT_CORE})
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory)
        with pairbus(data / "ours") as durable, pairbus(None) as in_memory:
            print("embedded broker, 1 KB messages, one core:")
            compare(data, [durable, in_memory], given.messages, given.rounds)


def compare(data: Path, ours: list[Server], count: int, rounds: int) -> None:
    """Print everything, and our ratios."""
    figures = measure(ours, count, rounds)
    for server in ours:
        show(server, figures[server.name])
    durable, memory = figures[ours[0].name], figures[ours[1].name]
    sends, deliveries = durable.sends / memory.sends, durable.deliveries / memory.deliveries
    print(f"  durable / in memory: sends {sends:.2f}, deliveries {deliveries:.2f}")
    if shutil.which("rabbitmq-server") is None:
        print("  RabbitMQ is not installed (Debian: rabbitmq-server): not compared")
        return
    alike = replace(ours[0], name="pairbus, durable, as theirs", confirms=False)
    ratios: list[tuple[float, float, float, float]] = []
    for kind in ("quorum", "classic"):
        place = data / kind
        place.mkdir()
        with rabbitmq(place, kind) as theirs:
            found = measure([alike, theirs], count, rounds)
            for server in (alike, theirs):
                show(server, found[server.name])
            if kind == "classic":
                print(FLUSHES)
            mine, other = found[alike.name], found[theirs.name]
            ratios.append(
                (
                    mine.sends / other.sends,
                    mine.deliveries / other.deliveries,
                    other.send_cost / mine.send_cost,
                    other.delivery_cost / mine.delivery_cost,
                )
            )
    rates_and_costs = [min(each) for each in zip(*ratios, strict=True)]
    print("  pairbus, durable, as theirs / RabbitMQ's better queue: sends {:.2f}, deliveries {:.2f}, "
          "by processor time {:.2f} and {:.2f}".format(*rates_and_costs))  # fmt: skip


if __name__ == "__main__":
    main()
