//! The meaning of GitHub's refusals.

use gavel_mcp_base::ToolError;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Reply;
use crate::error::{Code, not_found, unavailable};

const MAX_FIELDS: usize = 20;
const MAX_CHARS: usize = 300;

#[derive(Debug, Default, Deserialize)]
struct Body {
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    errors: Option<Value>,
}

/// The error for an answer that is not a success. `what` is what the call names: "The issue".
pub(crate) fn refusal(reply: &Reply, what: &str) -> ToolError {
    let body: Body = serde_json::from_slice(&reply.body).unwrap_or_default();
    match reply.status.as_u16() {
        401 => ToolError::new(
            Code::Unauthorized,
            "GitHub does not accept the server's credentials. The operator has to check or renew them.",
        ),
        403 | 451 => forbidden(reply, &body),
        404 => not_found(what),
        // Such as issues that are disabled.
        410 => ToolError::new(Code::NotFound, format!("{what} is gone: {}", said(&body))),
        405 | 409 => ToolError::new(Code::Conflict, format!("GitHub refused this: {}", said(&body))),
        413 => ToolError::new(Code::TooLarge, "GitHub refused this as too large."),
        400..=499 => ToolError::new(
            Code::ValidationFailed,
            format!("GitHub rejected the values: {}", said(&body)),
        )
        .with("fields", fields(&body)),
        _ => unavailable(),
    }
}

/// The permission that GitHub names is a fine-grained one or a scope, by the kind of token.
fn forbidden(reply: &Reply, body: &Body) -> ToolError {
    let named = ["x-accepted-github-permissions", "x-accepted-oauth-scopes"]
        .into_iter()
        .filter_map(|name| reply.header(name))
        .map(str::trim)
        .find(|needed| !needed.is_empty());
    let words = match named {
        Some(needed) => format!(
            "The server's credentials do not allow this. GitHub names what is needed: {}.",
            cut(needed)
        ),
        None => format!("The server's credentials do not allow this: {}", said(body)),
    };
    ToolError::new(Code::Forbidden, words).with("needed", named.map(cut))
}

fn said(body: &Body) -> String {
    match body.message.as_deref() {
        Some(message) if !message.trim().is_empty() => cut(message),
        _ => "GitHub gave no reason.".to_owned(),
    }
}

/// `errors` is a list of objects, or of texts.
fn fields(body: &Body) -> Vec<Value> {
    let Some(Value::Array(errors)) = &body.errors else {
        return Vec::new();
    };
    let text = |error: &Value, name: &str| error[name].as_str().map(cut);
    errors
        .iter()
        .take(MAX_FIELDS)
        .map(|error| match error {
            Value::String(message) => json!({ "field": null, "code": null, "message": cut(message) }),
            error => {
                let [field, code, message] = ["field", "code", "message"].map(|name| text(error, name));
                json!({ "field": field, "code": code, "message": message })
            }
        })
        .collect()
}

/// Does a 422 say that what was to be created exists?
pub(crate) fn says_exists(reply: &Reply) -> bool {
    if reply.status != 422 {
        return false;
    }
    let body: Body = serde_json::from_slice(&reply.body).unwrap_or_default();
    let errors = body.errors.map(|errors| errors.to_string()).unwrap_or_default();
    let texts = format!("{} {errors}", body.message.unwrap_or_default());
    texts.contains("already exists") || errors.contains("already_exists")
}

fn cut(text: &str) -> String {
    text.chars()
        .filter(|character| !character.is_control())
        .take(MAX_CHARS)
        .collect()
}

#[cfg(test)]
mod tests {
    use reqwest::StatusCode;
    use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

    use super::*;

    fn reply(status: u16, headers: &[(&'static str, &'static str)], body: &Value) -> Reply {
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        Reply {
            status: StatusCode::from_u16(status).expect("a status"),
            headers: HeaderMap::from_iter(headers),
            body: body.to_string().into_bytes(),
        }
    }

    #[test]
    fn each_status_has_its_code() {
        for (status, code) in [
            (400, "validation_failed"),
            (401, "unauthorized"),
            (403, "forbidden"),
            (404, "not_found"),
            (409, "conflict"),
            (410, "not_found"),
            (413, "too_large"),
            (422, "validation_failed"),
            (451, "forbidden"),
            (500, "unavailable"),
        ] {
            assert_eq!(refusal(&reply(status, &[], &json!({})), "It").code(), code, "{status}");
        }
    }

    #[test]
    fn a_refusal_names_the_fields_and_the_permission() {
        let errors = json!({ "message": "Validation Failed", "errors": [
            { "resource": "PullRequest", "field": "head", "code": "invalid" }, "No commits between main and x"
        ] });
        let error = serde_json::to_value(refusal(&reply(422, &[], &errors), "It")).expect("JSON");
        assert_eq!(
            error["fields"],
            json!([
                { "field": "head", "code": "invalid", "message": null },
                { "field": null, "code": null, "message": "No commits between main and x" }
            ])
        );
        let headers = [("x-accepted-github-permissions", "pull_requests=write")];
        let error = serde_json::to_value(refusal(&reply(403, &headers, &json!({})), "It")).expect("JSON");
        assert_eq!(error["needed"], "pull_requests=write");
        let exists = json!({ "message": "Validation Failed", "errors": [
            { "resource": "PullRequest", "code": "custom", "message": "A pull request already exists for acme:x." }
        ] });
        assert!(says_exists(&reply(422, &[], &exists)));
        assert!(!says_exists(&reply(422, &[], &errors)) && !says_exists(&reply(409, &[], &exists)));
    }
}
