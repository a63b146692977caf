-- Version 4: how many commits there were, so that the loss of some is noticed (commits.py), and checksums of session states.

-- One row. store: what tells this database from others. number and at: of the last commit that changed something, and
-- when it was (milliseconds since the epoch, UTC).
CREATE TABLE commits (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    store BLOB NOT NULL,
    number INTEGER NOT NULL,
    at INTEGER NOT NULL
);
INSERT INTO commits (id, store, number, at) VALUES (1, randomblob(16), 0, 0);

-- Of entity, session and state; the function is that of checksums.py.
ALTER TABLE session_state ADD COLUMN state_sum INTEGER NOT NULL DEFAULT 0;
UPDATE session_state SET state_sum = state_sum(entity, CAST(session AS BLOB), state);
