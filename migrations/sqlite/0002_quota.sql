-- What each user may still ask for, counted by all replicas together. Same table and columns as ../postgres.

-- Always empty here: on SQLite a process counts by itself.
CREATE TABLE quota_bucket (
    tenant TEXT NOT NULL,
    user_id TEXT NOT NULL,
    leased BIGINT NOT NULL,
    full_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, user_id)
);
