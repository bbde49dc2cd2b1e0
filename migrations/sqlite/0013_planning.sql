-- Planning sessions and the versions of their plans. Same tables, columns and indexes as ../postgres.

-- The session that a run works for; only runs that no run called have one.
ALTER TABLE agent_run ADD COLUMN session_id TEXT;
CREATE INDEX agent_run_by_session ON agent_run (session_id) WHERE session_id IS NOT NULL;

-- A goal, and the plan that leads there. `plan` is the current version: its tasks as JSON; `last_task` is the number of the last task id
-- that was given, and `notes` what the version's author says about it. `run_id` names the run that plans, or planned last.
-- `refinement_code`: why the last refinement made no new version.
CREATE TABLE planning_session (
    id TEXT NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL,
    user_id TEXT NOT NULL,
    status TEXT NOT NULL,
    status_code TEXT,
    status_detail TEXT,
    prompt TEXT NOT NULL,
    repo_url TEXT NOT NULL,
    deadline BIGINT NOT NULL,
    version BIGINT NOT NULL DEFAULT 0,
    plan TEXT,
    last_task BIGINT NOT NULL DEFAULT 0,
    notes TEXT,
    run_id TEXT NOT NULL,
    refinement_code TEXT,
    refinement_detail TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    completed_at BIGINT,
    CONSTRAINT session_status CHECK (
        status = 'PLANNING' OR status = 'AWAITING_CONFIRMATION' OR status = 'EXECUTING' OR status = 'COMPLETED'
        OR status = 'FAILED' OR status = 'DEADLINE_EXCEEDED' OR status = 'CANCELLED'),
    -- What has ended says since when, and only that.
    CONSTRAINT session_over_has_end CHECK (
        (status = 'PLANNING' OR status = 'AWAITING_CONFIRMATION' OR status = 'EXECUTING') = (completed_at IS NULL)),
    -- What ended without reaching its goal says why, and only that.
    CONSTRAINT session_end_has_reason CHECK (
        (status = 'FAILED' OR status = 'DEADLINE_EXCEEDED' OR status = 'CANCELLED') = (status_code IS NOT NULL)
        AND (status_code IS NULL) = (status_detail IS NULL)),
    CONSTRAINT session_version CHECK (version >= 0 AND last_task >= 0),
    CONSTRAINT session_version_has_plan CHECK (
        (version > 0) = (plan IS NOT NULL) AND (plan IS NULL) = (notes IS NULL)),
    -- Without a plan nothing can be confirmed, and nothing can be worked through.
    CONSTRAINT session_confirms_a_plan CHECK (
        version > 0 OR (status <> 'AWAITING_CONFIRMATION' AND status <> 'EXECUTING' AND status <> 'COMPLETED')),
    CONSTRAINT session_refinement CHECK (
        (refinement_code IS NULL) = (refinement_detail IS NULL) AND (refinement_code IS NULL OR version > 0))
);

CREATE INDEX planning_session_by_time ON planning_session (tenant, created_at, id);
CREATE INDEX planning_session_by_user ON planning_session (tenant, user_id, created_at, id);
CREATE INDEX planning_session_by_status ON planning_session (tenant, status, created_at, id);
-- The few that have not ended: the sweep reads nothing else, and neither does the count of a user's.
CREATE INDEX planning_session_due ON planning_session (deadline, id) WHERE completed_at IS NULL;
CREATE INDEX planning_session_open ON planning_session (tenant, user_id) WHERE completed_at IS NULL;
CREATE INDEX planning_session_at_work ON planning_session (run_id, id) WHERE status = 'PLANNING';
-- Those that have ended, for retention.
CREATE INDEX planning_session_over ON planning_session (completed_at, id) WHERE completed_at IS NOT NULL;

-- Every version of every plan, whole, with who asked for it, how it came about and why. No row is ever changed. `hash` is the SHA-256 of
-- the plan; without `run_id` a person edited it.
CREATE TABLE planning_change (
    session_id TEXT NOT NULL,
    version BIGINT NOT NULL,
    at BIGINT NOT NULL,
    by_name TEXT NOT NULL,
    kind TEXT NOT NULL,
    why TEXT NOT NULL,
    changes TEXT NOT NULL,
    hash TEXT NOT NULL,
    run_id TEXT,
    plan TEXT NOT NULL,
    last_task BIGINT NOT NULL,
    PRIMARY KEY (session_id, version),
    CONSTRAINT change_version CHECK (version >= 1 AND last_task >= 0),
    CONSTRAINT change_kind CHECK (kind = 'proposed' OR kind = 'refined' OR kind = 'edited' OR kind = 'changed'),
    CONSTRAINT change_has_run CHECK ((kind = 'edited') = (run_id IS NULL)),
    CONSTRAINT change_proposal_is_first CHECK ((kind = 'proposed') = (version = 1))
);
