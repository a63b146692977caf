"""Worlds from seeds: every rule holds; a rule that is broken on purpose is noticed."""

# pyright: reportPrivateUsage=false

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

import pytest
from tests.support.outage import outage

from pairbus.core.burst import OrderedMessages, Parked, RememberedMessages
from pairbus.core.envelope import Label, Unparked, unpark
from pairbus.core.health import Action, EntityHealth, State
from pairbus.core.ledger import Kind
from pairbus.core.moving import Moving, Receive, Settle
from pairbus.core.rotation import Rotation
from pairbus.core.routing import DeadLetter, DeadLetterReason, Destinations
from pairbus.core.sending import Sending
from pairbus.core.verdict import Cause, ErrorFacts
from pairbus.simulate.brokers import LOCK_SECONDS, Fault, FaultKind, Locked, Message
from pairbus.simulate.checker import KnownOutcome
from pairbus.simulate.history import NOT_SENT, TURNED
from pairbus.simulate.setting import (
    ClockStep,
    Recreation,
    SenderSetting,
    Setting,
    Stranger,
    SyphonCrash,
    from_seed,
)
from pairbus.simulate.world import Result, World, run_seed

SEEDS = range(300)


def broken_rules(seeds: Iterable[int] = SEEDS) -> Counter[str]:
    return Counter(violation.rule for seed in seeds for violation in run_seed(seed).violations)


def test_every_rule_holds_in_every_world() -> None:
    assert broken_rules() == {}


def test_a_seed_always_tells_the_same_story() -> None:
    first, second = run_seed(17), run_seed(17)
    assert [str(line) for line in first.history.lines] == [str(line) for line in second.history.lines]
    assert len(first.history.lines) > 50


def test_seeds_make_worlds_with_everything_that_can_go_wrong() -> None:
    settings = [from_seed(seed) for seed in SEEDS]
    faults = [fault for setting in settings for fault in (*setting.primary_faults, *setting.secondary_faults)]
    assert {fault.kind for fault in faults} == set(FaultKind)
    assert {fault.entity is None for fault in faults} == {True, False}
    assert any(setting.client_crashes for setting in settings)
    assert any(crash.steps is not None for setting in settings for crash in setting.syphon_crashes)
    assert any(crash.steps is None for setting in settings for crash in setting.syphon_crashes)
    assert any(setting.clock_steps for setting in settings)
    assert any(setting.strangers for setting in settings)
    assert any(setting.recreations for setting in settings)
    assert {setting.syphons for setting in settings} == {1, 2}


def test_worlds_reach_every_fate() -> None:
    total = Counter[KnownOutcome]()
    results = [run_seed(seed) for seed in SEEDS]
    for result in results:
        total.update(result.fates)
    assert all(total[fate] > 50 for fate in (KnownOutcome.ACCEPTED, KnownOutcome.UNKNOWN, KnownOutcome.REFUSED))
    for what in ("parked", "dead_lettered", "repeated", "pings"):
        assert sum(getattr(result, what) for result in results) > 50, what


def test_y2_thirty_idle_days_with_ten_queues_are_28_800_receives() -> None:
    idle = World(Setting(backlog_queues=10))
    idle.start()
    idle.kernel.run(30 * 86_400.0)
    assert idle.secondary.operations.total() == 28_800


def test_the_story_loses_nothing() -> None:
    """Y6: parked = delivered + dead-lettered + still there."""
    result = World(outage()).run()
    assert result.ok
    assert result.fates == {KnownOutcome.ACCEPTED: 60}
    assert (result.delivered, result.dead_lettered, result.repeated) == (60, 0, 0)
    assert result.parked > 20


def test_g1_pings_of_an_outage_come_when_they_should() -> None:
    """Failover engages 5 s after the first failure; then a ping every 10 s until the one at 95 s is accepted."""
    message = Message("m", Label())
    result = World(
        Setting(
            failover_interval=5.0,
            ping_interval=10.0,
            backlog_queues=1,
            senders=(SenderSetting("client", "orders", (message,), gap=1e-9, starts=80.0),),
            primary_faults=(Fault(FaultKind.DISABLED, "orders", 0.0, 100.0),),
        )
    ).run()
    assert result.ok
    pings = [line.at for line in result.history.lines if line.form == "pings {}"]
    assert pings == pytest.approx([95.0, 105.0], abs=0.1)


def test_g2_an_entity_that_has_room_for_pings_only_is_left_once() -> None:
    """A ping as large as the message that did not fit does not fit either: failover does not flap."""
    messages = tuple(Message(f"m{index}", Label()) for index in range(40))
    result = World(
        Setting(
            failover_interval=0.0,
            ping_interval=1.0,
            senders=(SenderSetting("client", "orders", messages, gap=1.0, starts=10.0),),
            primary_faults=(Fault(FaultKind.NEARLY_FULL, "orders", 0.0, 100.0),),
        )
    ).run()
    assert result.ok
    turns = [line.at for line in result.history.lines if line.form == TURNED and line.args[1] == "healthy"]
    assert turns == pytest.approx([100.5], abs=0.6)


def test_s5_an_impatient_caller_pulls_no_queue_for_a_patient_one() -> None:
    """S5, S13: the secondary answers, slowly."""
    impatient = tuple(Message(f"hurry{index}", Label()) for index in range(100))
    patient = tuple(Message(f"wait{index}", Label()) for index in range(20))
    result = World(
        Setting(
            failover_interval=0.0,
            ping_interval=60.0,
            senders=(
                SenderSetting("client", "orders", impatient, gap=0.2, timeout=0.3),
                SenderSetting("client", "orders", patient, gap=1.0, timeout=60.0),
            ),
            primary_faults=(Fault(FaultKind.DISABLED, "orders", 0.0, 100.0),),
            secondary_faults=(Fault(FaultKind.SLOW, None, 1.0, 100.0),),
        )
    ).run()
    assert result.ok
    lines = [str(line) for line in result.history.lines]
    assert [line for line in lines if "wait" in line and "not sent" in line] == []
    assert [line for line in lines if "hurry" in line and "not sent" in line] != []


def test_s13_a_secondary_that_is_back_is_used_at_once() -> None:
    messages = tuple(Message(f"m{index}", Label()) for index in range(300))
    back = 60.0
    result = World(
        Setting(
            failover_interval=0.0,
            ping_interval=60.0,
            backlog_queues=10,
            senders=(SenderSetting("client", "orders", messages, gap=0.4, timeout=20.0),),
            primary_faults=(Fault(FaultKind.DISABLED, "orders", 0.0, 300.0),),
            secondary_faults=(Fault(FaultKind.REFUSED, None, 25.0, back),),
        )
    ).run()
    assert result.ok
    refused = [line.at for line in result.history.lines if line.form == NOT_SENT]
    assert refused, "the secondary is away for longer than callers wait"
    assert max(refused) < back


def test_s14_a_list_that_is_partly_parked_arrives_once_though_the_primary_comes_back() -> None:
    repeated = delivered = 0
    for seed in range(50):
        messages = tuple(Message(f"m{index}", Label()) for index in range(30))
        result = World(
            Setting(
                seed=seed,
                failover_interval=0.0,
                ping_interval=1.0,
                senders=(SenderSetting("client", "orders", messages, gap=0.1, batch=10),),
                primary_faults=(Fault(FaultKind.DISABLED, "orders", 0.0, 2.0),),
                secondary_faults=(Fault(FaultKind.BUSY, None, 0.3, 20.0),),
            )
        ).run()
        assert result.ok, result.violations
        repeated, delivered = repeated + result.repeated, delivered + result.delivered
    assert (repeated, delivered) == (0, 1500)


@pytest.mark.parametrize("steps", range(60))
def test_y1_a_syphon_that_crashes_between_any_two_steps_loses_nothing(steps: int) -> None:
    result = World(_crashing(steps)).run()
    assert result.ok, result.violations
    assert result.delivered == 4


def test_a_crash_between_send_and_complete_is_why_messages_arrive_twice() -> None:
    repeated = [World(_crashing(steps)).run().repeated for steps in range(60)]
    assert set(repeated) == {0, 1, 2, 3, 4}


def _crashing(steps: int) -> Setting:
    messages = tuple(Message(f"m{index}", Label(session_id="s")) for index in range(4))
    return Setting(
        failover_interval=0.0,
        ping_interval=10.0,
        backlog_queues=1,
        senders=(SenderSetting("client", "orders", messages, gap=0.5),),
        primary_faults=(Fault(FaultKind.FULL, "orders", 0.0, 30.0),),
        syphon_crashes=(SyphonCrash(0, at=20.0, back_after=5.0, steps=steps),),
    )


@pytest.mark.parametrize("seconds", [-90.0, 90.0])
def test_a_clock_that_is_set_loses_nothing(seconds: float) -> None:
    for at in range(55, 75):
        setting = replace(outage(), clock_steps=(ClockStep(secondary=True, at=float(at), seconds=seconds),))
        assert World(setting).run().ok


def test_y3_strangers_are_dead_lettered() -> None:
    result = World(Setting(backlog_queues=1, strangers=(Stranger(1.0, 0, Message("stranger", Label())),))).run()
    assert result.ok
    assert result.dead_lettered == 1


def test_y1_a_backlog_queue_that_is_created_again_loses_nothing() -> None:
    """The syphon does not hear that three messages were completed; three new ones get their numbers."""
    result = World(_recreating()).run()
    assert result.ok, result.violations
    assert (result.parked, result.delivered, result.repeated) == (6, 6, 0)
    assert sum("deleted and created again" in str(line) for line in result.history.lines) == 1


def _recreating() -> Setting:
    first, second = (tuple(Message(f"{name}{index}", Label()) for index in range(3)) for name in "ab")
    return Setting(
        failover_interval=0.0,
        ping_interval=10.0,
        backlog_queues=1,
        senders=(
            SenderSetting("client", "orders", first, gap=0.5),
            SenderSetting("client", "orders", second, gap=0.5, starts=200.0),
        ),
        primary_faults=(
            Fault(FaultKind.FULL, "orders", 0.0, 30.0),
            Fault(FaultKind.FULL, "orders", 200.0, 230.0),
        ),
        secondary_faults=(Fault(FaultKind.SETTLEMENTS_LOST, None, 30.0, 90.0),),
        recreations=(Recreation(at=100.0, queue=0),),
    )


# Bugs, injected


def test_remembering_messages_by_their_sequence_number_alone_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def has(self: RememberedMessages, message: Parked, now: float) -> bool:
        return any(number == message.sequence_number and until > now for (number, _), (_, until) in self._known.items())

    monkeypatch.setattr(RememberedMessages, "has", has)
    rules = [violation.rule for violation in World(_recreating()).run().violations]
    assert rules == ["Y1"] * 6, "each is removed before it was accepted, and is missing at the end"


def complete_before_sending(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Moving[Locked]._send_next

    def send_next(self: Moving[Locked], ordered: OrderedMessages[Locked]) -> None:
        self._delivered.extend(ordered.next_batch())
        original(self, ordered)

    monkeypatch.setattr(Moving, "_send_next", send_next)


def test_completing_before_sending_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    complete_before_sending(monkeypatch)
    assert broken_rules()["Y1"] > 0


def _slow(seed: int) -> Setting:
    """Messages for a destination that takes up to 15 seconds for each four of them."""
    messages = tuple(Message(f"m{index}", Label()) for index in range(32))
    return Setting(
        seed=seed,
        failover_interval=0.0,
        ping_interval=10.0,
        backlog_queues=1,
        senders=(SenderSetting("client", "orders", messages, gap=0.1, batch=32),),
        primary_faults=(
            Fault(FaultKind.FULL, "orders", 0.0, 30.0),
            Fault(FaultKind.SLOW, "orders", 30.0, 500.0),
        ),
    )


def test_y4_locks_are_kept_however_long_a_destination_takes() -> None:
    renewals = 0
    for seed in range(20):
        world = World(_slow(seed))
        assert world.run().ok
        renewals += world.secondary.operations[Kind.RENEW]
    assert renewals > 100


def test_forgetting_to_renew_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Moving[Locked].received

    def received(self: Moving[Locked], step: Receive, messages: Sequence[Locked], now: float, utc: datetime) -> None:
        original(self, step, messages, now, utc)
        self._renew_at = math.inf

    monkeypatch.setattr(Moving, "received", received)
    rules = {violation.rule for seed in range(20) for violation in World(_slow(seed)).run().violations}
    assert rules == {"Y4"}


def _refusing_dead_letters() -> Setting:
    """A message that can never be delivered, and a secondary that is away just when it is dead-lettered."""
    return Setting(
        backlog_queues=1,
        strangers=(Stranger(1.0, 0, Message("stranger", Label())),),
        secondary_faults=(Fault(FaultKind.REFUSED, None, 1.0, 1.5),),
    )


def test_y3_a_dead_lettering_that_failed_is_tried_again_before_the_lock_ends() -> None:
    result = World(_refusing_dead_letters()).run()
    assert result.ok
    assert result.dead_lettered == 1
    tried = [line.at for line in result.history.lines if line.form.startswith("dead-letters")]
    assert len(tried) == 2
    assert tried[1] < LOCK_SECONDS


def test_forgetting_that_a_dead_lettering_failed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Moving[Locked]._dead_lettered

    def dead_lettered(
        self: Moving[Locked], step: Settle[Locked], ruling: DeadLetter, answers: Sequence[object], now: float
    ) -> None:
        original(self, step, ruling, [None] * len(answers), now)

    monkeypatch.setattr(Moving, "_dead_lettered", dead_lettered)
    rules = {violation.rule for violation in World(_refusing_dead_letters()).run().violations}
    assert rules == {"Y6"}


def test_forgetting_to_pull_a_queue_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def pull(_self: Rotation, _queue: str, _now: float, **_facts: object) -> None:
        pass

    monkeypatch.setattr(Rotation, "pull", pull)
    # Without it a send hammers the same queue for ever, so a short look is enough.
    setting = replace(outage(), secondary_faults=(Fault(FaultKind.FULL, None, 50.0, 60.0),), trouble_ends=120.0)
    assert "S5" in {violation.rule for violation in World(setting).run().violations}


def test_restarting_the_timer_on_each_failure_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    original = EntityHealth.attempt_failed

    def attempt_failed(self: EntityHealth, now: float, *_error: object, **_size: object) -> tuple[Action, ...]:
        actions = original(self, now)
        if self.state is State.SUSPECT:
            self.wake_at = now + self._failover_interval
        return actions

    monkeypatch.setattr(EntityHealth, "attempt_failed", attempt_failed)
    assert broken_rules()["S3, S4"] > 0


def test_failing_over_at_once_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    original = EntityHealth.attempt_failed

    def attempt_failed(self: EntityHealth, now: float, *_error: object, **_size: object) -> tuple[Action, ...]:
        return original(self, now) + self.tick(1e9)

    monkeypatch.setattr(EntityHealth, "attempt_failed", attempt_failed)
    assert broken_rules()["S3"] > 0


def test_ending_failover_without_a_ping_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    original = EntityHealth.ping_failed

    def ping_failed(self: EntityHealth, now: float, *_error: object) -> tuple[Action, ...]:
        original(self, now)
        self.state, self.wake_at = State.HEALTHY, None
        return (Action.RESUME,)

    monkeypatch.setattr(EntityHealth, "ping_failed", ping_failed)
    assert broken_rules()["S3, S4"] > 0


def test_pinging_too_soon_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    original = EntityHealth.tick

    def tick(self: EntityHealth, now: float) -> tuple[Action, ...]:
        actions = original(self, now)
        if Action.ENGAGE in actions:
            self.wake_at = now
        return actions

    monkeypatch.setattr(EntityHealth, "tick", tick)
    assert broken_rules()["G1"] > 0


def test_never_pinging_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    original = EntityHealth.tick

    def tick(self: EntityHealth, now: float) -> tuple[Action, ...]:
        return () if self.engaged else original(self, now)

    monkeypatch.setattr(EntityHealth, "tick", tick)
    assert {violation.rule for violation in World(outage()).run().violations} == {"G2"}


def test_reporting_a_send_as_done_that_nobody_accepted_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def backlog_failed(self: Sending, queue: str, _facts: ErrorFacts, _now: float) -> None:
        self.backlog_accepted(queue)

    monkeypatch.setattr(Sending, "backlog_failed", backlog_failed)
    assert broken_rules()["Y1"] > 0


def test_forgetting_a_doubt_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pairbus.core.verdict.IN_DOUBT", frozenset[Cause]())
    assert broken_rules().keys() >= {"S5", "S7"}


def test_losing_the_time_to_live_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(label: Label) -> object:
        unparked = unpark(label)
        if isinstance(unparked, Unparked):
            return Unparked(unparked.destination, replace(unparked.label, time_to_live=None))
        return unparked

    monkeypatch.setattr("pairbus.core.routing.unpark", forgetful)
    assert set(broken_rules()) == {"E2"}


def test_overtaking_in_a_session_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody_else(_others: Iterable[Parked], _own: object) -> dict[tuple[str, str], int]:
        return {}

    monkeypatch.setattr("pairbus.core.burst._earliest", nobody_else)
    crashes = [
        replace(outage(), syphons=2, syphon_crashes=(SyphonCrash(0, float(at), back_after=1.0),))
        for at in range(100, 220, 5)
    ]
    assert {violation.rule for setting in crashes for violation in World(setting).run().violations} == {"Y5"}


def test_giving_up_a_message_that_could_be_delivered_later_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(_self: Destinations, destination: str, _facts: ErrorFacts, _now: float) -> DeadLetter:
        return DeadLetter(DeadLetterReason.REFUSED, destination)

    monkeypatch.setattr(Destinations, "failed", failed)
    assert broken_rules()["Y3"] > 0


def test_sending_again_what_was_accepted_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    original = OrderedMessages[Parked].accepted
    seen: set[int] = set()

    def once_more(self: OrderedMessages[Parked], batch: list[Parked], destinations: Destinations) -> None:
        if batch[0].sequence_number in seen:
            original(self, batch, destinations)
        seen.add(batch[0].sequence_number)

    monkeypatch.setattr(OrderedMessages, "accepted", once_more)
    assert "S7" in {violation.rule for violation in World(outage()).run().violations}


def test_a_violation_names_rule_time_and_message_and_the_history_tells_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    complete_before_sending(monkeypatch)
    result: Result = World(outage()).run()
    violation = result.violations[0]
    assert str(violation).startswith(f"Y1 at {violation.at:.3f} s: {violation.about} was removed from")
    told = list(result.history.about(violation.about))
    assert any("the world" in line for line in told)
    assert all(violation.about in line or "the world" in line for line in told)
    assert len(told) < len(result.history.lines)
