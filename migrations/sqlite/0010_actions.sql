-- A thread remembers the actions that were executed, and the analysts' view of actions has every call of a run, also one that was
-- denied or malformed, under the names of the API. Same columns and views as ../postgres.

-- SQLite changes no constraint, so the table is made again.
ALTER TABLE thread_message RENAME TO thread_message_before;
DROP INDEX thread_message_once;
CREATE TABLE thread_message (
    thread_id TEXT NOT NULL,
    number BIGINT NOT NULL,
    run_id TEXT NOT NULL,
    action_id TEXT,
    role TEXT NOT NULL,
    body TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (thread_id, number),
    CONSTRAINT message_role CHECK (
        role = 'user' OR role = 'assistant' OR role = 'approval_request' OR role = 'approval' OR role = 'settlement'
        OR role = 'action'),
    CONSTRAINT message_of_action CHECK ((role <> 'user' AND role <> 'assistant') = (action_id IS NOT NULL))
);
INSERT INTO thread_message SELECT thread_id, number, run_id, action_id, role, body, created_at FROM thread_message_before;
DROP TABLE thread_message_before;
CREATE UNIQUE INDEX thread_message_once ON thread_message (run_id, role, COALESCE(action_id, ''));

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
    strftime('%Y-%m-%dT%H:%M:%S', created_at / 1000000, 'unixepoch') || printf('.%06dZ', created_at % 1000000) AS created_at,
    CASE WHEN expires_at IS NOT NULL THEN
        strftime('%Y-%m-%dT%H:%M:%S', expires_at / 1000000, 'unixepoch') || printf('.%06dZ', expires_at % 1000000)
    END AS expires_at,
    CASE WHEN resolved_at IS NOT NULL THEN
        strftime('%Y-%m-%dT%H:%M:%S', resolved_at / 1000000, 'unixepoch') || printf('.%06dZ', resolved_at % 1000000)
    END AS resolved_at,
    CASE WHEN started_at IS NOT NULL THEN
        strftime('%Y-%m-%dT%H:%M:%S', started_at / 1000000, 'unixepoch') || printf('.%06dZ', started_at % 1000000)
    END AS started_at,
    CASE WHEN completed_at IS NOT NULL THEN
        strftime('%Y-%m-%dT%H:%M:%S', completed_at / 1000000, 'unixepoch') || printf('.%06dZ', completed_at % 1000000)
    END AS completed_at,
    CASE WHEN settled_at IS NOT NULL THEN
        strftime('%Y-%m-%dT%H:%M:%S', settled_at / 1000000, 'unixepoch') || printf('.%06dZ', settled_at % 1000000)
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
        t.id, NULL, t.decision_id, COALESCE(r.root_id, t.decision_id), root.thread_id, t.tenant, t.user_id, r.project_id, r.agent_id,
        t.sequence, t.server, t.tool, t.tool_digest, t.side_effect, d.model, t.input_hash, t.policy,
        CASE t.status WHEN 'started' THEN 'executing' WHEN 'not_sent' THEN 'failed' ELSE t.status END, NULL, NULL, NULL,
        t.error_code, t.error_message, NULL, t.created_at, NULL, NULL, t.started_at, t.started_at + t.duration_us, NULL
    FROM tool_invocation_log t
    JOIN decision_log d ON d.id = t.decision_id AND d.surface <> 'chat'
    LEFT JOIN agent_run r ON r.id = t.decision_id
    LEFT JOIN agent_run root ON root.id = r.root_id
    WHERE NOT EXISTS (SELECT 1 FROM agent_action a WHERE a.run_id = t.decision_id AND a.sequence = t.sequence)
) AS actions;
