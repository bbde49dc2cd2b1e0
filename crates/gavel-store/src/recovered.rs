//! A decision that is closed without its outcome, after its process died: the statement that closes it, and the answer
//! to a retried request.

use serde_json::json;

/// Status and `application/problem+json` body. Built on demand from the row, so it is the same each time.
pub(super) fn answer(decision_id: &str, request_id: &str) -> (u16, String) {
    let body = json!({
        "type": "about:blank",
        "title": "Internal Server Error",
        "status": 500,
        "code": "outcome_unrecorded",
        "detail": format!(
            "The first request with this key ended before its outcome was recorded. It is not repeated; \
             see decision {decision_id} for what is known."
        ),
        "request_id": request_id,
        "decision_id": decision_id,
    });
    (500, body.to_string())
}

/// Closes an open row as an error, with the type and intent derived from its started calls.
pub(super) fn close(detail: &str) -> String {
    format!(
        "UPDATE decision_log SET status = 'closed', recovered = TRUE, \
         decision_type = CASE WHEN EXISTS (SELECT 1 FROM tool_invocation_log t \
         WHERE t.decision_id = decision_log.id AND t.started_at IS NOT NULL) \
         THEN 'INVOKE_TOOL' ELSE 'RESPOND_ONLY' END, outcome_category = 'ERROR:INTERNAL', \
         intent = COALESCE((SELECT t.tool FROM tool_invocation_log t WHERE t.decision_id = decision_log.id \
         AND t.started_at IS NOT NULL ORDER BY t.side_effect DESC, t.sequence DESC LIMIT 1), 'none'), error_detail = '{detail}'"
    )
}
