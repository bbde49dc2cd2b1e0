//! `gavel plan show`: a session with its plan, or one task with its steps.

use anyhow::Context;

use super::follow::{missing, session};
use super::{id, text};
use crate::api::planning::Session;
use crate::app::Work;
use crate::cli::exit::{Exit, Usage};
use crate::cli::gavel::{Gavel, Talk, Where};
use crate::cli::output;
use crate::domain::ids::PlanningSessionId;
use crate::domain::plan::TaskId;

/// Options of `gavel plan show`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The session
    #[arg(value_parser = id)]
    id: PlanningSessionId,
    /// One task with its steps, such as t2
    #[arg(value_parser = task, value_name = "TASK")]
    task: Option<TaskId>,
    /// As JSON: the session, or the task
    #[arg(long, conflicts_with = "raw")]
    json: bool,
    /// Only the tasks, as the JSON text that is stored
    #[arg(long, conflicts_with = "task")]
    raw: bool,
    #[command(flatten)]
    place: Where,
}

const EXAMPLES: &str = "\
Examples:
  gavel plan show 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80
  gavel plan show 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80 t2
  gavel plan show --json 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80 | jq -r '.plan[].title'
  gavel plan show --json 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80 t2 | jq '.reactHistory[].observation'

Of each step: what the model meant to do (reason), the call (act), the result (observed) and what it concluded (reflect).";

/// Parses a task id argument.
fn task(text: &str) -> Result<TaskId, &'static str> {
    TaskId::parse(text).ok_or("a task's id is t1, t2 and so on; `gavel plan show SESSION` lists them")
}

impl Talk for Args {
    const WORK: Work = Work::Read;

    fn place(&self) -> Where {
        self.place.clone()
    }

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        if self.raw {
            let session = gavel.raw_session(self.id).await;
            let session = session.map_err(|error| missing(error, &self.place, self.id))?;
            output::line(session.raw_plan.as_deref().context("the answer has no plan")?)?;
            return Ok(Exit::Done);
        }
        let session = session(gavel, &self.place, self.id).await?;
        match self.task {
            Some(task) => self.print_task(gavel, &session, task).await?,
            None if self.json => output::json(&session)?,
            None => output::line(&text::session(&session))?,
        }
        Ok(Exit::Done)
    }
}

impl Args {
    async fn print_task(&self, gavel: &Gavel, session: &Session, id: TaskId) -> anyhow::Result<()> {
        if session.plan.iter().all(|task| task.id != id) {
            let known: Vec<_> = session.plan.iter().map(|task| task.id.to_string()).collect();
            let known = match known.is_empty() {
                true => "it has none".to_owned(),
                false => format!("there are: {}", known.join(", ")),
            };
            let words = format!("plan {} has no task {id}; {known}", session.plan_version);
            return Err(Usage(words).into());
        }
        let task = gavel.plan_task(self.id, id).await?;
        match self.json {
            true => output::json(&task),
            false => output::line(&text::task(&task.task, &task.react_history)),
        }
    }
}
