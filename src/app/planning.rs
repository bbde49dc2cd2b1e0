//! Planning sessions: their settings and templates, and the sweep that ends those whose deadline has passed.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::config::{Auth, Config, FileError};
use crate::engine::strategy::plan::TaskRules;
use crate::surfaces::planning::{
    Planning, PlanningSettings, PlanningTemplates, Repositories, RepositoryPattern, TemplateFile,
};

/// Interval between two searches for sessions past their deadline.
const SWEEP: Duration = Duration::from_secs(2);

/// The repositories that calls may name. `None`: all, without authentication and without a list, since the operator is the
/// only user.
pub(super) fn allowed(config: &Config) -> Option<Vec<RepositoryPattern>> {
    let repositories = config.planning.repositories.as_deref().unwrap_or_default();
    let is_open = repositories.is_empty() && matches!(config.auth, Auth::None);
    (!is_open).then(|| repositories.to_owned())
}

/// # Errors
/// A template cannot be read; or all errors in the templates.
pub(super) fn settings(config: &Config) -> Result<PlanningSettings, FileError> {
    let templates = match &config.planning.templates {
        Some(directory) => of_directory(directory)?,
        None => PlanningTemplates::built_in(),
    };
    Ok(PlanningSettings {
        repositories: Repositories::new(config.github.url.clone(), allowed(config)),
        sessions: config.planning.rules.clone(),
        rules: TaskRules {
            limits: config.planning.limits.clone(),
            templates: templates.phases.clone(),
        },
        templates,
    })
}

/// The templates with the files of a directory in place of built-in ones.
fn of_directory(directory: &Path) -> Result<PlanningTemplates, FileError> {
    let unreadable = |path: &Path, error: std::io::Error| {
        let path = path.display();
        FileError(format!(
            "the templates of planning (planning.templates) cannot be read: {path}: {error}"
        ))
    };
    let entries = fs::read_dir(directory).map_err(|error| unreadable(directory, error))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| unreadable(directory, error))?.path();
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(|error| unreadable(&path, error))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let place = path.display().to_string();
        files.push(TemplateFile { name, place, text });
    }
    files.sort_by(|one, other| one.name.cmp(&other.name));
    PlanningTemplates::of(&files).map_err(|errors| {
        let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
        FileError(format!("the templates of planning are invalid:\n{}", lines.join("\n")))
    })
}

pub(super) async fn sweep(planning: Arc<Planning>, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(SWEEP);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                let handled = planning.sweep().await;
                if handled > 0 {
                    tracing::info!(handled, "planning sessions were moved on: a deadline passed, or a run was lost");
                }
            }
            () = stop.cancelled() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// A directory replaces templates one by one; what is no template in it is left alone, and an error stops the start.
    #[test]
    fn templates_come_from_a_directory_and_an_invalid_one_stops_the_start() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        write("act.md", "${notice} Now.");
        write("notes.txt", "${anything}");
        let own = of_directory(directory.path()).unwrap();
        assert_eq!(own.phases.act, "${notice} Now.");
        assert_eq!(own.plan, PlanningTemplates::built_in().plan);
        write("reason.md", "Think.\n${goal}");
        let FileError(message) = of_directory(directory.path()).unwrap_err();
        assert!(
            message.contains("reason.md:2: template: found ${goal}") && message.contains("found no ${time_left}"),
            "{message}"
        );
        let FileError(message) = of_directory(&directory.path().join("none")).unwrap_err();
        assert!(message.contains("planning.templates"), "{message}");
    }
}
