-- The audit: what was done, by whom, in an order that nobody can change unseen. Same tables, columns and rules as ../postgres.

-- One row for each thing that happened. `subject` names what it happened to, once for each kind, so that a commit that went
-- unheard and is made again enters nothing twice. `hash` is an HMAC over all other columns with the key that `key_id` names,
-- `previous_hash` that of the row before; `format` says how the columns are put together for it.
CREATE TABLE audit (
    number BIGINT NOT NULL PRIMARY KEY,
    format BIGINT NOT NULL,
    at BIGINT NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    tenant TEXT NOT NULL,
    actor TEXT NOT NULL,
    decision_id TEXT,
    action_id TEXT,
    tool TEXT,
    detail TEXT NOT NULL,
    key_id TEXT NOT NULL,
    previous_hash TEXT NOT NULL,
    hash TEXT NOT NULL,
    CONSTRAINT audit_number CHECK (number >= 1)
);

CREATE UNIQUE INDEX audit_once ON audit (subject, kind);
CREATE INDEX audit_by_decision ON audit (decision_id, number);

-- The last row of it: one number and one hash, to be kept elsewhere as well.
CREATE TABLE audit_head (
    id BIGINT NOT NULL PRIMARY KEY,
    number BIGINT NOT NULL,
    hash TEXT NOT NULL,
    CONSTRAINT audit_one_head CHECK (id = 1)
);

INSERT INTO audit_head (id, number, hash)
VALUES (1, 0, '0000000000000000000000000000000000000000000000000000000000000000');

-- The key, where none was given and there is no file beside the database to hold it. Always empty here.
CREATE TABLE audit_key (
    id BIGINT NOT NULL PRIMARY KEY,
    secret TEXT NOT NULL,
    CONSTRAINT audit_one_key CHECK (id = 1)
);

-- Whoever replaces a row deletes it, which no trigger sees on a connection without recursive_triggers: so what comes must be
-- new, and follow the head.
CREATE TRIGGER audit_follows BEFORE INSERT ON audit BEGIN
    SELECT RAISE(ABORT, 'audit is append-only: a row must follow the head')
    WHERE NOT EXISTS (
        SELECT 1 FROM audit_head WHERE number = NEW.number - 1 AND hash = NEW.previous_hash);
    SELECT RAISE(ABORT, 'audit is append-only: this was entered before')
    WHERE EXISTS (SELECT 1 FROM audit WHERE number = NEW.number OR (subject = NEW.subject AND kind = NEW.kind));
END;

CREATE TRIGGER audit_moves_head AFTER INSERT ON audit BEGIN
    UPDATE audit_head SET number = NEW.number, hash = NEW.hash WHERE id = 1;
END;

CREATE TRIGGER audit_keeps BEFORE UPDATE ON audit BEGIN
    SELECT RAISE(ABORT, 'audit is append-only: no row is changed');
END;

CREATE TRIGGER audit_stays BEFORE DELETE ON audit BEGIN
    SELECT RAISE(ABORT, 'audit is append-only: no row is deleted');
END;

CREATE TRIGGER audit_head_advances BEFORE UPDATE ON audit_head
WHEN NEW.id <> OLD.id OR NEW.number <> OLD.number + 1
    OR NOT EXISTS (SELECT 1 FROM audit WHERE number = NEW.number AND hash = NEW.hash) BEGIN
    SELECT RAISE(ABORT, 'audit_head goes to the next row and nowhere else');
END;

CREATE TRIGGER audit_head_stays BEFORE DELETE ON audit_head BEGIN
    SELECT RAISE(ABORT, 'audit_head is never deleted');
END;

CREATE TRIGGER audit_head_is_one BEFORE INSERT ON audit_head BEGIN
    SELECT RAISE(ABORT, 'audit_head has one row');
END;
