-- Decisions, their tool calls, idempotency claims, and the processes that write them.
-- Times are microseconds since the epoch (UTC); ids are UUIDv7 as text; JSON is text.
-- Same tables, columns and views as ../sqlite; only the dialect differs. Text compares by its bytes (COLLATE "C"),
-- as in SQLite, so that order, prefixes and pages are the same on both.

-- A running process. Open rows of an owner without a living lease are finished by recovery.
CREATE TABLE instance (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    started_at BIGINT NOT NULL,
    lease_until BIGINT NOT NULL
);

-- One row for each request that parsed. `open` between commit 1 (before the first effect) and commit 2.
CREATE TABLE decision_log (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    tenant TEXT COLLATE "C" NOT NULL,
    surface TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C" NOT NULL,
    conversation_id TEXT COLLATE "C" NOT NULL,
    message TEXT COLLATE "C",
    definition_hash TEXT COLLATE "C" NOT NULL,
    request_id TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    owner TEXT COLLATE "C" NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    recovered BOOLEAN NOT NULL DEFAULT FALSE,
    decision_type TEXT COLLATE "C",
    outcome_category TEXT COLLATE "C",
    intent TEXT COLLATE "C",
    response TEXT COLLATE "C",
    model TEXT COLLATE "C",
    iterations BIGINT,
    input_tokens BIGINT,
    output_tokens BIGINT,
    thought_tokens BIGINT,
    cached_tokens BIGINT,
    duration_us BIGINT,
    error_detail TEXT COLLATE "C",
    CONSTRAINT decision_status CHECK (status = 'open' OR status = 'closed'),
    CONSTRAINT decision_type_known CHECK (
        decision_type = 'REFUSE' OR decision_type = 'REQUEST_CLARIFICATION'
        OR decision_type = 'INVOKE_TOOL' OR decision_type = 'RESPOND_ONLY'),
    -- An open row claims no outcome; a closed one has it whole.
    CONSTRAINT decision_open_has_no_outcome CHECK (
        status = 'closed' OR (decision_type IS NULL AND outcome_category IS NULL AND recovered = FALSE)),
    CONSTRAINT decision_closed_has_outcome CHECK (
        status = 'open' OR (decision_type IS NOT NULL AND outcome_category IS NOT NULL AND intent IS NOT NULL)),
    -- What recovery closed is never shown as done; only it knows no duration.
    CONSTRAINT decision_recovered_is_error CHECK (recovered = FALSE OR outcome_category = 'ERROR:INTERNAL'),
    CONSTRAINT decision_duration CHECK (
        status = 'open' OR recovered OR (duration_us IS NOT NULL AND duration_us >= 0))
);

CREATE INDEX decision_by_time ON decision_log (tenant, created_at, id);
CREATE INDEX decision_by_user ON decision_log (tenant, user_id, created_at, id);
CREATE INDEX decision_by_conversation ON decision_log (tenant, conversation_id, created_at, id);
CREATE INDEX decision_by_outcome ON decision_log (tenant, outcome_category, created_at, id);
CREATE INDEX decision_by_type ON decision_log (tenant, decision_type, created_at, id);
-- Holds the few rows that are open now: recovery and `status = "open"` read nothing else.
CREATE INDEX decision_open ON decision_log (tenant, created_at, id, owner) WHERE status = 'open';

-- One row for each call the model proposed. No foreign key: the writer puts a decision and its calls into one
-- transaction, and an intent takes its user from the decision row, so it cannot exist without one.
CREATE TABLE tool_invocation_log (
    decision_id TEXT COLLATE "C" NOT NULL,
    sequence BIGINT NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C" NOT NULL,
    tool TEXT COLLATE "C" NOT NULL,
    server TEXT COLLATE "C",
    tool_digest TEXT COLLATE "C",
    side_effect BOOLEAN NOT NULL,
    arguments TEXT COLLATE "C",
    idempotency_key TEXT COLLATE "C",
    status TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    started_at BIGINT,
    duration_us BIGINT,
    result TEXT COLLATE "C",
    error_code TEXT COLLATE "C",
    error_message TEXT COLLATE "C",
    PRIMARY KEY (decision_id, sequence),
    CONSTRAINT tool_status CHECK (
        status = 'started' OR status = 'completed' OR status = 'failed' OR status = 'in_doubt' OR status = 'not_sent'),
    CONSTRAINT tool_sent_has_start CHECK ((status = 'not_sent') = (started_at IS NULL)),
    CONSTRAINT tool_failure_has_code CHECK (
        (status = 'started' OR status = 'completed') = (error_code IS NULL)),
    CONSTRAINT tool_result_only_when_completed CHECK (result IS NULL OR status = 'completed'),
    CONSTRAINT tool_duration CHECK (duration_us IS NULL OR duration_us >= 0)
);

CREATE INDEX tool_by_time ON tool_invocation_log (tenant, created_at, id);
CREATE INDEX tool_by_tool ON tool_invocation_log (tenant, tool, created_at, id);
CREATE INDEX tool_by_user ON tool_invocation_log (tenant, user_id, created_at, id);
-- What did not complete is rare and asked for often.
CREATE INDEX tool_unsuccessful ON tool_invocation_log (tenant, created_at, id) WHERE status <> 'completed';
CREATE INDEX tool_started ON tool_invocation_log (decision_id) WHERE status = 'started';

-- Claims of `Idempotency-Key`. Without an answer while its decision is open.
CREATE TABLE idempotency_key (
    scope TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    fingerprint TEXT COLLATE "C" NOT NULL,
    decision_id TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    answer_status BIGINT,
    answer_body TEXT COLLATE "C",
    CONSTRAINT answer_whole CHECK ((answer_status IS NULL) = (answer_body IS NULL))
);

CREATE INDEX idempotency_key_by_expiry ON idempotency_key (expires_at);

-- The analysts' tables: these names and columns stay when the tables above change.
CREATE VIEW v_decisions AS
SELECT
    id AS decision_id,
    tenant,
    surface,
    user_id,
    conversation_id,
    status,
    recovered,
    decision_type,
    outcome_category,
    intent,
    message,
    response,
    model,
    iterations,
    input_tokens,
    output_tokens,
    thought_tokens,
    cached_tokens,
    duration_us / 1000 AS duration_ms,
    to_char(to_timestamp(created_at / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS')
        || '.' || lpad((created_at % 1000000)::text, 6, '0') || 'Z' AS created_at,
    definition_hash,
    request_id,
    error_detail
FROM decision_log;

CREATE VIEW v_tool_invocations AS
SELECT
    id AS tool_invocation_id,
    decision_id,
    sequence,
    tenant,
    user_id,
    tool,
    server,
    tool_digest,
    side_effect,
    status,
    status = 'completed' AS success,
    arguments AS parameters,
    result,
    error_code,
    error_message,
    duration_us / 1000 AS duration_ms,
    to_char(to_timestamp(created_at / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS')
        || '.' || lpad((created_at % 1000000)::text, 6, '0') || 'Z' AS created_at,
    CASE WHEN started_at IS NOT NULL THEN
        to_char(to_timestamp(started_at / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS')
        || '.' || lpad((started_at % 1000000)::text, 6, '0') || 'Z'
    END AS started_at
FROM tool_invocation_log;
