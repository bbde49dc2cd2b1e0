-- Threads, and what runs do that has consequences: actions, a person's word on them, and standing leave. Same tables, columns
-- and indexes as ../postgres.

-- The thread that a run belongs to; only runs that nobody called have one.
ALTER TABLE agent_run ADD COLUMN thread_id TEXT;

-- A thread has one run at a time: of two that are taken up at once, one finds the other.
CREATE UNIQUE INDEX agent_run_of_thread ON agent_run (thread_id)
WHERE thread_id IS NOT NULL AND (status = 'running' OR status = 'awaiting_confirmation');
CREATE INDEX agent_run_by_thread ON agent_run (thread_id, created_at, id) WHERE thread_id IS NOT NULL;
-- Those of a thread that are going or wait their turn: of a long one every message looks for them.
CREATE INDEX agent_run_open_in_thread ON agent_run (thread_id, created_at, id)
WHERE thread_id IS NOT NULL AND (status = 'queued' OR status = 'running' OR status = 'awaiting_confirmation');

-- A conversation of one user. `messages` is the number of its last message.
CREATE TABLE thread (
    id TEXT NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL,
    user_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    messages BIGINT NOT NULL DEFAULT 0
);

CREATE INDEX thread_by_user ON thread (tenant, user_id, updated_at, id);
CREATE INDEX thread_by_activity ON thread (tenant, updated_at, id);
CREATE INDEX thread_by_time ON thread (updated_at);

-- What was said in it, by whom. Of a run there is at most one `user` and one `assistant`; of an action at most one
-- `approval_request`, one `approval` and one `settlement`.
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
        role = 'user' OR role = 'assistant' OR role = 'approval_request' OR role = 'approval' OR role = 'settlement'),
    CONSTRAINT message_of_action CHECK (
        (role = 'approval_request' OR role = 'approval' OR role = 'settlement') = (action_id IS NOT NULL))
);

CREATE UNIQUE INDEX thread_message_once ON thread_message (run_id, role, COALESCE(action_id, ''));

-- A call of a run that has consequences or needs leave. Without `approval_id` nobody was asked: `policy` says why not.
CREATE TABLE agent_action (
    id TEXT NOT NULL PRIMARY KEY,
    approval_id TEXT,
    run_id TEXT NOT NULL,
    root_id TEXT NOT NULL,
    thread_id TEXT,
    tenant TEXT NOT NULL,
    user_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    sequence BIGINT NOT NULL,
    server TEXT NOT NULL,
    tool TEXT NOT NULL,
    tool_digest TEXT NOT NULL,
    side_effect BOOLEAN NOT NULL,
    arguments TEXT NOT NULL,
    input_hash TEXT NOT NULL,
    model TEXT NOT NULL,
    policy TEXT NOT NULL,
    details TEXT,
    status TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    resolution TEXT,
    resolved_by TEXT,
    resolved_at BIGINT,
    reason TEXT,
    grant_id TEXT,
    started_at BIGINT,
    completed_at BIGINT,
    error_code TEXT,
    error_message TEXT,
    settled_by TEXT,
    settled_at BIGINT,
    CONSTRAINT action_status CHECK (
        status = 'awaiting_confirmation' OR status = 'approved' OR status = 'executing' OR status = 'completed'
        OR status = 'failed' OR status = 'in_doubt' OR status = 'rejected' OR status = 'expired'),
    CONSTRAINT action_policy CHECK (policy = 'allow' OR policy = 'require_approval'),
    -- Who needs leave is asked, and nobody else is.
    CONSTRAINT action_leave CHECK (
        (policy = 'require_approval') = (approval_id IS NOT NULL) AND (approval_id IS NULL) = (expires_at IS NULL)),
    CONSTRAINT action_asked CHECK (
        approval_id IS NOT NULL
        OR (status <> 'awaiting_confirmation' AND status <> 'approved' AND status <> 'rejected' AND status <> 'expired')),
    CONSTRAINT action_resolution CHECK (
        resolution IS NULL OR resolution = 'reject' OR resolution = 'approve_once'
        OR resolution = 'approve_and_always_allow_recipient'),
    CONSTRAINT action_resolved CHECK (
        (resolution IS NULL) = (resolved_by IS NULL) AND (resolution IS NULL) = (resolved_at IS NULL)),
    -- Nothing runs that needed leave and has none.
    CONSTRAINT action_runs_with_leave CHECK (
        approval_id IS NULL OR status = 'awaiting_confirmation' OR status = 'expired'
        OR (status = 'rejected') = (COALESCE(resolution, '') = 'reject')),
    CONSTRAINT action_answered CHECK (
        approval_id IS NULL OR status = 'awaiting_confirmation' OR status = 'expired' OR resolution IS NOT NULL),
    CONSTRAINT action_failure_has_code CHECK ((status = 'failed' OR status = 'in_doubt') = (error_code IS NOT NULL)),
    CONSTRAINT action_settled CHECK ((settled_by IS NULL) = (settled_at IS NULL))
);

CREATE UNIQUE INDEX agent_action_by_approval ON agent_action (approval_id) WHERE approval_id IS NOT NULL;
CREATE INDEX agent_action_by_run ON agent_action (run_id, sequence);
CREATE INDEX agent_action_by_root ON agent_action (root_id);
CREATE INDEX agent_action_by_status ON agent_action (tenant, status, created_at, id);
CREATE INDEX agent_action_by_user ON agent_action (tenant, user_id, created_at, id);
CREATE INDEX agent_action_expiring ON agent_action (expires_at) WHERE status = 'awaiting_confirmation';

-- Standing leave of a user: this tool, to exactly these recipients. Made by a person's resolve and by nothing else.
CREATE TABLE approval_grant (
    id TEXT NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL,
    user_id TEXT NOT NULL,
    server TEXT NOT NULL,
    tool TEXT NOT NULL,
    recipients TEXT NOT NULL,
    tool_digest TEXT NOT NULL,
    action_id TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    uses BIGINT NOT NULL DEFAULT 0,
    last_used_at BIGINT,
    revoked_by TEXT,
    revoked_at BIGINT,
    CONSTRAINT grant_revoked CHECK ((revoked_by IS NULL) = (revoked_at IS NULL))
);

CREATE UNIQUE INDEX approval_grant_live ON approval_grant (tenant, user_id, server, tool, recipients, tool_digest)
WHERE revoked_at IS NULL;
CREATE INDEX approval_grant_by_user ON approval_grant (tenant, user_id, created_at, id);
