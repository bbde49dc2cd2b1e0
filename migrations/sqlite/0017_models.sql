-- The model that was asked, beside the one that answered (`model`), and the tier that served it. Same tables, columns
-- and views as ../postgres.

ALTER TABLE decision_log ADD COLUMN requested_model TEXT NOT NULL DEFAULT '';
ALTER TABLE decision_log ADD COLUMN service_tier TEXT;

DROP VIEW v_decisions;
CREATE VIEW v_decisions AS
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
    strftime('%Y-%m-%dT%H:%M:%S', created_at / 1000000, 'unixepoch') || printf('.%06dZ', created_at % 1000000) AS created_at,
    definition_hash,
    request_id,
    error_detail,
    requested_model,
    service_tier
FROM decision_log;
