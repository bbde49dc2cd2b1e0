CREATE TABLE tasks (
    id           TEXT    NOT NULL PRIMARY KEY,
    user_id      TEXT    NOT NULL,
    description  TEXT    NOT NULL,
    title_key    TEXT    NOT NULL,
    due          TEXT,
    due_at       BIGINT,
    priority     TEXT    NOT NULL CHECK (priority IN ('low', 'normal', 'high')),
    notes        TEXT,
    notes_key    TEXT    NOT NULL,
    done         BOOLEAN NOT NULL,
    created_at   BIGINT  NOT NULL,
    updated_at   BIGINT  NOT NULL,
    completed_at BIGINT,
    CHECK ((due IS NULL) = (due_at IS NULL)),
    CHECK (done = (completed_at IS NOT NULL))
);

CREATE INDEX tasks_by_user ON tasks (user_id, done, due_at);

CREATE TABLE tasks_idempotency (
    user_id    TEXT    NOT NULL,
    tool       TEXT    NOT NULL,
    idem_key   TEXT    NOT NULL,
    arguments  TEXT    NOT NULL,
    is_error   BOOLEAN NOT NULL,
    answer     TEXT    NOT NULL,
    created_at BIGINT  NOT NULL,
    PRIMARY KEY (user_id, tool, idem_key)
);

CREATE INDEX tasks_idempotency_by_age ON tasks_idempotency (created_at);
