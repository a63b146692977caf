"""One send, step by step: S2 to S7, S10."""

from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.core.health import Action, EntityHealth, State
from pairbus.core.options import OnOutage
from pairbus.core.rotation import Rotation
from pairbus.core.sending import (
    BacklogChoice,
    Done,
    Failed,
    Pause,
    Sending,
    SendPolicy,
    ToBacklog,
    ToPrimary,
    note_backlog_failure,
    note_primary_failure,
)
from pairbus.core.verdict import Cause, ErrorFacts, Verdict
from pairbus.errors import BacklogUnavailableError, SendTimeoutError

if TYPE_CHECKING:
    from _typeshed import SupportsLenAndGetItem

T = TypeVar("T")


class NoLuck(Random):
    """Randomness that always picks the first and never shortens a pause."""

    def random(self) -> float:
        return 0.0

    def choice(self, seq: "SupportsLenAndGetItem[T]") -> T:
        return seq[0]


@dataclass
class Factory:
    """What the sends of one factory share."""

    queues: tuple[str, ...] = ("q0", "q1")
    on_outage: OnOutage = "hold"
    failover_interval: float = 60.0
    health: EntityHealth = field(init=False)
    rotation: Rotation = field(init=False)

    def __post_init__(self) -> None:
        self.health = EntityHealth("orders", failover_interval=self.failover_interval, ping_interval=10.0)
        self.rotation = Rotation(self.queues, NoLuck())

    def send(
        self, now: float = 0.0, timeout: float | None = None, choice: BacklogChoice | None = None, count: int = 1
    ) -> Sending:
        return Sending(
            self.health,
            self.rotation,
            choice or BacklogChoice(),
            SendPolicy(15.0, self.on_outage),
            NoLuck(),
            now,
            timeout,
            count,
        )

    def engage(self) -> None:
        self.health.attempt_failed(-60.0)
        self.health.tick(0.0)
        assert self.health.engaged


def facts(cause: Cause, retry_after: timedelta | None = None) -> ErrorFacts:
    return ErrorFacts(cause, RuntimeError(cause.value), retry_after)


def test_s2_a_healthy_send_goes_to_the_primary_and_is_done() -> None:
    sending = Factory().send()
    assert sending.step(0.0) == ToPrimary(deadline=15.0)
    assert sending.primary_accepted() == ()
    assert sending.step(0.1) == Done(parked_in=None, in_doubt=False)


@pytest.mark.parametrize("cause", [Cause.UNAUTHORIZED, Cause.NOT_FOUND, Cause.TOO_LARGE, Cause.BAD_ARGUMENT])
def test_s2_the_callers_errors_are_raised_as_they_are_and_leave_the_timer_alone(cause: Cause) -> None:
    factory = Factory()
    sending = factory.send()
    error = facts(cause)
    assert sending.primary_failed(error, 0.1) == ()
    assert sending.step(0.1) == Failed(error.error, in_doubt=False)
    assert factory.health.state is State.HEALTHY


def test_s3_an_outage_failure_starts_the_timer() -> None:
    factory = Factory()
    assert factory.send().primary_failed(facts(Cause.CONNECTION), 7.0) == (Action.PREPARE_BACKLOG,)
    assert factory.health.wake_at == 67.0


def test_s6_a_held_send_is_retried_with_growing_pauses_until_the_primary_takes_it() -> None:
    sending = Factory().send()
    now, pauses = 0.0, list[float]()
    for _ in range(7):
        assert sending.step(now) == ToPrimary(deadline=now + 15.0)
        sending.primary_failed(facts(Cause.FULL), now)
        step = sending.step(now)
        assert isinstance(step, Pause)
        pauses.append(step.until - now)
        now = step.until
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0])
    assert sending.step(now) == ToPrimary(deadline=now + 15.0)
    assert sending.primary_accepted() == (Action.RESUME,)
    assert sending.step(now) == Done(parked_in=None, in_doubt=False)


def test_s6_a_held_send_is_parked_as_soon_as_failover_engages() -> None:
    factory = Factory()
    sending = factory.send()
    sending.primary_failed(facts(Cause.CONNECTION), 0.0)
    assert factory.health.tick(60.0) == (Action.ENGAGE,)
    sending.health_changed()
    assert sending.step(60.0) == ToBacklog("q0", deadline=75.0)
    sending.backlog_accepted("q0")
    assert sending.step(60.1) == Done(parked_in="q0", in_doubt=True, parked=1)


def test_s6_raise_gives_the_caller_the_error_at_once() -> None:
    error = facts(Cause.CONNECTION)
    sending = Factory(on_outage="raise").send()
    sending.primary_failed(error, 0.0)
    assert sending.step(0.0) == Failed(error.error, in_doubt=True)


def test_p2_with_an_interval_of_zero_the_failing_send_itself_is_redirected() -> None:
    sending = Factory(failover_interval=0.0, on_outage="raise").send()
    assert sending.primary_failed(facts(Cause.DISABLED), 1.0) == (Action.PREPARE_BACKLOG, Action.ENGAGE)
    assert sending.step(1.0) == ToBacklog("q0", deadline=16.0)


def test_s4_no_send_goes_to_the_primary_once_failover_is_engaged() -> None:
    factory = Factory()
    factory.engage()
    assert isinstance(factory.send().step(0.0), ToBacklog)


def test_g2_a_send_goes_to_the_primary_again_when_failover_has_ended() -> None:
    factory = Factory()
    factory.engage()
    sending = factory.send()
    sending.backlog_failed("q0", facts(Cause.BUSY, timedelta(seconds=30)), 1.0)
    assert sending.step(1.0) == Pause(31.0)
    factory.health.tick(10.0)
    factory.health.ping_accepted()
    sending.health_changed()
    assert sending.step(10.0) == ToPrimary(deadline=25.0)


def test_s5_a_sender_keeps_the_queue_it_picked() -> None:
    factory = Factory(queues=("q0", "q1", "q2"))
    factory.engage()
    choice = BacklogChoice("q2")
    assert factory.send(choice=choice).step(0.0) == ToBacklog("q2", deadline=15.0)
    assert choice.queue == "q2"


def test_s5_a_queue_that_fails_is_pulled_for_the_whole_factory_and_another_is_tried_at_once() -> None:
    factory = Factory()
    factory.engage()
    first, second = factory.send(), factory.send(choice=BacklogChoice("q0"))
    assert first.step(0.0) == ToBacklog("q0", deadline=15.0)
    first.backlog_failed("q0", facts(Cause.UNAUTHORIZED), 1.0)
    assert first.step(1.0) == ToBacklog("q1", deadline=16.0)
    assert second.step(1.0) == ToBacklog("q1", deadline=16.0)


def test_s5_s13_none_left_is_an_error_with_both_causes_and_the_caller_still_has_its_message() -> None:
    """S13: without a time-out of the caller's, what has failed is tried again for as long as an attempt may take."""
    factory = Factory(queues=("q0",), failover_interval=0.0)
    sending = factory.send()
    primary, backlog = facts(Cause.DISABLED), facts(Cause.FULL)
    sending.primary_failed(primary, 0.0)
    now, tries = 0.0, 0
    while isinstance(step := sending.step(now), ToBacklog | Pause):
        assert now < 15.0
        if isinstance(step, Pause):
            now = step.until
        else:
            tries += 1
            sending.backlog_failed("q0", backlog, now)
    assert 15.0 <= now < 17.0
    assert tries == 12, "at once, and then with pauses of 0.1 to 2 s"
    assert isinstance(step, Failed)
    assert isinstance(step.error, BacklogUnavailableError)
    assert (step.error.primary_cause, step.error.backlog_cause) == (primary.error, backlog.error)
    assert not step.in_doubt
    assert sending.step(1e9) == step, "an outcome is final"


def test_s13_a_send_that_finds_all_queues_pulled_tries_the_one_that_rests_longest() -> None:
    factory = Factory(queues=("q0", "q1"))
    factory.engage()
    factory.rotation.pull("q1", 1.0)
    factory.rotation.pull("q0", 2.0)
    first, second = factory.send(now=3.0), factory.send(now=3.0)
    assert first.step(3.0) == ToBacklog("q1", deadline=18.0)
    first.backlog_failed("q1", facts(Cause.CONNECTION), 3.0)
    assert second.step(3.0) == ToBacklog("q0", deadline=18.0)
    second.backlog_accepted("q0")
    assert second.step(3.0) == Done("q0", in_doubt=False, parked=1)
    assert first.step(3.1) == ToBacklog("q0", deadline=18.1), "which is in play again"


def test_s13_queues_that_come_back_into_play_and_fail_again_give_no_more_time() -> None:
    factory = Factory(queues=("q0", "q1"))
    factory.engage()
    sending, now = factory.send(), 0.0
    while not isinstance(step := sending.step(now), Failed):
        if isinstance(step, Pause):
            now = step.until
        else:
            assert isinstance(step, ToBacklog)
            sending.backlog_failed(step.queue, facts(Cause.CONNECTION), now)
    assert 15.0 <= now < 17.0, "although each cools down for 10 s only"


def test_s13_a_queue_that_took_a_part_gives_the_rest_its_own_time() -> None:
    factory = Factory(queues=("q0",))
    factory.engage()
    sending = factory.send(count=2)
    sending.step(0.0)
    sending.backlog_failed("q0", facts(Cause.CONNECTION), 0.0)
    sending.step(0.0)
    sending.backlog_accepted("q0", 1)
    assert sending.step(14.0) == ToBacklog("q0", deadline=29.0, first=1)
    sending.backlog_failed("q0", facts(Cause.CONNECTION), 20.0)
    assert isinstance(sending.step(20.0), ToBacklog), "15 s from now on"


def test_s13_the_callers_timeout_bounds_the_tries_and_its_error_carries_both_causes() -> None:
    """S5, S7, S13: also those that only other sends have met."""
    factory = Factory(queues=("q0",))
    refused, full = RuntimeError("refused"), RuntimeError("full")
    factory.health.attempt_failed(-60.0, refused)
    factory.health.tick(0.0)
    factory.rotation.pull("q0", 0.0, error=full)
    sending = factory.send(now=1.0, timeout=20.0)
    assert sending.step(1.0) == ToBacklog("q0", deadline=16.0)
    sending.gave_up(begun=False)
    step = sending.step(1.0)
    assert isinstance(step, Failed)
    assert isinstance(step.error, SendTimeoutError)
    assert (step.error.primary_cause, step.error.backlog_cause) == (refused, full)
    assert not step.error.maybe_sent


def test_s13_a_throttled_queue_is_waited_for_however_long_it_says() -> None:
    factory = Factory(queues=("q0",))
    factory.engage()
    factory.rotation.pull("q0", 0.0)
    sending = factory.send(now=1.0)
    assert sending.step(1.0) == ToBacklog("q0", deadline=16.0)
    sending.backlog_failed("q0", facts(Cause.BUSY, timedelta(seconds=30)), 1.0)
    assert sending.step(1.0) == Pause(31.0)
    assert sending.step(31.0) == ToBacklog("q0", deadline=46.0)


def test_s13_without_any_backlog_queue_there_is_nothing_to_try() -> None:
    factory = Factory(queues=())
    factory.engage()
    step = factory.send().step(0.0)
    assert isinstance(step, Failed)
    assert isinstance(step.error, BacklogUnavailableError)


@pytest.mark.parametrize("begun", [False, True])
def test_s7_a_caller_that_gives_up_is_told_whether_its_message_may_have_arrived(begun: bool) -> None:  # noqa: FBT001
    sending = Factory().send(timeout=0.3)
    assert sending.step(0.0) == ToPrimary(deadline=15.0)
    sending.gave_up(begun=begun)
    step = sending.step(0.3)
    assert isinstance(step, Failed)
    assert isinstance(step.error, SendTimeoutError)
    assert step.in_doubt is step.error.maybe_sent is begun


def test_s5_a_callers_own_timeout_is_held_against_no_one() -> None:
    """S3, S5: it starts no timer and pulls no queue."""
    factory = Factory()
    factory.send(timeout=0.3).gave_up(begun=True)
    assert factory.health.state is State.HEALTHY
    factory.engage()
    factory.send(timeout=0.3).gave_up(begun=True)
    assert factory.rotation.pulled(0.3) == {}


def test_s10_an_attempt_that_goes_on_without_its_caller_is_judged_when_it_ends() -> None:
    factory = Factory()
    policy = SendPolicy(15.0)
    assert note_primary_failure(factory.health, policy, facts(Cause.UNAUTHORIZED), 0.0) == ()
    assert note_primary_failure(factory.health, policy, facts(Cause.TIMEOUT), 0.0) == (Action.PREPARE_BACKLOG,)
    for cause in (Cause.BUSY, Cause.TOO_LARGE):
        note_backlog_failure(factory.rotation, "q0", facts(cause), began=0.0, now=1.0)
    assert factory.rotation.pulled(1.0) == {}
    note_backlog_failure(factory.rotation, "q0", facts(Cause.TIMEOUT), began=0.0, now=1.0)
    assert set(factory.rotation.pulled(1.0)) == {"q0"}


def test_s14_what_is_parked_is_not_sent_again_when_the_primary_is_back() -> None:
    factory = Factory()
    factory.engage()
    sending = factory.send(count=5)
    assert sending.step(0.0) == ToBacklog("q0", deadline=15.0)
    sending.backlog_accepted("q0", 2)
    assert sending.step(1.0) == ToBacklog("q0", deadline=16.0, first=2)
    sending.backlog_failed("q0", facts(Cause.BUSY, timedelta(seconds=30)), 1.0)
    factory.health.tick(10.0)
    factory.health.ping_accepted()
    sending.health_changed()
    assert sending.step(10.0) == ToPrimary(deadline=25.0, first=2)
    sending.primary_accepted()
    assert sending.step(10.0) == Done(None, in_doubt=False, parked=2)


def test_s14_a_send_that_fails_half_way_knows_what_is_missing() -> None:
    factory = Factory()
    factory.engage()
    sending = factory.send(count=5)
    sending.backlog_accepted("q0", 3)
    error = facts(Cause.TOO_LARGE)
    sending.backlog_failed("q0", error, 1.0)
    assert sending.step(1.0) == Failed(error.error, in_doubt=False, parked=3)


def test_what_did_not_fit_makes_pings_as_large() -> None:
    factory = Factory(failover_interval=0.0)
    factory.send().primary_failed(replace(facts(Cause.FULL), did_not_fit=4_000), 0.0)
    assert factory.health.ping_bytes == 4_000


def test_s5_a_pulled_queue_is_tried_again_after_a_while() -> None:
    factory = Factory(queues=("q0",))
    factory.engage()
    factory.rotation.pull("q0", 0.0)
    assert factory.send(now=10.0).step(10.0) == ToBacklog("q0", deadline=25.0)


@pytest.mark.parametrize("cause", [Cause.TOO_LARGE, Cause.BAD_ARGUMENT, Cause.UNEXPECTED])
def test_s5_a_backlog_queue_that_refuses_the_message_itself_is_in_order(cause: Cause) -> None:
    factory = Factory()
    factory.engage()
    sending = factory.send()
    error = facts(cause)
    sending.backlog_failed("q0", error, 0.0)
    assert sending.step(0.0) == Failed(error.error, in_doubt=False)
    assert factory.rotation.pulled(0.0) == {}


def test_s5_a_throttled_backlog_queue_is_not_pulled() -> None:
    factory = Factory()
    factory.engage()
    sending = factory.send()
    sending.backlog_failed("q0", facts(Cause.BUSY, timedelta(seconds=4)), 1.0)
    assert sending.step(1.0) == Pause(5.0)
    assert sending.step(5.0) == ToBacklog("q0", deadline=20.0)


def test_busy_waits_as_told_and_is_no_outage() -> None:
    """3.1: server busy."""
    factory = Factory(on_outage="raise")
    sending = factory.send()
    assert sending.primary_failed(facts(Cause.BUSY, timedelta(seconds=4)), 1.0) == ()
    assert factory.health.state is State.HEALTHY
    assert sending.step(4.9) == Pause(5.0)
    assert sending.step(5.0) == ToPrimary(deadline=20.0)


def test_busy_that_does_not_say_how_long_waits_longer_each_time() -> None:
    """3.1: server busy."""
    sending = Factory().send()
    pauses: list[float] = []
    for _ in range(6):
        sending.primary_failed(facts(Cause.BUSY), 0.0)
        step = sending.step(0.0)
        assert isinstance(step, Pause)
        pauses.append(step.until)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0]


def test_the_table_of_verdicts_can_be_replaced() -> None:
    """3.1: replaceable by the user."""
    factory = Factory()
    policy = SendPolicy(15.0, "hold", classify=lambda _facts: Verdict.OUTAGE)
    sending = Sending(factory.health, factory.rotation, BacklogChoice(), policy, NoLuck(), 0.0)
    sending.primary_failed(facts(Cause.NOT_FOUND), 0.0)
    assert factory.health.state is State.SUSPECT


def test_s6_the_callers_timeout_bounds_the_whole() -> None:
    sending = Factory().send(now=100.0, timeout=10.0)
    assert sending.step(100.0) == ToPrimary(deadline=115.0)
    assert sending.ends == 110.0
    sending.primary_failed(facts(Cause.CONNECTION), 109.95)
    assert sending.step(109.95) == Pause(110.0)
    step = sending.step(110.0)
    assert isinstance(step, Failed)
    assert isinstance(step.error, SendTimeoutError)
    assert step.error.timeout == 10.0
    assert step.error.entity == "orders"


def test_s6_the_callers_timeout_does_not_shorten_an_attempt_at_the_backlog() -> None:
    """S10: the attempt has its own deadline; the driver waits no longer than ``ends``."""
    factory = Factory()
    factory.engage()
    sending = factory.send(timeout=5.0)
    assert sending.step(1.0) == ToBacklog("q0", deadline=16.0)
    assert sending.ends == 5.0
    assert factory.send().ends is None
    backlog = facts(Cause.TIMEOUT)
    sending.backlog_failed("q0", backlog, 5.0)
    step = sending.step(5.0)
    assert isinstance(step, Failed)
    assert isinstance(step.error, SendTimeoutError)
    assert step.error.backlog_cause is backlog.error


@pytest.mark.parametrize(("cause", "in_doubt"), [(Cause.TIMEOUT, True), (Cause.CONNECTION, True), (Cause.FULL, False)])
def test_s7_unknown_is_not_failed(cause: Cause, in_doubt: bool) -> None:  # noqa: FBT001
    sending = Factory().send(timeout=1.0)
    sending.primary_failed(facts(cause), 0.5)
    sending.primary_failed(facts(Cause.FULL), 0.9)
    step = sending.step(1.0)
    assert isinstance(step, Failed)
    assert step.in_doubt is in_doubt
    assert isinstance(step.error, SendTimeoutError)
    assert step.error.maybe_sent is in_doubt


def test_s10_every_attempt_has_a_deadline() -> None:
    factory = Factory()
    assert factory.send().step(3.0) == ToPrimary(deadline=18.0)
    factory.engage()
    assert factory.send().step(3.0) == ToBacklog("q0", deadline=18.0)


def answer(sending: Sending, step: ToPrimary | ToBacklog, cause: Cause | None, now: float) -> None:
    match step, cause:
        case ToPrimary(), None:
            sending.primary_accepted()
        case ToPrimary(), Cause():
            sending.primary_failed(facts(cause), now)
        case ToBacklog(queue), None:
            sending.backlog_accepted(queue)
        case ToBacklog(queue), Cause():
            sending.backlog_failed(queue, facts(cause), now)


@given(
    st.lists(st.tuples(st.sampled_from([None, *Cause]), st.booleans()), max_size=60), st.sampled_from(["hold", "raise"])
)
def test_s4_no_sequence_of_answers_makes_a_send_go_to_the_primary_while_engaged(
    answers: list[tuple[Cause | None, bool]], on_outage: OnOutage
) -> None:
    """S4, S5: nor does any send use a queue that another has had pulled, unless none is left (S13)."""
    factory = Factory(on_outage=on_outage, failover_interval=5.0)
    sends = [factory.send(), factory.send()]
    for now, (cause, ping_is_accepted) in enumerate(answers):
        if Action.PING in factory.health.tick(now):
            _ = factory.health.ping_accepted() if ping_is_accepted else factory.health.ping_failed(now)
        sending = sends[now % 2]
        step = sending.step(now)
        if isinstance(step, ToPrimary | ToBacklog):
            assert factory.health.engaged == isinstance(step, ToBacklog)
            pulled = factory.rotation.pulled(now)
            assert getattr(step, "queue", None) not in pulled or len(pulled) == len(factory.queues)
            answer(sending, step, cause, now)
        elif isinstance(step, Pause):
            assert step.until > now
        else:
            sends[now % 2] = factory.send(now)
