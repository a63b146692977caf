"""Records to be written."""

from datetime import UTC, datetime

from pairbus.core.ledger import Kind, Outcome, Record, Stage


def made(number: int, *, entity: str = "orders") -> Record:
    """A record of a send."""
    return Record(
        id=f"id-{number}",
        at=datetime(2026, 1, 31, 12, tzinfo=UTC),
        client="shop",
        namespace="contoso",
        entity=entity,
        kind=Kind.SEND,
        stage=Stage.DIRECT,
        outcome=Outcome.DONE,
        messages=1,
        bytes=100,
    )
