//! Runs one case: an agent on its own, or in a planning session.

use anyhow::{Context, bail};
use gavel_testing::github::Repository;
use serde_json::json;
use tokio::time::timeout;

use super::cases::{AgentCase, AgentCases, PLANNER, TASK_WORKER};
use super::session;
use super::stage::{Observed, Stage, text};
use crate::chat::Task;
use crate::{Request, tasks};

/// The owner of the repository of a case; its name is that of the directory.
const OWNER: &str = "acme";
/// The repositories of cases, as the setting `planning.repositories` names them.
pub const REPOSITORIES: &str = "acme/*";

/// Runs a case. What does not end in time is cancelled.
pub(super) async fn run(stage: Stage<'_>, file: &AgentCases, case: &AgentCase) -> anyhow::Result<Observed> {
    let url = match (stage.github, &file.repository) {
        (Some(github), Some(directory)) => {
            let name = directory.file_name().context("the repository's name")?;
            let name = name.to_string_lossy();
            let repository = Repository::new((OWNER, &name), directory, &case.files);
            let mut repository = repository.with_context(|| format!("{} cannot be read", directory.display()))?;
            for issue in &case.issues {
                repository.open_issue(&issue.title, &issue.body);
            }
            github.hold(repository);
            stage.gavel.ready(&["getFileContents".to_owned()]).await;
            format!("{}/{OWNER}/{name}", stage.github_url)
        }
        _ => String::new(),
    };
    match &*file.agent {
        PLANNER => session::plan(stage, case, &url).await,
        TASK_WORKER => session::work(stage, case, &url).await,
        agent => {
            let Ok(begun) = timeout(stage.most, begin(stage, agent, case)).await else {
                bail!("the run had not begun after {} s", stage.most.as_secs());
            };
            stage.observe(begun?).await
        }
    }
}

/// Creates the user's tasks, then begins the run. Returns its id.
async fn begin(stage: Stage<'_>, agent: &str, case: &AgentCase) -> anyhow::Result<String> {
    if !case.tasks.is_empty() {
        let seed = |description: &String| Task {
            description: description.clone(),
            ..Task::default()
        };
        let seeds: Vec<_> = case.tasks.iter().map(seed).collect();
        stage.gavel.ready(&["add_task".to_owned()]).await;
        if let Err(error) = tasks::seed(stage.gavel, stage.user, &seeds).await {
            bail!("the case's tasks could not be created: {error}");
        }
    }
    let path = format!("/api/projects/default/agents/{agent}/trigger?time_zone=UTC");
    let run = stage.send(Request::post(stage.user, path, json!(case.input)).begins());
    text(&run.await?, "id")
}
