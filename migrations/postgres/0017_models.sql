-- The model that was asked, beside the one that answered (`model`), and the tier that served it. Same tables, columns
-- and views as ../sqlite.

ALTER TABLE decision_log ADD COLUMN requested_model TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE decision_log ADD COLUMN service_tier TEXT COLLATE "C";

-- Replaced, not dropped: others may look through it, and have rights on it.
CREATE OR REPLACE VIEW v_decisions AS
SELECT
    id AS decision_id,
    tenant,
    surface,
    user_id,
    conversation_id,
    status,
    recovered,
    decision_type,
    outcome_category,
    intent,
    message,
    response,
    model,
    iterations,
    input_tokens,
    output_tokens,
    thought_tokens,
    cached_tokens,
    duration_us / 1000 AS duration_ms,
    to_char(to_timestamp(created_at / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS')
        || '.' || lpad((created_at % 1000000)::text, 6, '0') || 'Z' AS created_at,
    definition_hash,
    request_id,
    error_detail,
    requested_model,
    service_tier
FROM decision_log;
