"""What every store does."""

import pytest
from tests.unit.broker.store.conftest import Owner, entity, row

from pairbus.broker.store.base import IndexRow, Journal, RowState, Store, StoreError, entity_of, key_of, sequence_of


def stored(store: Store, number: int = 1) -> list[int]:
    return [sequence_of(found.key) for found in store.index(number)]


def test_a_key_holds_entity_and_sequence_number() -> None:
    key = key_of(7, 99)
    assert (entity_of(key), sequence_of(key)) == (7, 99)
    assert key_of(7, (1 << 40) - 1) < key_of(8, 0)


@pytest.mark.parametrize("name", Journal.__slots__)
def test_a_journal_knows_whether_it_is_empty(name: str) -> None:
    journal = Journal()
    assert journal.is_empty()
    getattr(journal, name).append(None)
    assert not journal.is_empty()


def test_what_is_durable_is_found(store: Store, owner: Owner) -> None:
    store.journal.entities.append(entity())
    first = row(1)._replace(expires=5, due=6, session="s\0ö", state=RowState.SCHEDULED, deliveries=3)
    store.journal.rows += [first, row(2, payload=b"")]
    assert owner.settle(store) is None
    assert store.load([key_of(1, 2), key_of(1, 1)]) == [row(2, payload=b""), first]
    assert list(store.index(1)) == [
        IndexRow(first.key, RowState.SCHEDULED, 5, 6, "s\0ö", len(first.payload)),
        IndexRow(key_of(1, 2), RowState.ACTIVE, None, None, None, 0),
    ]
    assert list(store.index(2)) == []


def test_what_is_only_journalled_is_not_found(store: Store) -> None:
    store.journal.rows.append(row(1))
    assert store.load([key_of(1, 1)]) == []


def test_a_flush_calls_nobody_back_by_itself_and_keeps_the_order(store: Store, owner: Owner) -> None:
    calls: list[int] = []
    for number in range(20):
        store.journal.rows.append(row(number))
        store.journal.durable.append(lambda error, number=number: calls.append(number) if error is None else None)
        store.flush()
        assert calls == []
    assert owner.settle(store) is None
    assert calls == list(range(20))
    assert stored(store) == list(range(20))


def test_callbacks_without_changes_are_called_too(store: Store, owner: Owner) -> None:
    assert owner.settle(store) is None


def test_an_empty_flush_does_nothing(store: Store, owner: Owner) -> None:
    store.flush()
    assert owner.inbox.empty()


def test_a_callback_that_raises_is_logged_and_the_others_are_called(
    store: Store, owner: Owner, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: StoreError | None) -> None:
        raise ValueError("mine")

    store.journal.durable.append(fail)
    assert owner.settle(store) is None
    assert "a callback of the store has failed" in caplog.text


def test_a_callback_may_journal_and_flush(store: Store, owner: Owner) -> None:
    def forward(_: StoreError | None) -> None:
        store.journal.rows.append(row(2))
        store.flush()

    store.journal.rows.append(row(1))
    store.journal.durable.append(forward)
    assert owner.settle(store) is None
    assert owner.settle(store) is None
    assert stored(store) == [1, 2]


def test_a_row_replaces_the_one_of_its_key(store: Store, owner: Owner) -> None:
    store.journal.rows.append(row(1))
    owner.settle(store)
    store.journal.rows += [row(1, payload=b"second"), row(1, payload=b"third")]
    owner.settle(store)
    assert [found.payload for found in store.load([key_of(1, 1)])] == [b"third"]


@pytest.mark.parametrize("step", [1, 2, 3])
def test_many_rows_are_changed_loaded_and_removed(store: Store, owner: Owner, step: int) -> None:
    keys = [key_of(1, number) for number in range(0, 331, step)]
    store.journal.rows += [row(number) for number in range(331)]
    owner.settle(store)
    store.journal.states += [(key, RowState.DEFERRED) for key in keys]
    store.journal.deliveries += [(key, 9) for key in keys] + [(key, key % 3) for key in keys]
    owner.settle(store)
    for found in store.load(keys):
        assert (found.state, found.deliveries) == (RowState.DEFERRED, found.key % 3)
    assert [found.key for found in store.load(keys[::-1])] == keys[::-1]
    store.journal.removed += keys
    owner.settle(store)
    assert stored(store) == [number for number in range(331) if number % step]
    assert store.load(keys) == []


def test_changes_to_what_is_not_there_change_nothing(store: Store, owner: Owner) -> None:
    store.journal.states.append((key_of(1, 1), 1))
    store.journal.deliveries.append((key_of(1, 1), 1))
    store.journal.removed.append(key_of(1, 1))
    store.journal.session_states.append((1, "s", None))
    store.journal.forgotten.append((1, 5))
    store.journal.dropped.append(1)
    assert owner.settle(store) is None
    assert store.load([key_of(1, 1)]) == []
    assert store.load([]) == []


def test_new_and_gone_in_one_journal_leaves_only_the_sequence_number(store: Store, owner: Owner) -> None:
    store.journal.entities.append(entity())
    store.journal.rows += [row(1), row(2)]
    store.journal.deliveries.append((key_of(1, 2), 1))
    store.journal.removed.append(key_of(1, 2))
    owner.settle(store)
    assert stored(store) == [1]
    assert store.entities() == [entity(next_sequence=3)]


def test_a_sequence_never_goes_back(store: Store, owner: Owner) -> None:
    store.journal.entities += [entity(1), entity(2, "other", 50)]
    store.journal.rows += [row(7), row(9), row(3), row(4, entity=2)]
    owner.settle(store)
    store.journal.removed += [key_of(1, 7), key_of(1, 9), key_of(1, 3)]
    owner.settle(store)
    store.journal.entities.append(entity(1, "renamed", 2))
    owner.settle(store)
    assert store.entities() == [entity(1, "renamed", 10), entity(2, "other", 50)]


def test_session_states(store: Store, owner: Owner) -> None:
    store.journal.session_states += [(1, "b", b"1"), (1, "a", b""), (2, "a", b"3"), (1, "b", b"4")]
    owner.settle(store)
    assert list(store.session_states(1)) == [("a", b""), ("b", b"4")]
    store.journal.session_states += [(1, "a", None)]
    owner.settle(store)
    assert list(store.session_states(1)) == [("b", b"4")]
    assert list(store.session_states(2)) == [("a", b"3")]


def test_seen_ids_are_remembered_until_their_latest_time(store: Store, owner: Owner) -> None:
    store.journal.seen += [(1, "x", 10), (1, "y", 20), (2, "x", 30), (1, "x", 15), (1, "y", 5)]
    owner.settle(store)
    assert sorted(store.seen(1, 0)) == [("x", 15), ("y", 20)]
    assert sorted(store.seen(1, 15)) == [("y", 20)]
    store.journal.forgotten.append((1, 15))
    owner.settle(store)
    assert sorted(store.seen(1, 0)) == [("y", 20)]
    assert sorted(store.seen(2, 0)) == [("x", 30)]


def test_a_dropped_entity_takes_all_it_had(store: Store, owner: Owner) -> None:
    store.journal.entities += [entity(1), entity(2, "other")]
    for number in (1, 2):
        store.journal.rows += [row(1, entity=number), row(2, entity=number)]
        store.journal.session_states.append((number, "s", b"state"))
        store.journal.seen.append((number, "id", 99))
    owner.settle(store)
    store.journal.rows.append(row(3))
    store.journal.dropped.append(1)
    owner.settle(store)
    assert [found.id for found in store.entities()] == [2]
    assert (stored(store, 1), stored(store, 2)) == ([], [1, 2])
    assert (list(store.session_states(1)), list(store.session_states(2))) == ([], [("s", b"state")])
    assert (list(store.seen(1, 0)), list(store.seen(2, 0))) == ([], [("id", 99)])


def test_closing_makes_durable_what_has_gathered_and_calls_back(store: Store) -> None:
    calls: list[StoreError | None] = []
    store.journal.rows.append(row(1))
    store.journal.durable.append(calls.append)
    store.flush()
    store.journal.rows.append(row(2))
    store.journal.durable.append(calls.append)
    store.close()
    assert calls == [None, None]
    store.close()


def test_a_closed_store_refuses(store: Store, owner: Owner) -> None:
    store.journal.rows.append(row(1))
    store.close()
    for ask in (
        store.flush,
        store.entities,
        lambda: list(store.index(1)),
        lambda: store.load([key_of(1, 1)]),
        lambda: store.session_states(1),
        lambda: store.seen(1, 0),
    ):
        with pytest.raises(StoreError, match="closed"):
            ask()
    while not owner.inbox.empty():
        owner.inbox.get()()


def test_messages_are_browsed_from_a_sequence_number_on(store: Store, owner: Owner) -> None:
    store.journal.rows += [row(5), row(1), row(3), row(2, entity=2)]
    owner.settle(store)
    assert store.browse(1, 2, 10) == [row(3), row(5)]
    assert store.browse(1, 0, 2) == [row(1), row(3)]
    assert store.browse(1, 6, 10) == store.browse(3, 0, 10) == []


def test_what_expires_is_found_the_earliest_first_and_what_is_scheduled_does_not_expire(
    store: Store, owner: Owner
) -> None:
    late, soon, never = row(1)._replace(expires=30), row(2)._replace(expires=10), row(3)
    deferred = row(4)._replace(expires=20, state=RowState.DEFERRED)
    scheduled = row(5)._replace(expires=5, due=4, state=RowState.SCHEDULED)
    store.journal.rows += [late, soon, never, deferred, scheduled, row(6, entity=2)._replace(expires=1)]
    owner.settle(store)
    assert store.next_expiry(1) == 10
    assert store.expired(1, 9, 10) == []
    assert store.expired(1, 20, 10) == [soon, deferred]
    assert store.expired(1, 99, 2) == [soon, deferred]
    store.journal.removed += [soon.key, deferred.key]
    owner.settle(store)
    assert (store.next_expiry(1), store.next_expiry(2), store.next_expiry(3)) == (30, 1, None)


def test_what_is_scheduled_is_found_when_it_is_due(store: Store, owner: Owner) -> None:
    later, sooner = (row(n)._replace(due=due, state=RowState.SCHEDULED) for n, due in ((1, 20), (2, 10)))
    was = row(3)._replace(due=1)
    store.journal.rows += [later, sooner, was]
    owner.settle(store)
    assert store.next_due(1) == 10
    assert store.due(1, 10, 10) == [sooner]
    assert store.due(1, 99, 1) == [sooner]
    store.journal.states.append((sooner.key, RowState.ACTIVE))
    owner.settle(store)
    assert store.next_due(1) == 20
    assert store.next_due(2) is None


@pytest.mark.parametrize("first", [-(1 << 62), -1, 0, 1 << 40, 1 << 41, (1 << 63) - 1])
def test_browsing_from_any_number_stays_within_the_entity(owner: Owner, store: Store, first: int) -> None:
    store.journal.entities += [entity(number, f"queue {number}") for number in (1, 2, 3)]
    store.journal.rows += [row(1, number) for number in (1, 2, 3)]
    assert owner.settle(store) is None
    assert [found.key for found in store.browse(2, first, 10)] == ([key_of(2, 1)] if first <= 1 else [])
