-- Which runs are given up, and whose turn it is. Same columns and indexes as ../postgres.

-- Processes in a row that took the run up and did not return it: by an end, a wait for an approval, or a hand-over. The one that works on
-- it now is counted.
ALTER TABLE agent_run ADD COLUMN takes BIGINT NOT NULL DEFAULT 0;
UPDATE agent_run SET takes = 1 WHERE parent_run_id IS NULL AND status = 'running';

-- Outermost runs that wait for a process or have one, in the order in which tenants and users take turns.
CREATE INDEX agent_run_in_turn ON agent_run (tenant, user_id, created_at, id)
    WHERE parent_run_id IS NULL AND (status = 'queued' OR status = 'running');
-- Was read in the order of time, whoever had queued.
DROP INDEX agent_run_queued;
