//! Planning sessions, and where their repositories are.

use std::path::PathBuf;
use std::time::Duration;

use figment::value::Value;
use url::Url;

use super::error::ConfigError;
use super::read::Read;
use super::values;
use crate::domain::repository::RepositoryPattern;

const REPOSITORIES: &str = "planning.repositories";

/// Planning sessions.
#[derive(Clone, Debug)]
pub struct Planning {
    /// The repositories that sessions may use.
    pub repositories: Vec<RepositoryPattern>,
    /// GitHub's address in a browser: scheme, host and port.
    pub github: Url,
    /// How far ahead a deadline may be, in hours.
    pub max_hours: u32,
    /// The most sessions of a user at work.
    pub sessions_per_user: u32,
    /// The most sessions of all users at work.
    pub sessions: u32,
    /// How long a plan waits for its confirmation, in hours.
    pub confirm_hours: u32,
    /// Directory of templates that replace built-in ones.
    pub templates: Option<PathBuf>,
    /// What the names of branches begin with that a confirmed plan may write.
    pub branch_prefix: String,
    /// The most steps of a task.
    pub max_steps_per_task: u32,
    /// The most steps of a session.
    pub max_steps: u32,
    /// The most tokens of a session; `None`: unlimited.
    pub max_tokens: Option<u64>,
    /// The most tokens of a request to the model, by its bytes.
    pub context_tokens: u64,
    /// How long an unavailable model is waited for.
    pub model_patience: Duration,
}

pub(super) fn read(read: &mut Read<'_>) -> Option<Planning> {
    let repositories = repositories(read);
    let max_hours = read.parse("planning.max_hours", values::whole_hours);
    let sessions_per_user = read.parse("planning.sessions_per_user", values::count);
    let sessions = read.parse("planning.sessions", values::count);
    let confirm_hours = read.parse("planning.confirm_hours", values::whole_hours);
    let templates = read.path("planning.templates");
    let branch_prefix = read.parse("planning.branch_prefix", values::branch_prefix);
    let max_steps_per_task = read.parse("planning.max_steps_per_task", values::count);
    let max_steps = read.parse("planning.max_steps", values::count);
    let max_tokens = read.parse("planning.max_tokens", values::tokens);
    let context_tokens = read.parse("planning.context_tokens", values::tokens);
    let model_patience = read.parse("planning.model_patience", values::length);
    let github = read.parse("github.url", |text| Url::parse(&values::base_url(text)?).ok());
    Some(Planning {
        repositories: repositories?,
        github: github?,
        max_hours: max_hours?,
        sessions_per_user: sessions_per_user?.get(),
        sessions: sessions?.get(),
        confirm_hours: confirm_hours?,
        templates,
        branch_prefix: branch_prefix?,
        max_steps_per_task: max_steps_per_task?.get(),
        max_steps: max_steps?.get(),
        max_tokens,
        context_tokens: context_tokens?,
        model_patience: model_patience?,
    })
}

/// The patterns of repositories: a list, or one text that separates them. `None` if one of them is invalid.
fn repositories(read: &mut Read<'_>) -> Option<Vec<RepositoryPattern>> {
    let Some((value, origin)) = read.value(REPOSITORIES) else {
        return Some(Vec::new());
    };
    let texts: Option<Vec<&str>> = match &value {
        Value::String(_, text) => Some(text.split([',', ' ', '\n']).filter(|part| !part.is_empty()).collect()),
        Value::Array(_, items) => items.iter().map(|item| item.as_str().map(str::trim)).collect(),
        _ => None,
    };
    let Some(texts) = texts else {
        let problem = "give a list of OWNER/REPO; in the environment separated by commas".to_owned();
        read.error(REPOSITORIES, None, &origin, problem);
        return None;
    };
    let mut patterns = Vec::new();
    for (n, text) in texts.iter().enumerate() {
        match RepositoryPattern::parse(text) {
            Ok(pattern) => patterns.push(pattern),
            Err(allowed) => {
                let key = format!("{REPOSITORIES}.{n}");
                let place = read.place_inside(&key, &origin);
                read.push(ConfigError {
                    key,
                    value: Some(format!("{text:?}")),
                    place: Some(place),
                    problem: format!("give {allowed}"),
                });
            }
        }
    }
    (patterns.len() == texts.len()).then_some(patterns)
}
