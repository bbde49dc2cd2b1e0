-- What the gate said of each call, and the analysts' views of actions and of the audit. Same tables, columns and views as
-- ../sqlite.

-- Hex SHA-256 of the arguments, a keyed hash where content is hashed; `allow`, `require_approval` or `deny`, and what decided it. NULL
-- in rows from before, and `policy` where a call was over before it was judged.
ALTER TABLE tool_invocation_log ADD COLUMN input_hash TEXT;
ALTER TABLE tool_invocation_log ADD COLUMN policy TEXT
    CONSTRAINT tool_policy CHECK (policy = 'allow' OR policy = 'require_approval' OR policy = 'deny');
ALTER TABLE tool_invocation_log ADD COLUMN decided_by TEXT;

-- Replaced, not dropped: others may look through it, and have rights on it.
CREATE OR REPLACE VIEW v_tool_invocations AS
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
    END AS started_at,
    input_hash,
    policy,
    decided_by
FROM tool_invocation_log;

-- Arguments with their hash, and what people were shown and said, are working state and not part of it.
CREATE VIEW v_actions AS
SELECT
    id AS action_id,
    approval_id,
    run_id,
    root_id AS outermost_run_id,
    thread_id,
    tenant,
    user_id,
    project_id,
    agent_id,
    sequence,
    server,
    tool,
    tool_digest,
    side_effect,
    model,
    policy,
    status,
    resolution,
    resolved_by,
    grant_id,
    error_code,
    error_message,
    settled_by,
    to_char(to_timestamp(created_at / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS')
        || '.' || lpad((created_at % 1000000)::text, 6, '0') || 'Z' AS created_at,
    CASE WHEN expires_at IS NOT NULL THEN
        to_char(to_timestamp(expires_at / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS')
        || '.' || lpad((expires_at % 1000000)::text, 6, '0') || 'Z'
    END AS expires_at,
    CASE WHEN resolved_at IS NOT NULL THEN
        to_char(to_timestamp(resolved_at / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS')
        || '.' || lpad((resolved_at % 1000000)::text, 6, '0') || 'Z'
    END AS resolved_at,
    CASE WHEN started_at IS NOT NULL THEN
        to_char(to_timestamp(started_at / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS')
        || '.' || lpad((started_at % 1000000)::text, 6, '0') || 'Z'
    END AS started_at,
    CASE WHEN completed_at IS NOT NULL THEN
        to_char(to_timestamp(completed_at / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS')
        || '.' || lpad((completed_at % 1000000)::text, 6, '0') || 'Z'
    END AS completed_at,
    CASE WHEN settled_at IS NOT NULL THEN
        to_char(to_timestamp(settled_at / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS')
        || '.' || lpad((settled_at % 1000000)::text, 6, '0') || 'Z'
    END AS settled_at
FROM agent_action;

CREATE VIEW v_audit AS
SELECT
    number,
    to_char(to_timestamp(at / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS')
        || '.' || lpad((at % 1000000)::text, 6, '0') || 'Z' AS at,
    kind,
    subject,
    tenant,
    actor,
    decision_id,
    action_id,
    tool,
    detail,
    key_id,
    previous_hash,
    hash
FROM audit;
