-- Whose Google account is connected. The refresh token is sealed; generation changes with each connection.
CREATE TABLE google_connections (
    user_id       TEXT   NOT NULL PRIMARY KEY,
    generation    TEXT   NOT NULL,
    refresh_token TEXT   NOT NULL,
    scopes        TEXT   NOT NULL,
    account       TEXT,
    connected_at  BIGINT NOT NULL,
    refused_at    BIGINT
);

-- Authorizations that were begun. The state is kept as a digest, the verifier sealed.
CREATE TABLE google_authorizations (
    state        TEXT   NOT NULL PRIMARY KEY,
    user_id      TEXT   NOT NULL,
    verifier     TEXT   NOT NULL,
    redirect_uri TEXT   NOT NULL,
    expires_at   BIGINT NOT NULL
);

CREATE INDEX google_authorizations_by_user ON google_authorizations (user_id);

-- Calls under an idempotency key. Without an answer it is not known what the last attempt did, and the key is kept until it is.
CREATE TABLE google_calls (
    user_id      TEXT   NOT NULL,
    tool         TEXT   NOT NULL,
    idem_key     TEXT   NOT NULL,
    arguments    TEXT   NOT NULL,
    mailbox      TEXT   NOT NULL,
    answer       TEXT,
    attempted_at BIGINT NOT NULL,
    answered_at  BIGINT,
    PRIMARY KEY (user_id, tool, idem_key)
);

CREATE INDEX google_calls_by_age ON google_calls (answered_at);
