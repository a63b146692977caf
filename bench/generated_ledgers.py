"""Makes ledgers as days of a paired system leave them: outages, parking, pings, drains, two meters, and dirt."""

# ruff: noqa: PLR0917 (a line is written often, and by position)

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from random import Random

PRIMARY, SECONDARY = "contoso", "fabrikam"
MINUTE = timedelta(minutes=1)
SENDS_OF_A_BURST = 200


@dataclass(frozen=True)
class Outage:
    """One entity's, in minutes of the whole time."""

    entity: str
    began: int
    ended: int
    """When a ping was accepted; failover engages one minute after its beginning."""


@dataclass
class World:
    """What is to be told.

    :ivar operations: about how many lines.
    :ivar broker: whether the primary's broker meters too.
    :ivar dirt: whether there are lines written twice, late, torn and wrong.
    """

    operations: int
    days: int = 3
    first: date = date(2026, 3, 30)
    seed: int = 0
    clients: int = 6
    entities: int = 12
    broker: bool = True
    dirt: bool = True
    random: Random = field(init=False)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.names = [f"Entity-{number}" for number in range(self.entities)]
        self.start = datetime.combine(self.first, datetime.min.time(), UTC)
        self.outages: list[Outage] = []
        for day in range(self.days):
            for entity in self.random.sample(self.names, 2):
                began = day * 1440 + self.random.randrange(60, 1300)
                self.outages.append(Outage(entity, began, began + self.random.randrange(3, 45)))
        last = self.names[-1]  # one passes over midnight, and one does not end
        self.outages = [outage for outage in self.outages if outage.entity != last]
        self.outages.append(Outage(last, 1440 - 12, 1440 + 9))
        self.outages.append(Outage(last, self.days * 1440 - 20, self.days * 1440 + 60))

    def write(self, directory: Path, lines_in_a_file: int = 200_000) -> int:
        """Write the files, and tell how many lines they have."""
        directory.mkdir(parents=True, exist_ok=True)
        total = 0
        for day in range(self.days):
            lines: list[str] = []
            number = 0
            for minute in range(day * 1440, day * 1440 + 1440):
                lines.extend(self.minute(minute))
                if len(lines) >= lines_in_a_file:
                    total += self._write(directory / f"ledger-{day:03d}-{number}.jsonl", lines)
                    lines, number = [], number + 1
            total += self._write(directory / f"ledger-{day:03d}-{number}.jsonl", lines)
        return total

    def _write(self, path: Path, lines: list[str]) -> int:
        if self.dirt and lines:
            random = self.random
            lines += random.sample(lines, max(1, len(lines) // 500))  # written twice
            lines.insert(len(lines) // 2, "not JSON at all")
            lines.insert(len(lines) // 3, lines[0].replace('"messages":', '"messages":-'))
            lines.insert(len(lines) // 4, lines[0].replace('"kind":"', '"kind":"un'))
            lines.insert(len(lines) // 5, "")
            late, self._late = self._late, set(random.sample(lines[-200:], min(20, len(lines))))
            lines = [line for line in lines if line not in self._late] + sorted(late)
        path.write_text("\n".join(lines) + "\n")
        return len(lines)

    _late: set[str] = field(default_factory=set[str], init=False)
    _parked: Counter[str] = field(default_factory=Counter[str], init=False)
    _metered: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]], init=False)

    def minute(self, minute: int) -> Iterator[str]:
        """Tell what happened in one minute."""
        base = self.start + minute * MINUTE
        stamp = base.isoformat()[:17]
        under_way = {outage.entity: outage for outage in self.outages if outage.began <= minute < outage.ended}
        yield from self._turns(minute, base, under_way)
        yield from self._sends(stamp, minute, under_way)
        if self._parked.total():
            yield from self._drain(stamp, under_way)
        if minute % 15 == 0:
            for queue in range(2):
                path = f"{PRIMARY}/x-servicebus-transfer/{queue}"
                yield self.line(f"{stamp}59.9", "syphon", SECONDARY, path, "empty-receive", "idle", duration=900000000)
        if self.broker and minute % 10 == 9:
            yield from self._broker(f"{stamp}59.999")

    def line(
        self,
        at: str,
        client: str,
        namespace: str,
        entity: str,
        kind: str,
        stage: str,
        *,
        outcome: str = "done",
        messages: int = 0,
        operations: int = 1,
        size: int = 0,
        duration: int = 0,
        by: str = "client",
        rest: str = "",
    ) -> str:
        """Return a record as one line."""
        return (
            f'{{"v":1,"id":"{self.random.getrandbits(128):032x}","at":"{at}Z","metered_by":"{by}","client":"{client}",'
            f'"namespace":"{namespace}","entity":"{entity}","kind":"{kind}","stage":"{stage}","outcome":"{outcome}",'
            f'"messages":{messages},"operations":{operations},"bytes":{size},"duration_us":{duration}{rest}}}'
        )

    def _turns(self, minute: int, base: datetime, under_way: dict[str, Outage]) -> Iterator[str]:
        for outage in self.outages:
            turn = {outage.began: "suspect", outage.began + 1: "engaged", outage.ended: "healthy"}.get(minute)
            for number in range(self.clients):
                at = (base + timedelta(microseconds=1000 * number + 1)).isoformat(timespec="microseconds")[:26]
                if turn:
                    rest = f',"detail":"{turn}"'
                    yield self.line(
                        at, f"app-{number}", PRIMARY, outage.entity, "turn", "direct", operations=0, rest=rest
                    )
                elif outage.entity in under_way and under_way[outage.entity] is outage and minute > outage.began + 1:
                    rest = ',"detail":"ServiceBusConnectionError"'
                    yield self.line(
                        at,
                        f"app-{number}",
                        PRIMARY,
                        outage.entity,
                        "ping",
                        "ping",
                        outcome="failed",
                        size=150,
                        rest=rest,
                    )

    def _sends(self, stamp: str, minute: int, under_way: dict[str, Outage]) -> Iterator[str]:
        random = self.random
        for _ in range(self.operations // (self.days * 1440)):
            entity = self.names[int(random.random() ** 2 * self.entities)]
            at = f"{stamp}{random.random() * 58 + 1:09.6f}"
            client = f"app-{int(random.random() * self.clients)}"
            large = random.random() < 0.01
            messages = 1 if large else int(random.random() * 5) + 1
            operations, size = (2, 70_000) if large else (messages, messages * 900)
            outage = under_way.get(entity)
            if outage is not None and minute > outage.began:
                path = f"{PRIMARY}/x-servicebus-transfer/{int(random.random() * 2)}"
                rest = f',"destination":"{entity}"'
                self._parked[entity] += messages
                yield self.line(
                    at, client, SECONDARY, path, "send", "park",
                    messages=messages, operations=operations, size=size, duration=4000, rest=rest,
                )  # fmt: skip
            else:
                failed = outage is not None or random.random() < 0.0005
                rest = ',"detail":"OperationTimeoutError"' if failed else ""
                outcome = ("unknown" if random.random() < 0.2 else "failed") if failed else "done"
                if not failed:
                    self._metered[entity, "send"] += operations
                yield self.line(
                    at, client, PRIMARY, entity, "send", "direct",
                    outcome=outcome, messages=messages, operations=operations, size=size, duration=3000, rest=rest,
                )  # fmt: skip

    def _drain(self, stamp: str, under_way: dict[str, Outage]) -> Iterator[str]:
        rate = max(SENDS_OF_A_BURST, self.operations // (self.days * 1440))
        for entity in [name for name, count in self._parked.items() if count and name not in under_way]:
            for second in range(0, 60, 10):
                count = min(self._parked[entity], rate)
                if not count:
                    break
                self._parked[entity] -= count
                path = f"{PRIMARY}/x-servicebus-transfer/{second % 2}"
                oldest = f',"oldest_at":"{stamp}00.000000Z"'
                home = f',"destination":"{entity}"'
                at = f"{stamp}{second:02d}.5"
                self._metered[entity, "send"] += count
                dead = 1 if count > 1 and second == 50 else 0
                yield self.line(
                    at, "syphon", SECONDARY, path, "receive", "syphon",
                    messages=count, operations=count, size=count * 950, rest=oldest,
                )  # fmt: skip
                yield self.line(
                    f"{at}1", "syphon", PRIMARY, entity, "send", "syphon",
                    messages=count - dead, operations=count - dead, size=(count - dead) * 900, rest=home,
                )  # fmt: skip
                yield self.line(
                    f"{at}2",
                    "syphon",
                    SECONDARY,
                    path,
                    "complete",
                    "syphon",
                    messages=count - dead,
                    operations=count - dead,
                    size=(count - dead) * 900,
                )
                if dead:
                    yield self.line(f"{at}3", "syphon", SECONDARY, path, "dead-letter", "syphon", messages=1, rest=home)

    def _broker(self, at: str) -> Iterator[str]:
        for (entity, kind), count in sorted(self._metered.items()):
            more = self.random.randrange(3)
            sent = max(1, count + more)
            yield self.line(
                at, "SBSender-1", PRIMARY, entity.lower(), kind, "direct",
                messages=sent, operations=sent, size=sent * 870 + 1, by="broker",
            )  # fmt: skip
            yield self.line(
                at,
                "SBReceiver-1",
                PRIMARY,
                entity.lower(),
                "receive",
                "direct",
                messages=sent,
                operations=sent,
                size=sent * 870,
                by="broker",
            )
        self._metered.clear()
