"""The embedded broker beside RabbitMQ, and beside itself in memory: messages a second on one core.

Durable, 1 KB messages, the server pinned to one core, a pre-encoded AMQP client on the other. Rounds are interleaved
and medians taken. RabbitMQ comes from Debian's package ``rabbitmq-server`` (with its AMQP 1.0 plugin) and is started
here; where it is not installed that part is left out, with a message.

Run by ``make bench``; ``python bench/broker.py --rounds 1 --messages 5000`` for a quick look.
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
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pairbus.amqp import build_message
from pairbus.amqp.message import encode_data_section
from pairbus.amqp.sections import Properties
from support.client import Client, Login, Producer, Worker

SERVER_CORE, CLIENT_CORE = 0, 1
PAYLOAD = build_message(encode_data_section(b"x" * 1024), properties=Properties(message_id="0123456789"))
RABBIT_PORT = 25672


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


def resident_kilobytes(pid: int) -> int:
    """Return how much memory a process and those that it has started have."""
    status = Path(f"/proc/{pid}/status").read_text()
    own = next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")), 0)
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return own + sum(resident_kilobytes(int(child)) for child in children)


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
    client = await Client.connect(server.port, server.login)
    left = iter(range(count))
    began = time.perf_counter()
    await Producer(client, server.path, lambda: PAYLOAD if next(left, None) is not None else None, window).finished
    client.close()
    return count / (time.perf_counter() - began)


async def receive(server: Server, count: int) -> float:
    """Return how many messages a second are delivered and completed one by one."""
    client = await Client.connect(server.port, server.login)
    began = time.perf_counter()
    await Worker(client, server.path, count, confirmed=server.confirms).finished
    client.close()
    return count / (time.perf_counter() - began)


async def latency(server: Server, count: int = 300) -> float:
    """Return the median milliseconds of one send after another."""
    client = await Client.connect(server.port, server.login)
    times: list[float] = []
    began = time.perf_counter()

    def accepted(_number: int) -> None:
        nonlocal began
        times.append(time.perf_counter() - began)
        began = time.perf_counter()

    left = iter(range(count))
    await Producer(client, server.path, lambda: PAYLOAD if next(left, None) is not None else None, 1, accepted).finished
    client.close()
    await drain(server, count)
    return 1000 * statistics.median(times)


async def drain(server: Server, count: int) -> None:
    """Empty the queue."""
    client = await Client.connect(server.port, server.login)
    await Worker(client, server.path, count, confirmed=server.confirms).finished
    client.close()


def measure(servers: list[Server], count: int, rounds: int) -> dict[str, tuple[float, float, float]]:
    """Return each server's sends and deliveries a second and its latency, medians of interleaved rounds."""
    rates: dict[str, list[tuple[float, float]]] = {server.name: [] for server in servers}
    for _ in range(rounds):
        for server in servers:
            rates[server.name].append((asyncio.run(send(server, count)), asyncio.run(receive(server, count))))
    result: dict[str, tuple[float, float, float]] = {}
    for server in servers:
        sends, deliveries = zip(*rates[server.name], strict=True)
        result[server.name] = (
            statistics.median(sends),
            statistics.median(deliveries),
            asyncio.run(latency(server)),
        )
    return result


def show(server: Server, figures: tuple[float, float, float]) -> None:
    """Print a line."""
    sends, deliveries, milliseconds = figures
    memory = resident_kilobytes(server.pid) // 1024
    print(
        f"  {server.name:28} {sends:8,.0f} sends/s {deliveries:8,.0f} deliveries/s {milliseconds:6.2f} ms {memory:4} MB"
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
    durable = figures[ours[0].name]
    memory = figures[ours[1].name]
    print(f"  durable / in memory: sends {durable[0] / memory[0]:.2f}, deliveries {durable[1] / memory[1]:.2f}")
    if shutil.which("rabbitmq-server") is None:
        print("  RabbitMQ is not installed (Debian: rabbitmq-server): not compared")
        return
    alike = replace(ours[0], name="pairbus, durable, as theirs", confirms=False)
    ratios: list[tuple[float, float]] = []
    for kind in ("quorum", "classic"):
        place = data / kind
        place.mkdir()
        with rabbitmq(place, kind) as theirs:
            found = measure([alike, theirs], count, rounds)
            for server in (alike, theirs):
                show(server, found[server.name])
            mine, other = found[alike.name], found[theirs.name]
            ratios.append((mine[0] / other[0], mine[1] / other[1]))
    sends, deliveries = (min(each) for each in zip(*ratios, strict=True))
    print(f"  pairbus, durable, as theirs / RabbitMQ's better queue: sends {sends:.2f}, deliveries {deliveries:.2f}")


if __name__ == "__main__":
    main()
