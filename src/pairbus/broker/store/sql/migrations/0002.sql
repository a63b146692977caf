-- Version 2: topics and subscriptions, and when an entity was made, changed and used.

ALTER TABLE entity ADD COLUMN kind TEXT NOT NULL DEFAULT 'queue';
ALTER TABLE entity ADD COLUMN created INTEGER NOT NULL DEFAULT 0;
ALTER TABLE entity ADD COLUMN updated INTEGER NOT NULL DEFAULT 0;
ALTER TABLE entity ADD COLUMN accessed INTEGER NOT NULL DEFAULT 0;

-- Where a message's body is, if it has none of its own: under a key of the topic, where no message is. The copies of a
-- message in many subscriptions name the same one. Messages with a body of their own are not in the index.
ALTER TABLE meta ADD COLUMN body_key INTEGER;
CREATE INDEX meta_body ON meta (body_key) WHERE body_key IS NOT NULL;
