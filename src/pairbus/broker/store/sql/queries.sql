-- Queries by name. What put_meta, put_copy, put_payload and put_seen have after VALUES is repeated for as many rows as are written
-- at once. {keys} stands for a list of keys, {is_whole} for the condition that a record is what was stored (checksums.py).

-- name: entities
-- All entities, for opening.
SELECT id, path, description, next_sequence, kind, created, updated, accessed FROM entity ORDER BY id;

-- name: put_entity
-- A new entity or new settings. The sequence never goes back, whatever the entity knew when it was journalled.
INSERT INTO entity (id, path, description, next_sequence, kind, created, updated, accessed, entity_sum)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    path = excluded.path,
    description = excluded.description,
    next_sequence = max(next_sequence, excluded.next_sequence),
    kind = excluded.kind,
    created = excluded.created,
    updated = excluded.updated,
    accessed = excluded.accessed,
    entity_sum = excluded.entity_sum + max(next_sequence - excluded.next_sequence, 0) * 3;

-- name: subscriptions
-- Entities whose messages may have their bodies elsewhere.
SELECT id FROM entity WHERE kind = 'subscription';

-- name: raise_sequence
-- Messages up to a sequence number were stored.
UPDATE entity SET next_sequence = ?1, entity_sum = entity_sum + (?1 - next_sequence) * 3 WHERE id = ?2 AND next_sequence < ?1;

-- name: drop_entity
DELETE FROM entity WHERE id = ?;

-- name: index
-- One page of an entity's messages, without bodies.
SELECT key, state, expires, due, session, size, {is_whole} FROM meta WHERE key BETWEEN ? AND ? ORDER BY key LIMIT ?;

-- name: load_range
-- Neighbours. Last comes the body's checksum; NULL: the record itself is damaged. LEFT JOIN: a body may be missing.
SELECT meta.key, state, enqueued, expires, due, session, deliveries, body, CASE WHEN {is_whole} THEN content_crc & 4294967295 END
FROM meta LEFT JOIN payload ON payload.key = ifnull(body_key, meta.key)
WHERE meta.key BETWEEN ? AND ? ORDER BY meta.key;

-- name: load_keys
SELECT meta.key, state, enqueued, expires, due, session, deliveries, body, CASE WHEN {is_whole} THEN content_crc & 4294967295 END
FROM meta LEFT JOIN payload ON payload.key = ifnull(body_key, meta.key)
WHERE meta.key IN ({keys});

-- name: browse
-- Messages from a key on.
SELECT meta.key, state, enqueued, expires, due, session, deliveries, body, CASE WHEN {is_whole} THEN content_crc & 4294967295 END
FROM meta LEFT JOIN payload ON payload.key = ifnull(body_key, meta.key)
WHERE meta.key BETWEEN ? AND ? ORDER BY meta.key LIMIT ?;

-- name: expired
-- Served by meta_expiry, as next_expiry is: the conditions are those of the index.
SELECT meta.key, state, enqueued, expires, due, session, deliveries, body, CASE WHEN {is_whole} THEN content_crc & 4294967295 END
FROM meta LEFT JOIN payload ON payload.key = ifnull(body_key, meta.key)
WHERE meta.key >> 40 = ? AND expires IS NOT NULL AND state <> 2 AND expires <= ? ORDER BY expires LIMIT ?;

-- name: due
-- Served by meta_due, as next_due is.
SELECT meta.key, state, enqueued, expires, due, session, deliveries, body, CASE WHEN {is_whole} THEN content_crc & 4294967295 END
FROM meta LEFT JOIN payload ON payload.key = ifnull(body_key, meta.key)
WHERE meta.key >> 40 = ? AND state = 2 AND due <= ? ORDER BY due LIMIT ?;

-- name: next_expiry
SELECT min(expires) FROM meta WHERE key >> 40 = ? AND expires IS NOT NULL AND state <> 2;

-- name: next_due
SELECT min(due) FROM meta WHERE key >> 40 = ? AND state = 2;

-- name: put_meta
-- An empty text stands for no time, the number 0 for no session.
REPLACE INTO meta (key, state, enqueued, expires, due, session, deliveries, size, content_crc, record_sum)
VALUES (?, ?, ?, nullif(?, ''), nullif(?, ''), nullif(?, 0), ?, ?, ?, ?);

-- name: put_copy
-- A message whose body is under another key.
REPLACE INTO meta (key, state, enqueued, expires, due, session, deliveries, size, content_crc, record_sum, body_key)
VALUES (?, ?, ?, nullif(?, ''), nullif(?, ''), nullif(?, 0), ?, ?, ?, ?, ?);

-- name: put_payload
REPLACE INTO payload (key, body) VALUES (?, ?);

-- name: set_state_range
UPDATE meta SET state = ?1, record_sum = record_sum + (?1 - state) * 5 WHERE key BETWEEN ? AND ?;

-- name: set_state_keys
UPDATE meta SET state = ?1, record_sum = record_sum + (?1 - state) * 5 WHERE key IN ({keys});

-- name: set_deliveries_range
UPDATE meta SET deliveries = ?1, record_sum = record_sum + (?1 - deliveries) * 17 WHERE key BETWEEN ? AND ?;

-- name: set_deliveries_keys
UPDATE meta SET deliveries = ?1, record_sum = record_sum + (?1 - deliveries) * 17 WHERE key IN ({keys});

-- name: remove_meta_range
DELETE FROM meta WHERE key BETWEEN ? AND ?;

-- name: remove_meta_keys
DELETE FROM meta WHERE key IN ({keys});

-- name: remove_payload_range
DELETE FROM payload WHERE key BETWEEN ? AND ?;

-- name: remove_payload_keys
DELETE FROM payload WHERE key IN ({keys});

-- name: body_keys
-- Which bodies messages name that are about to get one of their own.
SELECT body_key FROM meta WHERE key IN ({keys}) AND body_key IS NOT NULL;

-- name: remove_copies_range
-- Messages that may have their bodies elsewhere, as may those of the next two.
DELETE FROM meta WHERE key BETWEEN ? AND ? RETURNING key, body_key;

-- name: remove_copies_keys
DELETE FROM meta WHERE key IN ({keys}) RETURNING key, body_key;

-- name: remove_some_copies
DELETE FROM meta WHERE key IN (SELECT key FROM meta WHERE key BETWEEN ? AND ? LIMIT ?) RETURNING key, body_key;

-- name: remove_bodies_keys
-- Bodies that no message names any more.
DELETE FROM payload WHERE key IN ({keys}) AND NOT EXISTS (SELECT * FROM meta WHERE body_key = payload.key);

-- name: session_states
-- Last comes whether a state is what was stored.
SELECT session, state, state_sum = state_sum(entity, CAST(session AS BLOB), CAST(state AS BLOB))
FROM session_state WHERE entity = ? ORDER BY session;

-- name: put_session_state
INSERT INTO session_state (entity, session, state, state_sum) VALUES (?, ?, ?, ?)
ON CONFLICT (entity, session) DO UPDATE SET state = excluded.state, state_sum = excluded.state_sum;

-- name: remove_session_state
DELETE FROM session_state WHERE entity = ? AND session = ?;

-- name: drop_session_states
DELETE FROM session_state WHERE entity = ?;

-- name: seen
-- What an entity still remembers at a time.
SELECT id, max(until) FROM seen WHERE key BETWEEN ? AND ? AND until > ? GROUP BY id;

-- name: last_seen
-- The last running number of an entity, as a key.
SELECT max(key) FROM seen WHERE key BETWEEN ? AND ?;

-- name: put_seen
INSERT INTO seen (key, until, id) VALUES (?, ?, ?);

-- name: forget_seen
DELETE FROM seen WHERE key BETWEEN ? AND ? AND until <= ?;

-- name: dropped
-- Entities that are gone, but for bodies.
SELECT id FROM dropped;

-- name: put_dropped
INSERT OR IGNORE INTO dropped (id) VALUES (?);

-- name: remove_dropped
DELETE FROM dropped WHERE id = ?;

-- name: body_after
-- Where to stop when only so many bodies of a range are to be removed.
SELECT key FROM payload WHERE key BETWEEN ? AND ? ORDER BY key LIMIT 1 OFFSET ?;

-- name: entities_damaged
-- Entities that are not what was stored, for opening.
SELECT id FROM entity WHERE entity_sum <> entity_sum(
    id, next_sequence, CAST(path AS BLOB), CAST(kind AS BLOB), CAST(description AS BLOB)
);

-- name: last_commit
SELECT store, number, at FROM commits;

-- name: count_commit
UPDATE commits SET number = ?, at = ?;

-- name: stray_entities
-- Ids of entities that have messages and do not exist, for opening. It reads one record of each entity, not all.
WITH RECURSIVE present (id) AS (
    SELECT min(key) >> 40 FROM meta
    UNION ALL
    SELECT (SELECT min(key) >> 40 FROM meta WHERE key >= (present.id + 1) << 40) FROM present WHERE present.id IS NOT NULL
)
SELECT id FROM present
WHERE id IS NOT NULL AND id NOT IN (SELECT id FROM entity) AND id NOT IN (SELECT id FROM dropped);
