"""The health of an entity: S1 to S4, S6, G1, G2."""

import itertools
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pairbus.core.health import TRANSITIONS, Action, EntityHealth, Event, HealthBook, Next, State
from pairbus.core.options import OnOutage
from pairbus.errors import IllegalMoveError


def health(failover_interval: float = 60.0, ping_interval: float = 10.0) -> EntityHealth:
    return EntityHealth("orders", failover_interval=failover_interval, ping_interval=ping_interval)


def suspect(since: float = 0.0) -> EntityHealth:
    entity = health()
    entity.attempt_failed(since)
    return entity


def engaged(at: float = 60.0) -> EntityHealth:
    entity = suspect(at - 60.0)
    entity.tick(at)
    return entity


def test_s1_health_is_per_entity_and_names_are_compared_case_insensitively() -> None:
    book = HealthBook(failover_interval=60.0, ping_interval=10.0)
    assert book["Orders"] is book["ORDERS"]
    assert book["/orders/"] is book["Orders"]
    assert book["orders"].entity == "Orders"
    assert book["invoices"] is not book["orders"]
    book["orders"].attempt_failed(0.0)
    assert book["invoices"].state is State.HEALTHY
    assert [entity.entity for entity in book] == ["Orders", "invoices"]


def test_s1_a_book_gives_its_intervals_to_its_entities() -> None:
    entity = HealthBook(failover_interval=7.0, ping_interval=3.0)["orders"]
    entity.attempt_failed(100.0)
    assert entity.wake_at == 107.0
    entity.tick(107.0)
    assert entity.wake_at == 110.0


def test_s2_a_new_entity_is_healthy_and_has_nothing_to_wait_for() -> None:
    entity = health()
    assert (entity.state, entity.engaged, entity.wake_at) == (State.HEALTHY, False, None)
    assert entity.tick(1e9) == ()
    assert entity.attempt_accepted() == ()
    assert entity.state is State.HEALTHY


def test_s3_an_outage_failure_starts_the_timer_and_prepares_the_backlog() -> None:
    entity = health()
    assert entity.attempt_failed(5.0) == (Action.PREPARE_BACKLOG,)
    assert (entity.state, entity.wake_at) == (State.SUSPECT, 65.0)


def test_s3_later_failures_do_not_restart_the_timer() -> None:
    entity = suspect(since=0.0)
    assert entity.attempt_failed(59.0) == ()
    assert entity.wake_at == 60.0
    assert entity.attempt_failed(60.0) == (Action.ENGAGE,)


def test_s3_any_success_cancels_the_timer() -> None:
    entity = suspect()
    assert entity.attempt_accepted() == (Action.RESUME,)
    assert (entity.state, entity.wake_at) == (State.HEALTHY, None)
    assert entity.tick(1e9) == ()


def test_s3_the_next_failure_after_a_success_starts_a_new_timer() -> None:
    entity = suspect(since=0.0)
    entity.attempt_accepted()
    entity.attempt_failed(50.0)
    assert entity.wake_at == 110.0


def test_s3_failover_engages_when_the_interval_has_passed_and_not_before() -> None:
    entity = suspect()
    assert entity.tick(59.999) == ()
    assert entity.state is State.SUSPECT
    assert entity.tick(60.0) == (Action.ENGAGE,)
    assert entity.engaged


def test_p2_an_interval_of_zero_redirects_the_failing_send_itself() -> None:
    entity = health(failover_interval=0.0)
    assert entity.attempt_failed(5.0) == (Action.PREPARE_BACKLOG, Action.ENGAGE)
    assert entity.after_failure("raise") is Next.PARK
    assert entity.wake_at == 15.0


def test_s4_late_answers_change_nothing_once_failover_is_engaged() -> None:
    entity = engaged(at=60.0)
    assert entity.attempt_accepted() == ()
    assert entity.attempt_failed(61.0) == ()
    assert entity.engaged
    assert entity.wake_at == 70.0


@pytest.mark.parametrize(
    ("make", "on_outage", "then"),
    [
        (suspect, "hold", Next.RETRY),
        (suspect, "raise", Next.RAISE),
        (engaged, "hold", Next.PARK),
        (engaged, "raise", Next.PARK),
    ],
)
def test_s6_what_a_send_does_after_an_outage_failure(
    make: Callable[[], EntityHealth], on_outage: OnOutage, then: Next
) -> None:
    assert make().after_failure(on_outage) is then


def test_g1_the_first_ping_comes_one_interval_after_failover() -> None:
    entity = engaged(at=60.0)
    assert entity.wake_at == 70.0
    assert entity.tick(69.999) == ()
    assert entity.tick(70.0) == (Action.PING,)


def test_g1_one_ping_at_a_time() -> None:
    entity = engaged(at=60.0)
    entity.tick(70.0)
    assert entity.wake_at is None
    assert entity.tick(1e9) == ()


@pytest.mark.parametrize(("failed_at", "again_at"), [(70.5, 80.0), (80.0, 80.0), (95.0, 95.0)])
def test_g1_pings_go_on_at_the_interval_or_as_soon_as_the_last_one_has_ended(failed_at: float, again_at: float) -> None:
    entity = engaged(at=60.0)
    entity.tick(70.0)
    assert entity.ping_failed(failed_at) == ()
    assert entity.engaged
    assert entity.wake_at == again_at
    assert entity.tick(again_at) == (Action.PING,)


def test_g2_the_first_ping_that_is_accepted_ends_failover_and_the_pings() -> None:
    entity = engaged(at=60.0)
    entity.tick(70.0)
    assert entity.ping_accepted() == (Action.RESUME,)
    assert (entity.state, entity.wake_at) == (State.HEALTHY, None)
    assert entity.tick(1e9) == ()


def test_g2_after_failover_the_next_failure_starts_over() -> None:
    entity = engaged(at=60.0)
    entity.tick(70.0)
    entity.ping_accepted()
    assert entity.attempt_failed(100.0) == (Action.PREPARE_BACKLOG,)
    assert entity.wake_at == 160.0


@pytest.mark.parametrize("make", [health, suspect, engaged])
def test_a_ping_that_nobody_sent_cannot_end(make: Callable[[], EntityHealth]) -> None:
    entity = make()
    with pytest.raises(IllegalMoveError, match="'ping accepted' cannot happen while"):
        entity.ping_accepted()
    with pytest.raises(IllegalMoveError, match="'ping failed' cannot happen while"):
        entity.ping_failed(100.0)


def test_a_ping_ends_once() -> None:
    entity = engaged(at=60.0)
    entity.tick(70.0)
    entity.ping_failed(71.0)
    with pytest.raises(IllegalMoveError):
        entity.ping_accepted()


def test_s5_what_an_entity_failed_with_is_known_until_it_is_healthy_again() -> None:
    health = EntityHealth("orders", failover_interval=10.0, ping_interval=5.0)
    refused, full, away = RuntimeError("refused"), RuntimeError("full"), RuntimeError("away")
    health.attempt_failed(0.0, refused)
    assert health.last_failure is refused
    health.attempt_accepted()
    assert health.last_failure is None
    health.attempt_failed(1.0, full)
    health.tick(11.0)
    health.attempt_accepted()
    assert health.last_failure is full, "a late answer does not end failover"
    health.tick(16.0)
    health.ping_failed(16.0, away)
    assert health.last_failure is away
    health.tick(21.0)
    health.ping_accepted()
    assert health.last_failure is None


def test_g1_a_ping_is_as_large_as_what_did_not_fit_until_the_entity_is_healthy_again() -> None:
    health = EntityHealth("orders", failover_interval=10.0, ping_interval=5.0)
    assert health.ping_bytes == 0
    health.attempt_failed(0.0, did_not_fit=4_000)
    health.attempt_failed(1.0, did_not_fit=900)
    assert health.ping_bytes == 4_000
    health.tick(10.0)
    health.tick(15.0)
    health.ping_failed(15.0)
    assert health.ping_bytes == 4_000
    health.tick(20.0)
    health.ping_accepted()
    assert health.ping_bytes == 0


def test_the_table_is_all_that_can_happen() -> None:
    missing = set(itertools.product(State, Event)) - TRANSITIONS.keys()
    assert missing == {
        (State.HEALTHY, Event.INTERVAL_PASSED),
        (State.HEALTHY, Event.PING_DUE),
        (State.HEALTHY, Event.PING_ACCEPTED),
        (State.HEALTHY, Event.PING_FAILED),
        (State.SUSPECT, Event.PING_DUE),
        (State.SUSPECT, Event.PING_ACCEPTED),
        (State.SUSPECT, Event.PING_FAILED),
        (State.ENGAGED, Event.INTERVAL_PASSED),
    }


def test_a_move_that_is_not_in_the_table_is_an_error_that_names_both() -> None:
    entity = engaged()
    entity.state = State.HEALTHY  # which no method would do: a ping is still due
    with pytest.raises(IllegalMoveError) as caught:
        entity.tick(1e9)
    assert (caught.value.state, caught.value.event) == (State.HEALTHY, Event.PING_DUE)


class AnyDriver(RuleBasedStateMachine):
    """S3, S4, G1, G2: whatever happens, in whatever order, no illegal move is made.

    Beside the machine runs a model that keeps nothing but the times at which things happened.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.failover_interval, self.ping_interval = 30.0, 10.0
        self.entity = health(self.failover_interval, self.ping_interval)
        self.failing_since: float | None = None
        self.engaged_at: float | None = None
        self.pings: list[float] = []
        self.ping_under_way = False

    def note(self, actions: tuple[Action, ...]) -> None:
        for action in actions:
            if action is Action.ENGAGE:
                assert self.failing_since is not None
                assert self.now >= self.failing_since + self.failover_interval
                self.engaged_at, self.pings = self.now, []
            elif action is Action.PING:
                assert self.engaged_at is not None
                assert not self.ping_under_way
                assert self.now >= max([self.engaged_at, *self.pings]) + self.ping_interval
                self.pings.append(self.now)
                self.ping_under_way = True

    @rule(seconds=st.floats(0, 50))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.note(self.entity.tick(self.now))

    @rule()
    def attempt_fails(self) -> None:
        if self.failing_since is None:
            self.failing_since = self.now
        self.note(self.entity.attempt_failed(self.now))

    @rule()
    def attempt_is_accepted(self) -> None:
        self.note(self.entity.attempt_accepted())
        if self.engaged_at is None:
            self.failing_since = None

    @precondition(lambda self: self.ping_under_way)
    @rule()
    def ping_fails(self) -> None:
        self.ping_under_way = False
        self.note(self.entity.ping_failed(self.now))

    @precondition(lambda self: self.ping_under_way)
    @rule()
    def ping_is_accepted(self) -> None:
        self.ping_under_way = False
        assert self.entity.ping_accepted() == (Action.RESUME,)
        self.engaged_at = self.failing_since = None

    @invariant()
    def engaged_if_and_only_if_the_model_says_so(self) -> None:
        assert self.entity.engaged == (self.engaged_at is not None)
        for on_outage in ("hold", "raise"):
            assert (self.entity.after_failure(on_outage) is Next.PARK) == self.entity.engaged

    @invariant()
    def somebody_will_look_again_unless_all_is_well_or_a_ping_is_under_way(self) -> None:
        waits = self.entity.state is not State.HEALTHY and not self.ping_under_way
        assert (self.entity.wake_at is not None) == waits


TestAnyDriver = AnyDriver.TestCase
TestAnyDriver.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)


def test_s4_what_is_under_way_is_answered_if_the_broker_answered_the_last_failure() -> None:
    health = EntityHealth("orders", failover_interval=60, ping_interval=1)
    health.attempt_failed(0.0)
    assert not health.answers
    health.attempt_failed(1.0, answered=True)
    assert health.answers
    health.attempt_accepted()
    assert not health.answers
