-- A resumed run is the same run, reopened. Same columns as ../postgres.

-- How often the run was reopened; what was before, as JSON; the request that reopened it last; the fence at that time.
ALTER TABLE agent_run ADD COLUMN attempt BIGINT NOT NULL DEFAULT 0;
ALTER TABLE agent_run ADD COLUMN attempts TEXT;
ALTER TABLE agent_run ADD COLUMN reopened_by TEXT;
ALTER TABLE agent_run ADD COLUMN reopened_fence BIGINT NOT NULL DEFAULT 0;

-- Until now a resumed run was another run (`resumed_from`, `resumed_by`), and its journal began with the resume. Its journal now begins
-- with those of the runs before it, so that it reads and continues like any other. Those runs keep theirs.
CREATE TABLE migrated_chain AS
WITH RECURSIVE chain (run_id, earlier_id, place) AS (
    SELECT id, resumed_from, CAST(1 AS BIGINT) FROM agent_run WHERE resumed_from IS NOT NULL
    UNION ALL
    SELECT chain.run_id, run.resumed_from, chain.place + 1 FROM chain
    JOIN agent_run run ON run.id = chain.earlier_id WHERE run.resumed_from IS NOT NULL
)
SELECT run_id, earlier_id, place FROM chain;

CREATE TABLE migrated_entry AS
SELECT run_id, number, created_at, elapsed_us, body FROM agent_run_entry
WHERE run_id IN (SELECT run_id FROM migrated_chain) OR run_id IN (SELECT earlier_id FROM migrated_chain);

CREATE TABLE migrated_length AS
SELECT run_id, MAX(number) AS length FROM migrated_entry GROUP BY run_id;

-- In two steps, so that no number is taken in between.
UPDATE agent_run_entry SET number = number + 1000000000 + (
    SELECT COALESCE(SUM(l.length), 0) FROM migrated_chain c JOIN migrated_length l ON l.run_id = c.earlier_id
    WHERE c.run_id = agent_run_entry.run_id)
WHERE run_id IN (SELECT run_id FROM migrated_chain);
UPDATE agent_run_entry SET number = number - 1000000000 WHERE run_id IN (SELECT run_id FROM migrated_chain);

INSERT INTO agent_run_entry (run_id, number, created_at, elapsed_us, body)
SELECT c.run_id, b.number + (
    SELECT COALESCE(SUM(l.length), 0) FROM migrated_chain d JOIN migrated_length l ON l.run_id = d.earlier_id
    WHERE d.run_id = c.run_id AND d.place > c.place), b.created_at, b.elapsed_us, b.body
FROM migrated_chain c JOIN migrated_entry b ON b.run_id = c.earlier_id;

-- One that has not begun to write is about to resume.
INSERT INTO agent_run_entry (run_id, number, created_at, elapsed_us, body)
SELECT run.id, (SELECT COALESCE(MAX(entry.number), 0) + 1 FROM agent_run_entry entry WHERE entry.run_id = run.id), run.created_at, 0,
    '{"resumed":{"from":"' || run.resumed_from || '"}}'
FROM agent_run run WHERE run.resumed_from IS NOT NULL AND run.completed_at IS NULL
AND NOT EXISTS (SELECT 1 FROM migrated_entry b WHERE b.run_id = run.id);

-- A called run that was cut short, and that no run has resumed, continues under the run that resumed its caller.
CREATE TABLE migrated_call AS
SELECT child.id, heir.id AS parent_id, heir.root_id FROM migrated_chain c
JOIN agent_run heir ON heir.id = c.run_id
JOIN agent_run child ON child.parent_run_id = c.earlier_id
WHERE (heir.completed_at IS NULL OR heir.status = 'paused') AND heir.resumed_by IS NULL
AND child.status = 'paused' AND child.resumed_by IS NULL;

CREATE TABLE migrated_root AS
WITH RECURSIVE moved (id, root_id) AS (
    SELECT id, root_id FROM migrated_call
    UNION ALL
    SELECT run.id, moved.root_id FROM moved JOIN agent_run run ON run.parent_run_id = moved.id
)
SELECT id, root_id FROM moved;

UPDATE agent_run SET root_id = (SELECT m.root_id FROM migrated_root m WHERE m.id = agent_run.id)
WHERE id IN (SELECT id FROM migrated_root);
UPDATE agent_run SET parent_run_id = (SELECT m.parent_id FROM migrated_call m WHERE m.id = agent_run.id)
WHERE id IN (SELECT id FROM migrated_call);
UPDATE agent_action SET root_id = (SELECT m.root_id FROM migrated_root m WHERE m.id = agent_action.run_id)
WHERE run_id IN (SELECT id FROM migrated_root);

DROP TABLE migrated_chain;
DROP TABLE migrated_entry;
DROP TABLE migrated_length;
DROP TABLE migrated_call;
DROP TABLE migrated_root;
