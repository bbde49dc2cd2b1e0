-- One event log for each outermost run. Same columns and indexes as ../sqlite.

-- `position`: the place of an entry among those of its outermost run and of all runs that it called, in the order in which they were
-- committed.
ALTER TABLE agent_run_entry ADD COLUMN root_id TEXT COLLATE "C";
ALTER TABLE agent_run_entry ADD COLUMN position BIGINT;

-- Entries of before: by their times. The clocks of two processes may differ, but the entries of a run keep their order.
WITH placed AS (
    SELECT entry.run_id, entry.number, COALESCE(run.root_id, entry.run_id) AS root_id,
        MAX(entry.created_at) OVER (PARTITION BY entry.run_id ORDER BY entry.number) AS at
    FROM agent_run_entry entry LEFT JOIN agent_run run ON run.id = entry.run_id
), numbered AS (
    SELECT run_id, number, root_id, ROW_NUMBER() OVER (PARTITION BY root_id ORDER BY at, run_id, number) AS position FROM placed
)
UPDATE agent_run_entry SET root_id = numbered.root_id, position = numbered.position
FROM numbered WHERE numbered.run_id = agent_run_entry.run_id AND numbered.number = agent_run_entry.number;

ALTER TABLE agent_run_entry ALTER COLUMN root_id SET NOT NULL;
ALTER TABLE agent_run_entry ALTER COLUMN position SET NOT NULL;
ALTER TABLE agent_run_entry ADD CONSTRAINT entry_position CHECK (position >= 1);
CREATE UNIQUE INDEX agent_run_entry_position ON agent_run_entry (root_id, position);
