//! Cases of the agents of planning, which work only in sessions.
//!
//! `planner`: a session is started with the case's goal, and the result is the run that plans. `task_worker`: a session
//! is started, its plan is replaced by that of the case as a person edits a plan, and confirmed. So both run through the
//! same surface as any session, and what a task does is decided by the same gate.

use std::time::Duration;

use anyhow::{Context, bail};
use chrono::{SecondsFormat, Utc};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::cases::{AgentCase, CaseResult};
use super::stage::{LOOK, Observed, Stage, number, text};
use crate::Request;

/// How far ahead the deadline is: no case depends on it.
const DEADLINE: Duration = Duration::from_secs(2 * 60 * 60);

/// Runs a case of `planner`.
pub(super) async fn plan(stage: Stage<'_>, case: &AgentCase, url: &str) -> anyhow::Result<Observed> {
    let session = start(stage, case, url).await?;
    let observed = stage.observe(text(&session, "runId")?).await;
    // It would wait for its confirmation until its deadline.
    stage.post(path(&session, "/cancel"), json!({})).await?;
    observed
}

/// Runs a case of `task_worker`.
pub(super) async fn work(stage: Stage<'_>, case: &AgentCase, url: &str) -> anyhow::Result<Observed> {
    let session = start(stage, case, url).await?;
    let worked = timeout(stage.most, confirmed(stage, &session, case)).await;
    let ended = stage.post(path(&session, "/cancel"), json!({})).await?;
    let not_in_time = stage.not_in_time("session", &text(&ended, "runId")?).await;
    let Ok(worked) = worked else { bail!(not_in_time) };
    let result = result(stage, worked?).await?;
    Ok(Observed { result, run: None })
}

async fn start(stage: Stage<'_>, case: &AgentCase, url: &str) -> anyhow::Result<Value> {
    let goal = case.input.get("task").and_then(Value::as_str);
    let body = json!({
        "prompt": goal.context("the case has no `input.task`, which is the goal")?,
        "repoUrl": url,
        "deadline": (Utc::now() + DEADLINE).to_rfc3339_opts(SecondsFormat::Secs, true),
    });
    let request = Request::post(stage.user, "/v1/sessions", body);
    stage.send(request.begins()).await
}

/// Replaces the plan of a session, confirms it, and waits until the session has ended.
async fn confirmed(stage: Stage<'_>, session: &Value, case: &AgentCase) -> anyhow::Result<Value> {
    let planned = until(stage, session, |status| status != "PLANNING").await?;
    if planned["status"] != "AWAITING_CONFIRMATION" {
        let (status, reason) = (text(&planned, "status")?, reason(&planned).unwrap_or_default());
        bail!("before the case's own plan could be confirmed, the session became {status}: {reason}");
    }
    let version = number(&planned, "planVersion");
    let draft = json!({ "summary": "The plan of the case.", "tasks": case.plan });
    let edited = stage.send(Request {
        method: "PUT",
        header: Some(("if-match", format!("\"{version}\""))),
        ..Request::post(stage.user, path(session, "/plan"), draft)
    });
    let version = number(&edited.await?, "planVersion");
    let body = json!({ "planVersion": version });
    let execute = Request::post(stage.user, path(session, "/execute"), body);
    stage.send(execute.begins()).await?;
    let ended = ["COMPLETED", "FAILED", "DEADLINE_EXCEEDED", "CANCELLED"];
    until(stage, session, |status| ended.contains(&status)).await
}

/// Waits for a status of a session. No case has a person, so it is an error if the session waits for one.
async fn until(stage: Stage<'_>, session: &Value, is: impl Fn(&str) -> bool) -> anyhow::Result<Value> {
    loop {
        let session = stage.get(path(session, "")).await?;
        if is(session["status"].as_str().unwrap_or_default()) {
            return Ok(session);
        }
        let waits = &session["waitingFor"][0];
        let tool = waits["tool"].as_str().unwrap_or_default();
        match waits["kind"].as_str() {
            Some("approval") => bail!("the agent called {tool}, which the plan does not allow: it asks a person"),
            Some(_) => bail!("the outcome of a call of {tool} is unknown: it asks a person"),
            None => tokio::time::sleep(LOOK).await,
        }
    }
}

/// The result of a session; its plan has each task with its steps.
async fn result(stage: Stage<'_>, mut session: Value) -> anyhow::Result<CaseResult> {
    let (mut plan, mut steps) = (Vec::new(), 0);
    for task in session["plan"].as_array().into_iter().flatten() {
        let id = text(task, "id")?;
        steps += number(task, "steps");
        plan.push(stage.get(path(&session, &format!("/tasks/{id}"))).await?);
    }
    let completed = |action: &Value| action["status"] == "completed";
    let calls = CaseResult::calls_of(&session["result"]["log"], completed);
    session["plan"] = plan.into();
    Ok(CaseResult {
        status: text(&session, "status")?.to_lowercase(),
        reason: reason(&session),
        output: Some(session),
        summary: None,
        steps,
        calls,
    })
}

fn path(session: &Value, rest: &str) -> String {
    format!(
        "/v1/sessions/{}{rest}",
        session["sessionId"].as_str().unwrap_or_default()
    )
}

fn reason(session: &Value) -> Option<String> {
    let reason = &session["statusReason"];
    let detail = reason["detail"].as_str().unwrap_or_default();
    Some(format!("{}: {detail}", reason["code"].as_str()?))
}
