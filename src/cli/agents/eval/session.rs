//! Cases of the agents of planning, which work only in sessions.
//!
//! `planner`: a session is started with the case's goal, and the result is the run that plans. `task_worker`: a session
//! is started, its plan is replaced by that of the case as a person edits a plan, and confirmed. So both run through the
//! same surface as any session, and what a task does is decided by the same gate.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, bail};
use chrono::{SecondsFormat, Utc};
use serde_json::{Value, json};

use super::stage::{CANCELLED, Observed, Stage, meta};
use crate::domain::action::ActionStatus;
use crate::domain::ids::{PlanningSessionId, UserId};
use crate::domain::planning_session::SessionStatus;
use crate::evaluation::agents::{AgentCase, CaseResult};
use crate::surfaces::planning::{
    BegunPlanning, Draft, EditPlan, ExecutePlan, Session, StartPlanning, WaitingFor, WaitingKind,
};

/// How far ahead the deadline is: no case depends on it.
const DEADLINE: Duration = Duration::from_secs(2 * 60 * 60);
/// Interval between two looks at a session.
const LOOK: Duration = Duration::from_millis(100);

/// Runs a case of `planner`.
pub(super) async fn plan(stage: &Stage<'_>, user: UserId, case: &AgentCase, url: &str) -> anyhow::Result<Observed> {
    let BegunPlanning { session, begun } = start(stage, user, case, url).await?;
    let observed = stage.ended(begun).await;
    // It would wait for its confirmation until its deadline.
    stage.app.planning.cancel(&stage.caller, None, session, None).await?;
    observed
}

/// Runs a case of `task_worker`.
pub(super) async fn work(stage: &Stage<'_>, user: UserId, case: &AgentCase, url: &str) -> anyhow::Result<Observed> {
    let begun = start(stage, user, case, url).await?;
    let session = begun.session;
    let worked = stage.in_time(confirmed(stage, begun, case)).await;
    let (app, caller) = (stage.app, &stage.caller);
    let ended = app.planning.cancel(caller, None, session, None).await?;
    let rests = tokio::time::timeout(CANCELLED, app.runs.rests(caller, ended.run_id)).await;
    let Ok(worked) = worked else {
        bail!(stage.not_in_time("session", rests.is_ok()));
    };
    let result = result(stage, &worked?).await?;
    Ok(Observed { result, run: None })
}

async fn start(stage: &Stage<'_>, user: UserId, case: &AgentCase, url: &str) -> anyhow::Result<BegunPlanning> {
    let goal = case.input.get("task").and_then(Value::as_str);
    let start = StartPlanning {
        prompt: goal
            .context("the case has no `input.task`, which is the goal")?
            .to_owned(),
        repo_url: url.to_owned(),
        deadline: (Utc::now() + DEADLINE).to_rfc3339_opts(SecondsFormat::Secs, true),
        time_zone: None,
        background: false,
        meta: meta(),
    };
    Ok(stage.app.planning.start_planning(&stage.caller, user, start).await?)
}

/// Replaces the plan of a session, confirms it, and waits until the session has ended.
async fn confirmed(stage: &Stage<'_>, mut begun: BegunPlanning, case: &AgentCase) -> anyhow::Result<Session> {
    let (planning, caller) = (&stage.app.planning, &stage.caller);
    let session = begun.session;
    let planned = planning.wait(caller, &mut begun).await?;
    if planned.status != SessionStatus::AwaitingConfirmation {
        let (status, reason) = (planned.status.as_str(), reason(&planned).unwrap_or_default());
        bail!("before the case's own plan could be confirmed, the session became {status}: {reason}");
    }
    let edit = EditPlan {
        session,
        version: planned.plan_version,
        draft: Draft {
            summary: "The plan of the case.".to_owned(),
            tasks: case.plan.clone(),
            ..Draft::default()
        },
        meta: meta(),
    };
    let edited = planning.edit(caller, None, edit).await?;
    let execute = ExecutePlan {
        session,
        plan_version: Some(edited.plan_version),
        ask_for: Vec::new(),
        background: false,
        meta: meta(),
    };
    let _execution = planning.execute_plan(caller, None, execute).await?;
    until_ended(stage, session).await
}

/// Waits until a session has ended. No case has a person, so it is an error if the session waits for one.
async fn until_ended(stage: &Stage<'_>, id: PlanningSessionId) -> anyhow::Result<Session> {
    loop {
        let session = stage.app.planning.session(&stage.caller, None, id).await?;
        if session.status.has_ended() {
            return Ok(session);
        }
        if let Some(WaitingFor { kind, tool, .. }) = session.waiting_for.iter().flatten().next() {
            match kind {
                WaitingKind::Approval => {
                    bail!("the agent called {tool}, which the plan does not allow: it asks a person")
                }
                WaitingKind::InDoubt => bail!("the outcome of a call of {tool} is unknown: it asks a person"),
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn result(stage: &Stage<'_>, session: &Session) -> anyhow::Result<CaseResult> {
    let mut plan = Vec::new();
    for task in &session.plan {
        let of = (task.id, 0);
        let detail = stage
            .app
            .planning
            .task(&stage.caller, None, session.session_id, of)
            .await?;
        plan.push(json!(detail));
    }
    let mut calls = BTreeMap::new();
    for action in session.result.iter().flat_map(|result| &result.log) {
        *calls.entry(action.tool.clone()).or_default() |= action.status == ActionStatus::Completed;
    }
    let mut output = json!(session);
    output["plan"] = plan.into();
    Ok(CaseResult {
        status: session.status.as_str().to_lowercase(),
        reason: reason(session),
        output: Some(output),
        summary: None,
        steps: session.plan.iter().map(|task| task.steps).sum(),
        calls,
    })
}

fn reason(session: &Session) -> Option<String> {
    let reason = session.status_reason.as_ref()?;
    Some(format!("{}: {}", reason.code.as_str(), reason.detail))
}
