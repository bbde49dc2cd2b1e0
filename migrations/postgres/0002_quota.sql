-- What each user may still ask for, counted by all replicas together. Same table and columns as ../sqlite.

-- A row for each user whose bucket of tokens is not whole: it will be at `full_at` (microseconds since the epoch, by this
-- database's clock). `leased` is how many tokens the latest lease took, for its RETURNING. Not logged: a crash of the
-- server forgets who asked in the last minute, and in return a lease waits for no disk. Half of each page is left free,
-- so that an update stays in its page and touches no index.
CREATE UNLOGGED TABLE quota_bucket (
    tenant TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C" NOT NULL,
    leased BIGINT NOT NULL,
    full_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, user_id)
) WITH (fillfactor = 50);
