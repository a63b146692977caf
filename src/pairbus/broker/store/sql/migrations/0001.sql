-- Version 1. All tables are rowid tables: with a body in the row, WITHOUT ROWID is 3 to 7 times slower.

-- Queues, topics, subscriptions. A path is not unique here: within one journal an entity may be dropped and made anew.
CREATE TABLE entity (
    id INTEGER PRIMARY KEY,
    path TEXT NOT NULL,
    description TEXT NOT NULL,
    next_sequence INTEGER NOT NULL
);

-- All of a message but its body, so that opening a broker and counting deliveries never read or write bodies.
-- key: entity << 40 | sequence number. An entity's messages are one range, in order.
CREATE TABLE meta (
    key INTEGER PRIMARY KEY,
    state INTEGER NOT NULL,
    enqueued INTEGER NOT NULL,
    expires INTEGER,
    due INTEGER,
    session TEXT,
    deliveries INTEGER NOT NULL,
    size INTEGER NOT NULL
);

-- What expires, and what is scheduled, by entity and time. Messages that do neither are in no index.
CREATE INDEX meta_expiry ON meta (key >> 40, expires) WHERE expires IS NOT NULL AND state <> 2;
CREATE INDEX meta_due ON meta (key >> 40, due) WHERE state = 2;

CREATE TABLE payload (
    key INTEGER PRIMARY KEY,
    body BLOB NOT NULL
);

CREATE TABLE session_state (
    entity INTEGER NOT NULL,
    session TEXT NOT NULL,
    state BLOB NOT NULL,
    UNIQUE (entity, session)
);

-- Message ids for duplicate detection, appended as they come.
-- key: entity << 40 | a running number. There is no index on the id: ids are random, and an index would touch a page of
-- its own for each message; whoever detects duplicates reads all ids of an entity, once.
CREATE TABLE seen (
    key INTEGER PRIMARY KEY,
    until INTEGER NOT NULL,
    id TEXT NOT NULL
);

-- Entities that are gone, and whose bodies are removed little by little.
CREATE TABLE dropped (
    id INTEGER PRIMARY KEY
);
