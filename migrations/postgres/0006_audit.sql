-- The audit: what was done, by whom, in an order that nobody can change unseen. Same tables, columns and rules as ../sqlite.

-- One row for each thing that happened. `subject` names what it happened to, once for each kind, so that a commit that went
-- unheard and is made again enters nothing twice. `hash` is an HMAC over all other columns with the key that `key_id` names,
-- `previous_hash` that of the row before; `format` says how the columns are put together for it.
CREATE TABLE audit (
    number BIGINT NOT NULL PRIMARY KEY,
    format BIGINT NOT NULL,
    at BIGINT NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    subject TEXT COLLATE "C" NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    actor TEXT COLLATE "C" NOT NULL,
    decision_id TEXT COLLATE "C",
    action_id TEXT COLLATE "C",
    tool TEXT COLLATE "C",
    detail TEXT COLLATE "C" NOT NULL,
    key_id TEXT COLLATE "C" NOT NULL,
    previous_hash TEXT COLLATE "C" NOT NULL,
    hash TEXT COLLATE "C" NOT NULL,
    CONSTRAINT audit_number CHECK (number >= 1)
);

CREATE UNIQUE INDEX audit_once ON audit (subject, kind);
CREATE INDEX audit_by_decision ON audit (decision_id, number);

-- The last row of it: one number and one hash, to be kept elsewhere as well. All writers wait for each other here, at the end
-- of their transactions.
CREATE TABLE audit_head (
    id BIGINT NOT NULL PRIMARY KEY,
    number BIGINT NOT NULL,
    hash TEXT COLLATE "C" NOT NULL,
    CONSTRAINT audit_one_head CHECK (id = 1)
);

INSERT INTO audit_head (id, number, hash)
VALUES (1, 0, '0000000000000000000000000000000000000000000000000000000000000000');

-- The key, where none was given. Who can read the database can then forge the chain: a given key is worth more.
CREATE TABLE audit_key (
    id BIGINT NOT NULL PRIMARY KEY,
    secret TEXT COLLATE "C" NOT NULL,
    CONSTRAINT audit_one_key CHECK (id = 1)
);

-- What comes must follow the head, and moves it; afterwards, so that what does not come moves nothing.
CREATE FUNCTION audit_follows() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM 1 FROM audit_head WHERE number = NEW.number - 1 AND hash = NEW.previous_hash FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'audit is append-only: a row must follow the head';
    END IF;
    UPDATE audit_head SET number = NEW.number, hash = NEW.hash WHERE id = 1;
    RETURN NULL;
END $$;

CREATE FUNCTION audit_refuses() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION '% is append-only: no row is changed or deleted', TG_TABLE_NAME;
END $$;

CREATE FUNCTION audit_head_advances() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    -- By a row that comes, and by nobody's own statement.
    IF NEW.id <> OLD.id OR NEW.number <> OLD.number + 1 OR pg_trigger_depth() < 2 THEN
        RAISE EXCEPTION 'audit_head goes to the next row and nowhere else';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER audit_follows AFTER INSERT ON audit FOR EACH ROW EXECUTE FUNCTION audit_follows();
CREATE TRIGGER audit_keeps BEFORE UPDATE OR DELETE ON audit FOR EACH ROW EXECUTE FUNCTION audit_refuses();
CREATE TRIGGER audit_stays BEFORE TRUNCATE ON audit FOR EACH STATEMENT EXECUTE FUNCTION audit_refuses();
CREATE TRIGGER audit_head_advances BEFORE UPDATE ON audit_head FOR EACH ROW EXECUTE FUNCTION audit_head_advances();
CREATE TRIGGER audit_head_stays BEFORE INSERT OR DELETE ON audit_head FOR EACH ROW EXECUTE FUNCTION audit_refuses();
CREATE TRIGGER audit_head_remains BEFORE TRUNCATE ON audit_head FOR EACH STATEMENT EXECUTE FUNCTION audit_refuses();
