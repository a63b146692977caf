"""A broker for tests and notebooks: in a thread of this process, or in a process of its own."""

import asyncio
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from pairbus.broker.access.policies import Policies, Policy, as_rights, new_key, rotated, without
from pairbus.broker.config.options import BrokerConfig, TlsConfig, from_options, to_document
from pairbus.broker.config.topic_documents import SubscriptionConfig, TopicConfig
from pairbus.broker.entities.settings import QueueSettings, SubscriptionSettings, TopicSettings
from pairbus.broker.filters import Rule
from pairbus.broker.namespace.namespace import Namespace
from pairbus.broker.refusals import Answer
from pairbus.broker.run.control import ask, socket_of
from pairbus.broker.run.running import Broker, Endpoint, make_subscription
from pairbus.errors import OptionError, PairbusError

START_SECONDS = 30.0
PORT_SECONDS = 20.0
"""How long it waits for its port when it is started again: meanwhile it may be that of somebody's connection."""
PORT_PAUSE = 0.2
_IN_USE = re.compile(r"already\s+in\s+use", re.IGNORECASE)


class EmbeddedBroker:
    """Serves Service Bus namespaces as long as the ``with`` block runs.

    .. code-block:: python

        with EmbeddedBroker(queues=["orders"]) as broker:
            client = ServiceBusClient.from_connection_string(broker.connection_string)

    :param namespaces: their names, with a port each if they are to have one: ``contoso:5700``.
    :param queues: queues to make: ``contoso/orders``, or just ``orders`` with one namespace; a mapping gives each its
        settings: ``{"orders": QueueSettings(requires_session=True)}``. A queue that ``data`` has already keeps its own.
    :param topics: topics to make; a mapping gives each its subscriptions, ``{"orders": ["all", "audit"]}``, or all that
        it is to be: ``{"orders": TopicConfig(subscriptions={"big": SubscriptionConfig(rules=[...])})}``.
    :param data: keep everything in this directory; None: in memory.
    :param accept_loss: start although messages that were acknowledged cannot be read from ``data`` any more, without
        them; otherwise that is a :class:`~pairbus.broker.store.commits.StoreLossError`.
    :param ledger: keep account of every operation in this directory, see
        :func:`~pairbus.instrument.ledger.read_ledger`; None: nowhere.
    :param tls: speak TLS too, with a certificate of its own; ``ca_file`` is what clients are to trust.
    :param process: run it in a process of its own, which :meth:`kill` can end as an outage would.
    :param clock: tells the broker the time, in milliseconds since the epoch; None: the machine's. A process of its own
        has only the machine's.
    :param access_clock: tells the time by which access tokens expire, in the same way. Clients make their tokens by the
        machine's clock: so this is the machine's too unless it is given, even if ``clock`` is another.
    """

    def __init__(
        self,
        *,
        namespaces: Iterable[str] = ("localhost",),
        queues: Iterable[str] | Mapping[str, QueueSettings] = (),
        topics: Iterable[str] | Mapping[str, TopicConfig | Iterable[str]] = (),
        data: Path | None = None,
        accept_loss: bool = False,
        ledger: Path | None = None,
        tls: bool = False,
        process: bool = False,
        clock: Callable[[], int] | None = None,
        access_clock: Callable[[], int] | None = None,
    ) -> None:
        for option, given in (("clock", clock), ("access_clock", access_clock)):
            if process and given is not None:
                raise OptionError(option, given, "None with process=True: a process of its own has the machine's clock")
        config = from_options(list(namespaces), queues, topics, port=0, data=data)
        config = replace(config, ledger=ledger, accept_loss=accept_loss)
        self._config = replace(config, tls=TlsConfig()) if tls else config
        self._process_wanted = process
        self._clocks = (clock, access_clock)
        self._endpoints: dict[str, Endpoint] = {}
        self._running: _InThread | _InProcess | None = None

    def start(self) -> Self:
        """Start it, and wait until it serves. Started again, it is where it was: each namespace has its port."""
        if self._running is None:
            self._running = self._started()
            self._endpoints = {endpoint.namespace: endpoint for endpoint in self._running.endpoints}
        return self

    def _started(self) -> "_InThread | _InProcess":
        config = self._config_again()
        gives_up_at = time.monotonic() + PORT_SECONDS
        while True:
            try:
                return _InProcess(config) if self._process_wanted else _InThread(config, *self._clocks)
            except (OSError, PairbusError) as error:  # of a process of its own nothing is known but what it said
                is_new = not self._endpoints
                if is_new or not _IN_USE.search(str(error)) or time.monotonic() > gives_up_at:
                    raise
            time.sleep(PORT_PAUSE)  # nobody tells when a port is free

    def _config_again(self) -> BrokerConfig:
        ports = {name: endpoint.port for name, endpoint in self._endpoints.items()}
        namespaces = [replace(each, port=ports.get(each.name, each.port)) for each in self._config.namespaces]
        return replace(self._config, namespaces=namespaces)

    def stop(self) -> None:
        """Stop it in order: clients are told, and everything is durable."""
        running, self._running = self._running, None
        if running is not None:
            running.stop()

    def kill(self) -> None:
        """End its process with ``kill -9``."""
        running, self._running = self._running, None
        if not isinstance(running, _InProcess):
            raise PairbusError("only a broker that runs with process=True can be killed")
        running.kill()

    def wake(self) -> None:
        """Have it look at its clock now, which it does each second by itself; returns when it has done what was due."""
        self._here.wake()

    def create_queue(self, path: str, settings: QueueSettings, *, namespace: str | None = None) -> None:
        """Make a queue while it runs, in this process, in a namespace or in the first one."""
        self._change(namespace, lambda target, answer: target.queues.create(path, settings, answer))

    def update_queue(self, path: str, settings: QueueSettings, *, namespace: str | None = None) -> None:
        """Give a queue other settings while it runs, in this process: another status, for example."""
        self._change(namespace, lambda target, answer: target.queues.update(path, settings, answer))

    def delete_queue(self, path: str, *, namespace: str | None = None) -> None:
        """Delete a queue with its messages while it runs, in this process."""
        self._change(namespace, lambda target, answer: target.queues.delete(path, answer))

    def create_topic(self, path: str, settings: TopicSettings | None = None, *, namespace: str | None = None) -> None:
        """Make a topic while it runs, in this process, in a namespace or in the first one."""
        self._change(namespace, lambda target, answer: target.topics.create(path, settings or TopicSettings(), answer))

    def update_topic(self, path: str, settings: TopicSettings, *, namespace: str | None = None) -> None:
        """Give a topic other settings while it runs, in this process."""
        self._change(namespace, lambda target, answer: target.topics.update(path, settings, answer))

    def delete_topic(self, path: str, *, namespace: str | None = None) -> None:
        """Delete a topic with its subscriptions and their messages while it runs, in this process."""
        self._change(namespace, lambda target, answer: target.topics.delete(path, answer))

    def create_subscription(
        self,
        topic: str,
        name: str,
        settings: SubscriptionSettings | None = None,
        rules: Iterable[Rule] = (),
        *,
        namespace: str | None = None,
    ) -> None:
        """Make a subscription while it runs, in this process; without rules it gets every message."""
        config = SubscriptionConfig(settings or SubscriptionSettings(), list(rules))
        self._change(namespace, lambda target, answer: make_subscription(target, topic, name, config, answer))

    def update_subscription(
        self, topic: str, name: str, settings: SubscriptionSettings, *, namespace: str | None = None
    ) -> None:
        """Give a subscription other settings while it runs, in this process."""
        self._change(namespace, lambda target, answer: target.topics.update_subscription(topic, name, settings, answer))

    def delete_subscription(self, topic: str, name: str, *, namespace: str | None = None) -> None:
        """Delete a subscription with its messages while it runs, in this process."""
        self._change(namespace, lambda target, answer: target.topics.delete_subscription(topic, name, answer))

    def create_rule(self, topic: str, subscription: str, rule: Rule, *, namespace: str | None = None) -> None:
        """Give a subscription one more rule while it runs, in this process."""
        self._change(namespace, lambda target, answer: target.topics.create_rule(topic, subscription, rule, answer))

    def update_rule(self, topic: str, subscription: str, rule: Rule, *, namespace: str | None = None) -> None:
        """Put a rule into the place of the one of the same name while it runs, in this process."""
        self._change(namespace, lambda target, answer: target.topics.update_rule(topic, subscription, rule, answer))

    def delete_rule(self, topic: str, subscription: str, name: str, *, namespace: str | None = None) -> None:
        """Take a rule away from a subscription while it runs, in this process."""
        self._change(namespace, lambda target, answer: target.topics.delete_rule(topic, subscription, name, answer))

    def create_policy(
        self, name: str, rights: Iterable[str], *, entity: str | None = None, namespace: str | None = None
    ) -> str:
        """Make a shared access policy while it runs, of an entity or of the namespace; return its connection string.

        :param rights: ``Send``, ``Listen``, or ``Manage``, which is all of them.
        """
        policy = Policy(name, as_rights(name, rights))
        self._change_policies(namespace, entity, lambda policies: (*policies, policy))
        return self.connection_string_for(name, entity=entity, namespace=namespace)

    def delete_policy(self, name: str, *, entity: str | None = None, namespace: str | None = None) -> None:
        """Delete a policy while it runs: tokens of its keys are refused from now on, what they have opened stays."""
        self._change_policies(namespace, entity, lambda policies: without(policies, name))

    def rotate_key(
        self, name: str, *, secondary: bool = False, entity: str | None = None, namespace: str | None = None
    ) -> str:
        """Make a policy's primary, or secondary, key anew while it runs; return the connection string with it.

        As in the cloud, tokens of the old key are refused at once, and what they have opened stays until they expire.
        """
        key = new_key()
        self._change_policies(namespace, entity, lambda policies: rotated(policies, name, key, secondary=secondary))
        return self.connection_string_for(name, secondary=secondary, entity=entity, namespace=namespace)

    def connection_string_for(
        self, policy: str, *, secondary: bool = False, entity: str | None = None, namespace: str | None = None
    ) -> str:
        """Return the connection string with a key of a policy: of the namespace, or of an entity (``EntityPath``)."""
        broker = self._here.broker
        return broker.connection_string(self._name(namespace), policy, entity=entity, secondary=secondary)

    def _change_policies(
        self, namespace: str | None, entity: str | None, change: Callable[[Policies], Policies]
    ) -> None:
        self._here.run(self._here.broker.change_policies(self._name(namespace), entity, change))
        self._endpoints = {endpoint.namespace: endpoint for endpoint in self._here.endpoints}

    def _change(self, namespace: str | None, change: Callable[[Namespace, Answer], None]) -> None:
        self._here.run(self._here.broker.change(self._name(namespace), change))

    def _name(self, namespace: str | None) -> str:
        return next(iter(self._endpoints)) if namespace is None else namespace

    def fault(
        self,
        where: str,
        kind: str,
        *,
        duration: float | str | None = None,
        latency: float | str | None = None,
        rate: str | None = None,
    ) -> None:
        """Switch a fault on, or with ``clear`` all of them off: an outage on command.

        .. code-block:: python

            broker.fault("contoso", "down")
            broker.fault("contoso/orders", "slow", latency="200ms", duration="30s")
            broker.fault("contoso", "clear")

        :param where: a namespace, or an entity of one.
        :param kind: see :class:`~pairbus.broker.faults.board.FaultKind`.
        :param duration: after which it ends by itself, as a text or in seconds; None: when it is cleared.
        :param latency: of ``slow``: by how much longer each piece takes.
        :param rate: of ``slow``: bytes a second, such as ``10KB``.
        """
        options = {"lasts": duration, "latency": latency, "rate": rate}
        self._obey({"do": "fault", "where": where, "kind": str(kind), **options})

    def faults(self) -> dict[str, list[dict[str, Any]]]:
        """Which faults are switched on, by namespace."""
        return self._obey({"do": "faults"})["faults"]

    def _obey(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._running is None:
            raise PairbusError("the broker does not run")
        return self._running.obey(request)

    @property
    def _here(self) -> "_InThread":
        if not isinstance(self._running, _InThread):
            raise PairbusError("only a broker that runs in this process takes orders from it")
        return self._running

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        """Where each namespace can be reached, by name."""
        return dict(self._endpoints)

    @property
    def connection_string(self) -> str:
        """The connection string of the first namespace."""
        return next(iter(self._endpoints.values())).connection_string

    @property
    def ca_file(self) -> str:
        """The CA that clients are to trust when it speaks TLS."""
        ca_file = next(iter(self._endpoints.values())).ca_file
        if ca_file is None:
            raise PairbusError("only a broker that runs with tls=True has a CA")
        return ca_file

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class _InThread:
    def __init__(
        self, config: BrokerConfig, clock: Callable[[], int] | None, access_clock: Callable[[], int] | None
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="pairbus broker", daemon=True)
        self._thread.start()
        self.broker = Broker(config, clock=clock, access_clock=access_clock)
        try:
            self.run(self.broker.start())
        except BaseException:
            self._end()
            raise

    @property
    def endpoints(self) -> list[Endpoint]:
        return list(self.broker.endpoints.values())

    def wake(self) -> None:
        async def wake() -> None:
            self.broker.wake()

        self.run(wake())

    def obey(self, request: dict[str, Any]) -> dict[str, Any]:
        async def obey() -> dict[str, Any]:
            return self.broker.obey(request)

        return asyncio.run_coroutine_threadsafe(obey(), self._loop).result(START_SECONDS)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(START_SECONDS)

    def stop(self) -> None:
        self.run(self.broker.stop())
        self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _InProcess:
    def __init__(self, config: BrokerConfig) -> None:
        self._files = tempfile.TemporaryDirectory(prefix="pairbus-")
        file = Path(self._files.name) / "Config.json"
        file.write_text(json.dumps(to_document(config)), encoding="utf-8")
        command = [sys.executable, "-m", "pairbus", "broker", "--json", "--port", "0", "--config", str(file)]
        if config.data is not None:
            command += ["--data", str(config.data)]
        if config.ledger is not None:
            command += ["--ledger", str(config.ledger)]
        if config.accept_loss:
            command.append("--accept-loss")
        if config.tls is not None:
            command.append("--tls")
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed when the process has ended)
        self._process = subprocess.Popen(  # noqa: S603 (our own command)
            command, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        self.endpoints = [self._read_endpoint() for _ in config.namespaces]

    def _read_endpoint(self) -> Endpoint:
        assert self._process.stdout is not None  # noqa: S101 (asked for above)
        line = self._process.stdout.readline()
        if not line:
            self._process.wait(START_SECONDS)
            self._errors.seek(0)
            why = self._errors.read().decode(errors="replace").strip()
            self._end()
            raise PairbusError(f"the broker did not start: {why}")
        return Endpoint(**json.loads(line))

    def stop(self) -> None:
        self._process.terminate()
        self._end()

    def obey(self, request: dict[str, Any]) -> dict[str, Any]:
        return ask(socket_of(self._process.pid), request)

    def kill(self) -> None:
        self._process.kill()
        self._end()

    def _end(self) -> None:
        self._process.wait(START_SECONDS)
        self._errors.close()
        self._files.cleanup()
        if self._process.stdout is not None:
            self._process.stdout.close()
