-- Lists by intent and by long duration, each in the order of time. Same indexes as ../postgres.

CREATE INDEX decision_by_intent ON decision_log (tenant, intent, created_at, id);

-- What took a second or more, by classes that double: `duration_ms > N` reads a page of each class from N on. What was
-- quicker is not in here and costs nothing.
CREATE INDEX decision_slow ON decision_log (tenant, (CASE WHEN duration_us < 2000000 THEN 1 WHEN duration_us < 4000000
    THEN 2 WHEN duration_us < 8000000 THEN 4 WHEN duration_us < 16000000 THEN 8 WHEN duration_us < 32000000 THEN 16 ELSE 32
    END), created_at, id) WHERE duration_us >= 1000000;
CREATE INDEX tool_slow ON tool_invocation_log (tenant, (CASE WHEN duration_us < 2000000 THEN 1 WHEN duration_us < 4000000
    THEN 2 WHEN duration_us < 8000000 THEN 4 WHEN duration_us < 16000000 THEN 8 WHEN duration_us < 32000000 THEN 16 ELSE 32
    END), created_at, id) WHERE duration_us >= 1000000;
