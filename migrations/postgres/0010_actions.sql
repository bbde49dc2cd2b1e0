-- A thread remembers the actions that were executed, and the analysts' view of actions has every call of a run, also one that was
-- denied or malformed, under the names of the API. Same columns and views as ../sqlite.

ALTER TABLE thread_message DROP CONSTRAINT message_role;
ALTER TABLE thread_message DROP CONSTRAINT message_of_action;
ALTER TABLE thread_message ADD CONSTRAINT message_role CHECK (
        role = 'user' OR role = 'assistant' OR role = 'approval_request' OR role = 'approval' OR role = 'settlement'
        OR role = 'action');
ALTER TABLE thread_message ADD CONSTRAINT message_of_action CHECK ((role <> 'user' AND role <> 'assistant') = (action_id IS NOT NULL));

DROP VIEW v_actions;
CREATE VIEW v_actions AS
SELECT
    action_id,
    approval_id,
    run_id,
    outermost_run_id,
    thread_id,
    tenant,
    user_id,
    project_id,
    agent_id,
    sequence,
    server,
    tool_name,
    tool_digest,
    side_effect,
    model_name,
    input_hash,
    policy_decision,
    execution_status,
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
FROM (
    -- With side effects, or with an approval. What was called with, and what people were shown, is working state and not part of it.
    SELECT
        a.id AS action_id, a.approval_id, a.run_id, a.root_id AS outermost_run_id, a.thread_id, a.tenant, a.user_id, a.project_id,
        a.agent_id, a.sequence, a.server, a.tool AS tool_name, a.tool_digest, a.side_effect, a.model AS model_name, t.input_hash,
        a.policy AS policy_decision, a.status AS execution_status, a.resolution, a.resolved_by, a.grant_id, a.error_code,
        a.error_message, a.settled_by, a.created_at, a.expires_at, a.resolved_at, a.started_at, a.completed_at, a.settled_at
    FROM agent_action a
    LEFT JOIN tool_invocation_log t ON t.decision_id = a.run_id AND t.sequence = a.sequence
    UNION ALL
    -- All other calls of runs: those that only read, and those that were denied or malformed.
    SELECT
        t.id, NULL::text, t.decision_id, COALESCE(r.root_id, t.decision_id), root.thread_id, t.tenant, t.user_id, r.project_id, r.agent_id,
        t.sequence, t.server, t.tool, t.tool_digest, t.side_effect, d.model, t.input_hash, t.policy,
        CASE t.status WHEN 'started' THEN 'executing' WHEN 'not_sent' THEN 'failed' ELSE t.status END, NULL::text, NULL::text, NULL::text,
        t.error_code, t.error_message, NULL::text, t.created_at, NULL::bigint, NULL::bigint, t.started_at, t.started_at + t.duration_us, NULL::bigint
    FROM tool_invocation_log t
    JOIN decision_log d ON d.id = t.decision_id AND d.surface <> 'chat'
    LEFT JOIN agent_run r ON r.id = t.decision_id
    LEFT JOIN agent_run root ON root.id = r.root_id
    WHERE NOT EXISTS (SELECT 1 FROM agent_action a WHERE a.run_id = t.decision_id AND a.sequence = t.sequence)
) AS actions;
