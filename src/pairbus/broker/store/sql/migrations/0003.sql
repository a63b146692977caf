-- Version 3: checksums. The functions content_crc, entity_sum and record_sum are those of checksums.py.

-- content_crc: of the body, and of the session id, if it has one, in the upper half.
-- record_sum: of all other columns; whoever changes one changes the sum with it.
ALTER TABLE meta ADD COLUMN content_crc INTEGER NOT NULL DEFAULT 0;
ALTER TABLE meta ADD COLUMN record_sum INTEGER NOT NULL DEFAULT 0;
UPDATE meta SET content_crc = ifnull(
    (SELECT content_crc(meta.session, body) FROM payload WHERE payload.key = ifnull(meta.body_key, meta.key)), -1
);
UPDATE meta SET record_sum = record_sum(key, state, enqueued, expires, due, deliveries, size, content_crc);

-- Of id, path, kind, description and next_sequence.
ALTER TABLE entity ADD COLUMN entity_sum INTEGER NOT NULL DEFAULT 0;
UPDATE entity SET entity_sum = entity_sum(
    id, next_sequence, CAST(path AS BLOB), CAST(kind AS BLOB), CAST(description AS BLOB)
);
