"""What it costs to find the subscriptions that select a message, as ratios of one run.

1, 10, 100 and 2,000 subscriptions have one correlation filter each; a message matches one of them. The index is
measured against trying each filter in turn, which is what the index replaces. ``x 1`` is the index with one
subscription. Each message is looked at as it arrives: nothing of it is decoded yet.
"""

import argparse
import time
from collections.abc import Callable

from pairbus.amqp.message import Message, build_message, encode_data_section
from pairbus.amqp.sections import Properties
from pairbus.broker.filters import CorrelationFilter, Facts, Filter, Matcher, Rule, SqlFilter

COUNTS = (1, 10, 100, 2000)
BODY = encode_data_section(b"x" * 1024)

KINDS: dict[str, Callable[[int], Filter]] = {
    "correlation, subject": lambda number: CorrelationFilter(subject=f"order-{number}"),
    "correlation, property": lambda number: CorrelationFilter(properties={"customer": number}),
    "correlation, both (one subject)": lambda number: CorrelationFilter(
        subject="order-0", properties={"customer": number, "kind": "new"}
    ),
    "SQL, customer = n AND kind = 'new'": lambda number: SqlFilter(f"customer = {number} AND kind = 'new'"),
    "SQL, customer > n - 1 AND customer < n + 1": lambda number: SqlFilter(
        f"customer > {number - 1} AND customer < {number + 1}"
    ),
}


def message() -> Message:
    return Message(
        build_message(
            BODY,
            properties=Properties(message_id="m", subject="order-0"),
            application_properties={"customer": 0, "kind": "new", "region": "north"},
        )
    )


def seconds_per_message(match: Callable[[Facts], object], seconds: float) -> float:
    """Return the least time of five rounds, each of which lasts so long."""
    arrived = message()
    best = float("inf")
    for _ in range(5):
        done = 0
        began = now = time.perf_counter()
        while now - began < seconds / 5:
            for _ in range(20):
                match(Facts(arrived))
            done += 20
            now = time.perf_counter()
        best = min(best, (now - began) / done)
    return best


def try_each(rules: list[Rule]) -> Callable[[Facts], object]:
    return lambda facts: [rule for rule in rules if rule.filter.matches(facts)]


def measure(make: Callable[[int], Filter], seconds: float) -> None:
    unit = 0.0
    for count in COUNTS:
        rules = [Rule("r", make(number)) for number in range(count)]
        matcher = Matcher[int]()
        for number, rule in enumerate(rules):
            matcher.put(number, rule)
        assert list(matcher.match(Facts(message()))) == [0]
        indexed = seconds_per_message(matcher.match, seconds)
        tried = seconds_per_message(try_each(rules), seconds)
        unit = unit or indexed
        print(
            f"  {count:5} subscriptions: matcher {indexed * 1e6:8.1f} us (x {indexed / unit:7.2f}), "
            f"trying each {tried * 1e6:8.1f} us (x {tried / unit:7.2f}), {tried / indexed:7.1f} times as much"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each measurement")
    arguments = parser.parse_args()
    for name, make in KINDS.items():
        print(name)
        measure(make, arguments.seconds)


if __name__ == "__main__":
    main()
