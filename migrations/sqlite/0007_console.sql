-- Who is logged in to the console. Same table, columns and index as ../postgres.

-- `id` is the SHA-256 of the token in the browser's cookie: who reads this table cannot log in. `kind` says what was shown. A key is
-- named by `credential`, and `fingerprint` tells it from another key of that name; its roles are looked up at each request. A token
-- is not kept: `credential` is its user, `roles` are those it gave (JSON), and `fingerprint` says whose tokens counted then.
-- `user_id` is who acts. After `expires_at` it is over whatever happens; `seen_at` is when it was used last, to the minute.
CREATE TABLE console_session (
    id TEXT NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL,
    kind TEXT NOT NULL,
    credential TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    roles TEXT,
    user_id TEXT,
    created_at BIGINT NOT NULL,
    seen_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    CONSTRAINT session_kind CHECK (kind = 'key' OR kind = 'token'),
    CONSTRAINT session_roles CHECK ((kind = 'token') = (roles IS NOT NULL)),
    CONSTRAINT session_acts CHECK (kind = 'key' OR user_id IS NOT NULL)
);

CREATE INDEX console_session_expiring ON console_session (expires_at);
