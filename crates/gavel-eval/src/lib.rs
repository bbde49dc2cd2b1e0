//! Evaluates a running gavel. [`chat`] is `gavel eval`: how often the model decides as expected, and whether gavel's
//! promises hold whatever the model says. [`agents`] is `gavel agents eval`: what comes of the runs of agents.
//!
//! The command line starts a [`Gavel`] with its data in a [`Scratch`] directory. All that the evaluation sees of it is
//! its HTTP API, and the tools of its servers: a case's tasks must exist before its message.

pub mod agents;
pub mod chat;
mod scratch;
mod tasks;

use async_trait::async_trait;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Value};

pub use self::scratch::Scratch;

/// A running gavel.
#[async_trait]
pub trait Gavel: Send + Sync {
    /// Sends a request to the API; returns the status, and the JSON of the body.
    ///
    /// # Errors
    /// There is no answer, or it is not JSON.
    async fn request(&self, request: Request<'_>) -> anyhow::Result<(u16, Value)>;

    /// Calls a tool by its own name, without policy, approval and decision log; returns its data.
    ///
    /// # Errors
    /// No server offers the tool, or the call failed.
    async fn call_tool(&self, user: &str, tool: &str, arguments: Map<String, Value>) -> Result<Value, String>;

    /// Waits a while for the servers of these tools.
    async fn ready(&self, tools: &[String]);
}

/// A request to gavel's API.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The user that it is made for.
    pub user: &'a str,
    /// `GET`, `POST` or `PUT`.
    pub method: &'static str,
    /// The path, with its query.
    pub path: String,
    /// One further header.
    pub header: Option<(&'static str, String)>,
    /// The body.
    pub body: Option<Value>,
}

impl<'a> Request<'a> {
    fn get(user: &'a str, path: impl Into<String>) -> Self {
        Self {
            user,
            method: "GET",
            path: path.into(),
            header: None,
            body: None,
        }
    }

    fn post(user: &'a str, path: impl Into<String>, body: Value) -> Self {
        Self {
            method: "POST",
            body: Some(body),
            ..Self::get(user, path)
        }
    }

    /// The work begins in the process that answers, and the answer does not wait for it.
    fn begins(self) -> Self {
        Self {
            header: Some(("prefer", "wait=0".to_owned())),
            ..self
        }
    }

    /// The body of a successful answer.
    async fn send(self, gavel: &dyn Gavel) -> anyhow::Result<Value> {
        match gavel.request(self).await? {
            (200..=299, body) => Ok(body),
            (status, problem) => anyhow::bail!(problem_text(status, &problem)),
        }
    }
}

/// Why gavel rejected a request, from its problem document.
fn problem_text(status: u16, problem: &Value) -> String {
    let errors = problem["errors"].as_array().into_iter().flatten();
    let errors = errors.map(|error| {
        let text = |name: &str| error[name].as_str().unwrap_or_default();
        format!("{} {}", text("pointer"), text("detail")).trim().to_owned()
    });
    let detail = [&problem["detail"], &problem["title"]]
        .into_iter()
        .find_map(Value::as_str);
    let detail = detail.map_or_else(|| format!("gavel answered {status}"), str::to_owned);
    match errors.collect::<Vec<_>>().join("; ") {
        errors if errors.is_empty() => detail,
        errors => errors,
    }
}

/// A progress bar on standard error, only if that is a terminal.
fn bar(cases: usize) -> ProgressBar {
    let bar = ProgressBar::new(u64::try_from(cases).unwrap_or(u64::MAX));
    let style = ProgressStyle::with_template("{bar:32} {pos}/{len} {elapsed} {wide_msg}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_rejected_request_is_reported_by_its_errors_or_else_by_its_detail() {
        let errors = json!([{"pointer": "/prompt", "detail": "is missing"}, {"pointer": "", "detail": "is too long"}]);
        for (problem, text) in [
            (
                json!({"title": "Invalid", "detail": "d", "errors": errors}),
                "/prompt is missing; is too long",
            ),
            (
                json!({"title": "Not found", "detail": "There is no agent x."}),
                "There is no agent x.",
            ),
            (json!({"title": "Not found"}), "Not found"),
            (Value::Null, "gavel answered 404"),
        ] {
            assert_eq!(problem_text(404, &problem), text);
        }
    }
}
