"""Simulated time."""

from pairbus.simulate.kernel import TIMED_OUT, Future, Kernel, Running, TimedOut, Wait


def test_things_happen_in_the_order_of_their_times_and_then_of_their_making() -> None:
    kernel = Kernel()
    happened: list[str] = []
    kernel.at(2.0, lambda: happened.append("later"))
    kernel.at(1.0, lambda: happened.append("first"))
    kernel.at(1.0, lambda: happened.append("second"))
    kernel.run(until=1.5)
    assert (happened, kernel.now) == (["first", "second"], 1.5)
    kernel.at(0.0, lambda: happened.append("what is overdue, now"))
    kernel.run(until=2.0)
    assert happened[2:] == ["what is overdue, now", "later"]


def test_a_wait_ends_with_the_value_or_at_its_deadline() -> None:
    kernel = Kernel()
    told: list[str | TimedOut] = []
    future = Future[str]()

    def process() -> Running[None]:
        told.append((yield Wait(future, deadline=5.0)))
        told.append((yield Wait(future, deadline=5.0)))
        told.append((yield Wait(Future[str](), deadline=5.0)))

    kernel.spawn(process())
    kernel.at(3.0, lambda: future.resolve("value"))
    kernel.at(4.0, lambda: future.resolve("too late"))
    kernel.run(until=10.0)
    assert told == ["value", "value", TIMED_OUT]


def test_a_process_that_is_killed_runs_none_of_its_code_any_more() -> None:
    kernel = Kernel()
    steps: list[float] = []
    killed: list[float] = []

    def process() -> Running[None]:
        while True:
            steps.append(kernel.now)
            yield 1.0

    running = kernel.spawn(process())
    running.on_killed = lambda: killed.append(kernel.now)
    running.steps_left = 3
    kernel.run(until=10.0)
    running.kill()
    assert (steps, killed, running.alive) == ([0.0, 1.0, 2.0], [3.0], False)
