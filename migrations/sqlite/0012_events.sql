-- One event log for each outermost run. Same columns and indexes as ../postgres.

-- `position`: the place of an entry among those of its outermost run and of all runs that it called, in the order in which they were
-- committed.
ALTER TABLE agent_run_entry RENAME TO agent_run_entry_before;
CREATE TABLE agent_run_entry (
    run_id TEXT NOT NULL,
    number BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    elapsed_us BIGINT NOT NULL,
    body TEXT NOT NULL,
    root_id TEXT NOT NULL,
    position BIGINT NOT NULL,
    PRIMARY KEY (run_id, number),
    CONSTRAINT entry_number CHECK (number >= 1),
    CONSTRAINT entry_position CHECK (position >= 1)
);

-- Entries of before: by their times. The clocks of two processes may differ, but the entries of a run keep their order.
WITH placed AS (
    SELECT entry.run_id, entry.number, entry.created_at, entry.elapsed_us, entry.body, COALESCE(run.root_id, entry.run_id) AS root_id,
        MAX(entry.created_at) OVER (PARTITION BY entry.run_id ORDER BY entry.number) AS at
    FROM agent_run_entry_before entry LEFT JOIN agent_run run ON run.id = entry.run_id
)
INSERT INTO agent_run_entry (run_id, number, created_at, elapsed_us, body, root_id, position)
SELECT run_id, number, created_at, elapsed_us, body, root_id, ROW_NUMBER() OVER (PARTITION BY root_id ORDER BY at, run_id, number)
FROM placed;
DROP TABLE agent_run_entry_before;
CREATE UNIQUE INDEX agent_run_entry_position ON agent_run_entry (root_id, position);
