-- Threads, and what runs do that has consequences: actions, a person's word on them, and standing leave. Same tables, columns
-- and indexes as ../sqlite.

-- The thread that a run belongs to; only runs that nobody called have one.
ALTER TABLE agent_run ADD COLUMN thread_id TEXT COLLATE "C";

-- A thread has one run at a time: of two that are taken up at once, one finds the other.
CREATE UNIQUE INDEX agent_run_of_thread ON agent_run (thread_id)
WHERE thread_id IS NOT NULL AND (status = 'running' OR status = 'awaiting_confirmation');
CREATE INDEX agent_run_by_thread ON agent_run (thread_id, created_at, id) WHERE thread_id IS NOT NULL;
-- Those of a thread that are going or wait their turn: of a long one every message looks for them.
CREATE INDEX agent_run_open_in_thread ON agent_run (thread_id, created_at, id)
WHERE thread_id IS NOT NULL AND (status = 'queued' OR status = 'running' OR status = 'awaiting_confirmation');

-- A conversation of one user. `messages` is the number of its last message.
CREATE TABLE thread (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    tenant TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C" NOT NULL,
    agent_id TEXT COLLATE "C" NOT NULL,
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
    thread_id TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    run_id TEXT COLLATE "C" NOT NULL,
    action_id TEXT COLLATE "C",
    role TEXT COLLATE "C" NOT NULL,
    body TEXT COLLATE "C" NOT NULL,
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
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    approval_id TEXT COLLATE "C",
    run_id TEXT COLLATE "C" NOT NULL,
    root_id TEXT COLLATE "C" NOT NULL,
    thread_id TEXT COLLATE "C",
    tenant TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C" NOT NULL,
    project_id TEXT COLLATE "C" NOT NULL,
    agent_id TEXT COLLATE "C" NOT NULL,
    sequence BIGINT NOT NULL,
    server TEXT COLLATE "C" NOT NULL,
    tool TEXT COLLATE "C" NOT NULL,
    tool_digest TEXT COLLATE "C" NOT NULL,
    side_effect BOOLEAN NOT NULL,
    arguments TEXT COLLATE "C" NOT NULL,
    input_hash TEXT COLLATE "C" NOT NULL,
    model TEXT COLLATE "C" NOT NULL,
    policy TEXT COLLATE "C" NOT NULL,
    details TEXT COLLATE "C",
    status TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    resolution TEXT COLLATE "C",
    resolved_by TEXT COLLATE "C",
    resolved_at BIGINT,
    reason TEXT COLLATE "C",
    grant_id TEXT COLLATE "C",
    started_at BIGINT,
    completed_at BIGINT,
    error_code TEXT COLLATE "C",
    error_message TEXT COLLATE "C",
    settled_by TEXT COLLATE "C",
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
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    tenant TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C" NOT NULL,
    server TEXT COLLATE "C" NOT NULL,
    tool TEXT COLLATE "C" NOT NULL,
    recipients TEXT COLLATE "C" NOT NULL,
    tool_digest TEXT COLLATE "C" NOT NULL,
    action_id TEXT COLLATE "C" NOT NULL,
    created_by TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    uses BIGINT NOT NULL DEFAULT 0,
    last_used_at BIGINT,
    revoked_by TEXT COLLATE "C",
    revoked_at BIGINT,
    CONSTRAINT grant_revoked CHECK ((revoked_by IS NULL) = (revoked_at IS NULL))
);

-- Recipients may be longer than an entry of an index.
CREATE UNIQUE INDEX approval_grant_live ON approval_grant (tenant, user_id, server, tool, md5(recipients), tool_digest)
WHERE revoked_at IS NULL;
CREATE INDEX approval_grant_by_user ON approval_grant (tenant, user_id, created_at, id);
