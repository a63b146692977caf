"""A world that comes to life: what becomes of its messages, and whether every rule held."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from pairbus.core.ledger import Kind
from pairbus.core.naming import backlog_paths, entity_key
from pairbus.core.reconciliation import Counts
from pairbus.core.routing import DeadLetter, DeadLetterReason
from pairbus.core.sending import SendPolicy
from pairbus.simulate.brokers import Fault, FaultKind, Message, Namespace
from pairbus.simulate.checker import Checker, KnownOutcome, Violation
from pairbus.simulate.clients import Client, Pair
from pairbus.simulate.history import WORLD, History
from pairbus.simulate.kernel import Kernel, Process
from pairbus.simulate.setting import ClockStep, Recreation, Setting, Stranger, SyphonCrash, from_seed
from pairbus.simulate.syphon import ATTEMPT_SECONDS, Syphon

PATIENCE = 48
"""How many times ten minutes a world has to come to rest, once its troubles are over."""

_LOOK_AGAIN = 1.0
"""After how many seconds it is looked again whether a queue that is to be deleted is empty."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a world.

    :ivar fates: how many messages had which fate, as their senders know it.
    :ivar repeated: how many messages arrived more than once.
    :ivar receives: how many receives the syphons made.
    """

    seed: int
    violations: Sequence[Violation]
    history: History
    fates: Mapping[KnownOutcome, int]
    parked: int
    delivered: int
    dead_lettered: int
    repeated: int
    pings: int
    receives: int

    @property
    def ok(self) -> bool:
        """Whether every rule held."""
        return not self.violations


def run_seed(seed: int) -> Result:
    """Live through the world of a seed."""
    return World(from_seed(seed)).run()


class World:
    """Two brokers, their clients and their syphons."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._random = Random(setting.seed)
        self.kernel = Kernel()
        self.history = History(self.kernel)
        self.checker = Checker(
            self.kernel, setting.failover_interval, setting.ping_interval, ATTEMPT_SECONDS, setting.secondary_faults
        )
        self.primary = Namespace("primary", self.kernel, self._random, list(setting.primary_faults))
        self.secondary = Namespace("secondary", self.kernel, self._random, list(setting.secondary_faults))
        self.backlog = backlog_paths("primary.servicebus.windows.net", setting.backlog_queues)
        self._pair = Pair(self.kernel, self.primary, self.secondary, self.backlog, self.checker, self.history)
        self._clients: dict[str, Client] = {}
        self._syphons: list[Syphon | None] = []
        self._all_syphons: list[Syphon] = []
        """Those that have crashed, too."""

    def run(self) -> Result:
        """Let everything happen, then account for every message."""
        self.start()
        self.kernel.run(self._setting.trouble_ends)
        for _ in range(PATIENCE):
            if self._at_rest:
                break
            self.kernel.run(self.kernel.now + 600)
        self._count_dead_letters()
        depths = {queue: len(self.secondary[queue].messages) for queue in self.backlog}
        told = Counts()
        for syphon in self._all_syphons:
            told.add(syphon.reconciliation().total())
        self.checker.finish({queue: depth for queue, depth in depths.items() if depth}, told)
        return self._result()

    def start(self) -> None:
        """Wake everybody, and lay out what will go wrong."""
        setting = self._setting
        policy = SendPolicy(ATTEMPT_SECONDS, setting.on_outage)
        for sender in setting.senders:
            if sender.client not in self._clients:
                self._clients[sender.client] = Client(sender.client, self._pair, policy, self._random)
            self._clients[sender.client].start_sender(sender)
        self._syphons = [self._new_syphon(index) for index in range(setting.syphons)]
        for namespace in (self.primary, self.secondary):
            for fault in namespace.faults:
                self._announce(namespace, fault)
        for client, at in setting.client_crashes:
            self.kernel.at(at, self._clients[client].crash)
        for crash in setting.syphon_crashes:
            self._plan_crash(crash)
        for step in setting.clock_steps:
            self._plan_step(step)
        for stranger in setting.strangers:
            self._plan_stranger(stranger)
        for recreation in setting.recreations:
            self._plan_recreation(recreation)

    @property
    def _at_rest(self) -> bool:
        return (
            all(client.ended for client in self._clients.values() if client.alive)
            and not self.checker.failing_over
            and not any(self.secondary[queue].messages for queue in self.backlog)
        )

    def _announce(self, namespace: Namespace, fault: Fault) -> None:
        where = namespace.name if fault.entity is None else f"{namespace.name}/{fault.entity}"
        self.kernel.at(fault.begins, lambda: self.history.add(WORLD, "{}: {}", where, fault.kind.value))
        self.kernel.at(fault.ends, lambda: self.history.add(WORLD, "{}: no longer {}", where, fault.kind.value))

    def _new_syphon(self, index: int) -> Syphon:
        syphon = Syphon(f"syphon{index}", self._pair, self._random)
        self._all_syphons.append(syphon)
        return syphon

    def _plan_crash(self, crash: SyphonCrash) -> None:
        def begin() -> None:
            syphon = self._syphons[crash.syphon]
            if syphon is None:
                return  # it is down already
            if crash.steps is None:
                fall()
            else:
                process = syphon.process_of(crash.queue)
                process.steps_left, process.on_killed = crash.steps, fall
                # The steps may never come: its queue may stay empty.
                self.kernel.at(self._setting.trouble_ends, lambda: spare(process))

        def spare(process: Process) -> None:
            process.steps_left = None

        def fall() -> None:
            syphon = self._syphons[crash.syphon]
            if syphon is not None:
                self._syphons[crash.syphon] = None
                syphon.crash()
                self.kernel.after(crash.back_after, come_back)

        def come_back() -> None:
            self.history.add(WORLD, "syphon{} starts again", crash.syphon)
            self._syphons[crash.syphon] = self._new_syphon(crash.syphon)

        self.kernel.at(crash.at, begin)

    def _plan_step(self, step: ClockStep) -> None:
        namespace = self.secondary if step.secondary else self.primary

        def take() -> None:
            self.history.add(WORLD, "{}: the clock is set by {:+.1f} s", namespace.name, step.seconds)
            namespace.step_clock(step.seconds)
            if step.secondary:
                self.checker.clock_stepped()

        self.kernel.at(step.at, take)

    def _plan_stranger(self, stranger: Stranger) -> None:
        queue = self.backlog[stranger.queue % len(self.backlog)]

        def appear() -> None:
            self.history.add(WORLD, "{} is put into {}", stranger.message.id, queue)
            self.checker.foreign.add(stranger.message.id)
            self.checker.parked(self.secondary[queue].send([stranger.message]), [stranger.message])

        self.kernel.at(stranger.at, appear)

    def _plan_recreation(self, recreation: Recreation) -> None:
        path = self.backlog[recreation.queue % len(self.backlog)]

        def look() -> None:
            queue = self.secondary[path]
            if queue.messages or queue.dead_letters:
                if self.kernel.now < self._setting.trouble_ends:
                    self.kernel.after(_LOOK_AGAIN, look)
                return
            self.history.add(WORLD, "{} is deleted and created again", path)
            self.secondary.recreate(path)

        self.kernel.at(recreation.at, look)

    def _count_dead_letters(self) -> None:
        for queue in self.backlog:
            for _, message, ruling in self.secondary[queue].dead_letters:
                self.checker.dead_lettered(message, ruling, allowed=self._may_be_dead(message, ruling))

    def _may_be_dead(self, message: Message, ruling: DeadLetter) -> bool:
        if ruling.reason in (DeadLetterReason.NO_DESTINATION, DeadLetterReason.BAD_PROPERTY):
            return message.id in self.checker.foreign
        entity = self.checker.sent[message.id].entity
        return ruling.reason is DeadLetterReason.DESTINATION_GONE and any(
            fault.kind is FaultKind.GONE and fault.entity in (None, entity_key(entity)) for fault in self.primary.faults
        )

    def _result(self) -> Result:
        return Result(
            seed=self._setting.seed,
            violations=tuple(self.checker.violations),
            history=self.history,
            fates=Counter(sent.fate for sent in self.checker.sent.values()),
            parked=self.checker.parked_count,
            delivered=len(self.checker.arrivals),
            dead_lettered=sum(len(self.secondary[queue].dead_letters) for queue in self.backlog),
            repeated=sum(1 for times in self.checker.arrivals.values() if times > 1),
            pings=self.checker.ping_count,
            receives=self.secondary.operations[Kind.RECEIVE],
        )
