//! The answer to a retried request whose decision was closed without an answer: by recovery, after its process died.

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
