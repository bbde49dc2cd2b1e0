-- Runs of agents with their journals, and definitions that came by the API. Same tables, columns and indexes as ../sqlite.

-- One row for each run. The id is that of its decision, which stands in decision_log. Its holder works on it until
-- `lease_until` (this database's clock) at least; the fence counts how often it was taken up, and `lease_id` names the
-- last time. In a queued run `lease_until` says since when it waits. A run that another one called (`parent_run_id`)
-- has no lease: that of the outermost run (`root_id`) covers it.
CREATE TABLE agent_run (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    root_id TEXT COLLATE "C" NOT NULL,
    parent_run_id TEXT COLLATE "C",
    parent_action_id TEXT COLLATE "C",
    tenant TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C" NOT NULL,
    project_id TEXT COLLATE "C" NOT NULL,
    agent_id TEXT COLLATE "C" NOT NULL,
    version BIGINT,
    definition_hash TEXT COLLATE "C" NOT NULL,
    snapshot_hash TEXT COLLATE "C" NOT NULL,
    input TEXT COLLATE "C" NOT NULL,
    settings TEXT COLLATE "C" NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    holder TEXT COLLATE "C",
    lease_id TEXT COLLATE "C",
    lease_until BIGINT,
    fence BIGINT NOT NULL,
    cancel_requested BOOLEAN NOT NULL DEFAULT FALSE,
    created_at BIGINT NOT NULL,
    started_at BIGINT,
    completed_at BIGINT,
    resumed_from TEXT COLLATE "C",
    resumed_by TEXT COLLATE "C",
    summary TEXT COLLATE "C",
    output TEXT COLLATE "C",
    error_message TEXT COLLATE "C",
    stop_reason TEXT COLLATE "C",
    recovered_from TEXT COLLATE "C",
    in_doubt TEXT COLLATE "C",
    steps BIGINT NOT NULL DEFAULT 0,
    input_tokens BIGINT NOT NULL DEFAULT 0,
    output_tokens BIGINT NOT NULL DEFAULT 0,
    thought_tokens BIGINT NOT NULL DEFAULT 0,
    cached_tokens BIGINT NOT NULL DEFAULT 0,
    CONSTRAINT run_status CHECK (
        status = 'queued' OR status = 'running' OR status = 'awaiting_confirmation' OR status = 'completed'
        OR status = 'failed' OR status = 'cancelled' OR status = 'paused'),
    -- What is over says since when, and only that.
    CONSTRAINT run_over_has_end CHECK (
        (status = 'queued' OR status = 'running' OR status = 'awaiting_confirmation') = (completed_at IS NULL)),
    -- Only what never began may end without a start: cancelled or given up while it was queued.
    CONSTRAINT run_has_start CHECK (
        status = 'queued' OR status = 'cancelled' OR status = 'failed' OR started_at IS NOT NULL),
    -- What was cut short, or went wrong, is never shown as completed.
    CONSTRAINT run_completed_is_whole CHECK (
        status <> 'completed' OR (error_message IS NULL AND stop_reason IS NULL AND in_doubt IS NULL)),
    CONSTRAINT run_called_has_call CHECK ((parent_run_id IS NULL) = (parent_action_id IS NULL)),
    CONSTRAINT run_root CHECK ((parent_run_id IS NULL) = (root_id = id)),
    -- Somebody can always be told to go on with it, or it is somebody's.
    CONSTRAINT run_lease CHECK (
        (lease_until IS NOT NULL) = (parent_run_id IS NULL AND (status = 'queued' OR status = 'running'))),
    CONSTRAINT run_queued_has_no_holder CHECK (status <> 'queued' OR (holder IS NULL AND lease_id IS NULL)),
    CONSTRAINT run_resumed_was_paused CHECK (resumed_by IS NULL OR status = 'paused'),
    CONSTRAINT run_fence CHECK (fence >= 0)
);

CREATE INDEX agent_run_by_time ON agent_run (tenant, project_id, created_at, id);
CREATE INDEX agent_run_by_agent ON agent_run (tenant, project_id, agent_id, created_at, id);
CREATE INDEX agent_run_by_status ON agent_run (tenant, project_id, status, created_at, id);
CREATE INDEX agent_run_by_user ON agent_run (tenant, project_id, user_id, created_at, id);
CREATE INDEX agent_run_by_parent ON agent_run (tenant, project_id, parent_run_id, created_at, id);
CREATE INDEX agent_run_by_root ON agent_run (root_id);
CREATE INDEX agent_run_by_snapshot ON agent_run (snapshot_hash);
-- A call makes one run, however often it is tried.
CREATE UNIQUE INDEX agent_run_by_call ON agent_run (parent_run_id, parent_action_id) WHERE parent_run_id IS NOT NULL;
-- The few that somebody works on, or should: who looks for what the dead left reads nothing else.
CREATE INDEX agent_run_running ON agent_run (lease_until, id) WHERE status = 'running' AND lease_until IS NOT NULL;
CREATE INDEX agent_run_queued ON agent_run (lease_until, id) WHERE status = 'queued' AND lease_until IS NOT NULL;
-- Outermost runs that are over, for retention.
CREATE INDEX agent_run_over ON agent_run (completed_at, id) WHERE parent_run_id IS NULL AND completed_at IS NOT NULL;

-- The journal: what happened in a run, in order. Working state, read by the engine alone.
CREATE TABLE agent_run_entry (
    run_id TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    elapsed_us BIGINT NOT NULL,
    body TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (run_id, number),
    CONSTRAINT entry_number CHECK (number >= 1)
);

-- The definitions that runs run under, by the hash of their text; the same text is kept once.
CREATE TABLE agent_snapshot (
    hash TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    text TEXT COLLATE "C" NOT NULL
);

-- Versions of agents that came by the API. None is ever changed; the highest is the current one. `id` names the request that
-- made it, so that one whose commit went unheard is known again.
CREATE TABLE agent_definition (
    tenant TEXT COLLATE "C" NOT NULL,
    project_id TEXT COLLATE "C" NOT NULL,
    agent_id TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    hash TEXT COLLATE "C" NOT NULL,
    definition TEXT COLLATE "C" NOT NULL,
    author TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, project_id, agent_id, version),
    CONSTRAINT definition_version CHECK (version >= 1)
);
