//! Runs one case: an agent on its own, or in a planning session.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use chrono_tz::Tz;

use super::github::Repository;
use super::session;
use super::stage::{Observed, Stage, meta};
use crate::cli::eval::Tasks;
use crate::domain::ids::{DEFAULT_PROJECT, ProjectId, UserId};
use crate::domain::planning_session::{PLANNER, TASK_WORKER};
use crate::evaluation::Seed;
use crate::evaluation::agents::{AgentCase, AgentCases};
use crate::ports::tools::Tools;
use crate::surfaces::agents::{Inputs, Trigger};
use crate::surfaces::runs::Begun;

/// How long a server may take to start.
const SERVERS: Duration = Duration::from_secs(15);
/// The owner of the repository of a case; its name is that of the directory.
pub(super) const OWNER: &str = "acme";

/// Runs a case. What does not end in time is cancelled.
pub(super) async fn run(stage: &Stage<'_>, file: &AgentCases, case: &AgentCase) -> anyhow::Result<Observed> {
    let user = UserId::parse(format!("eval-{}", case.id)).context("the case's id")?;
    let url = match (stage.github, &file.repository) {
        (Some(github), Some(directory)) => {
            let name = directory
                .file_name()
                .context("the repository's name")?
                .to_string_lossy();
            let repository = Repository::of((OWNER, &name), directory, case);
            github.hold(repository.with_context(|| format!("{} cannot be read", directory.display()))?);
            stage
                .app
                .mcp
                .ready(&["getFileContents".to_owned()], Instant::now() + SERVERS)
                .await;
            let base = stage.app.config.planning.github.as_str().trim_end_matches('/');
            format!("{base}/{OWNER}/{name}")
        }
        _ => String::new(),
    };
    match &*file.agent {
        PLANNER => session::plan(stage, user, case, &url).await,
        TASK_WORKER => session::work(stage, user, case, &url).await,
        agent => {
            let Ok(begun) = stage.in_time(begin(stage, user, agent, case)).await else {
                bail!("the run had not begun after {} s", stage.most.as_secs());
            };
            stage.ended(begun?).await
        }
    }
}

/// Creates the user's tasks, then begins the run.
async fn begin(stage: &Stage<'_>, user: UserId, agent: &str, case: &AgentCase) -> anyhow::Result<Begun> {
    let app = stage.app;
    if !case.tasks.is_empty() {
        let seeds: Vec<_> = case.tasks.iter().map(|words| seed(words)).collect();
        app.mcp.ready(&["add_task".to_owned()], Instant::now() + SERVERS).await;
        if let Err(error) = Tasks::new(Arc::clone(&app.mcp)).seed(&user, &seeds).await {
            bail!("the case's tasks could not be created: {error}");
        }
    }
    let trigger = Trigger {
        project: ProjectId::parse(DEFAULT_PROJECT).context("the project")?,
        agent: agent.to_owned(),
        inputs: Inputs::Named(case.input.clone()),
        timeout: None,
        time_zone: Some(Tz::UTC),
        background: false,
        meta: meta(),
    };
    Ok(app.agents.trigger(&stage.caller, user, trigger).await?)
}

fn seed(words: &str) -> Seed {
    Seed {
        description: words.to_owned(),
        ..Seed::default()
    }
}
