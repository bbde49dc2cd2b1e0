-- How long processes have worked on a run since it began or was resumed, in microseconds; counted whenever its lease is renewed.
ALTER TABLE agent_run ADD COLUMN worked_us BIGINT NOT NULL DEFAULT 0;
