-- The work on a confirmed plan. Same columns and indexes as ../postgres.

-- When the plan was confirmed, and what the cleanup at the end of the work did, as JSON.
ALTER TABLE planning_session ADD COLUMN started_at BIGINT
    CONSTRAINT session_work_has_start CHECK (started_at IS NOT NULL OR (status <> 'EXECUTING' AND status <> 'COMPLETED'));
ALTER TABLE planning_session ADD COLUMN cleanup TEXT
    CONSTRAINT session_cleanup_after_work CHECK (cleanup IS NULL OR started_at IS NOT NULL);

-- `run_id` names the run that plans or works through the plan, or did so last. The sweep looks for those that ended without moving
-- their sessions on.
DROP INDEX planning_session_at_work;
CREATE INDEX planning_session_at_work ON planning_session (run_id, id) WHERE status = 'PLANNING' OR status = 'EXECUTING';

-- The in-doubt actions that a suspended run waits for until a person settles them, a JSON list of their ids; NULL if it waits for an
-- approval. The sweep wakes such runs once the deadline of their session has passed.
ALTER TABLE agent_run ADD COLUMN waits_for TEXT;
CREATE INDEX agent_run_by_settlement ON agent_run (session_id, id) WHERE status = 'awaiting_confirmation' AND waits_for IS NOT NULL;
