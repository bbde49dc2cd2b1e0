//! The surface of planning sessions: a user gives a goal, a repository and a deadline; gavel reads the repository,
//! proposes a plan, and changes it in conversation.
//!
//! Every version that the model makes is an ordinary run of the agent `planner`. Code reads the repository first, and
//! the agent may use nothing that could change it. The end of the run, the plan and the session are one commit.
//!
//! The way of a plan: a request is checked (`checks`) and begins a run (`begin`), with the session's row in the commit
//! that creates it. The run reads the repository ([`crate::engine::opening`]; which reads: `opening`) and asks the
//! model, which hands in a draft. At its end [`crate::engine::planning`] makes the next version of the draft
//! ([`crate::domain::plan`]), and the commit of the end has it as a fact
//! ([`crate::ports::commit::Fact::Planned`]). The store writes the version and moves the session on. What needs no run
//! is in `change`: an edit by hand, a cancellation, the deadline.
//!
//! Only a person's confirmation leads further (`execute`; `dry_run` shows before what would happen). The run that it
//! begins works through the plan, task by task ([`crate::engine::strategy::plan`]), each by a run of its own. What those
//! runs did is read from their journals: the steps of a task (`task`), all actions in order (`log`), and what a single
//! session shows, with what its confirmation allows (`session`).

mod begin;
mod change;
mod checks;
mod dry_run;
mod events;
mod execute;
mod log;
mod session;
mod task;
mod templates;

use std::sync::Arc;

use url::Url;

use super::caller::Caller;
use super::decisions::{ListQuery, Page};
use super::definitions::Directory;
use super::runs::{Begun, Runs};
use crate::api::planning::{Session, Version};
use crate::domain::definition::Approval;
use crate::domain::ids::{PlanningSessionId, RunId, UserId};
pub use crate::domain::plan::{Draft, DraftTask};
pub use crate::domain::repository::{Repositories, RepositoryPattern};
use crate::domain::settings::SessionRules;
use crate::engine::strategy::plan::TaskRules;
use crate::ports::conditions::Conditions;
use crate::ports::planning::PlanningSessions;
use crate::surfaces::problem::Problem;
pub use events::{EventId, SessionLine, Watched};
pub use templates::{PlanningTemplates, TemplateFile};

/// Side effects in planning sessions require approval, unless the confirmed plan or a rule of the policy allows them.
pub const FLOOR: Approval = Approval::SideEffects;

/// The surface with everything it uses.
pub struct Planning {
    runs: Arc<Runs>,
    directory: Arc<Directory>,
    sessions: Arc<dyn PlanningSessions>,
    conditions: Arc<dyn Conditions>,
    settings: PlanningSettings,
}

/// How planning sessions behave (`planning.*`).
#[derive(Clone, Debug)]
pub struct PlanningSettings {
    /// The repositories that sessions may use.
    pub repositories: Repositories,
    /// How far sessions may go.
    pub sessions: SessionRules,
    /// How tasks are worked on.
    pub rules: TaskRules,
    /// The templates. Those of the phases are also in the rules.
    pub templates: PlanningTemplates,
}

/// The work on a confirmed plan.
#[derive(Debug)]
pub struct Execution {
    /// The session.
    pub session: PlanningSessionId,
    /// The run that works through the plan.
    pub run: RunId,
    /// That run, if this request began it, or the same request did before; `None` if another request did.
    pub begun: Option<Begun>,
}

/// A session whose run has begun.
#[derive(Debug)]
pub struct BegunPlanning {
    /// The session.
    pub session: PlanningSessionId,
    /// The run.
    pub begun: Begun,
}

impl Planning {
    /// Builds the surface.
    pub fn new(
        runs: Arc<Runs>,
        directory: Arc<Directory>,
        sessions: Arc<dyn PlanningSessions>,
        conditions: Arc<dyn Conditions>,
        settings: PlanningSettings,
    ) -> Self {
        Self {
            runs,
            directory,
            sessions,
            conditions,
            settings,
        }
    }

    /// How long a plan waits for its confirmation, in microseconds.
    fn confirm_us(&self) -> i64 {
        i64::from(self.settings.sessions.confirm_hours) * 3_600_000_000
    }

    /// A page of sessions, newest first.
    ///
    /// # Errors
    /// The query is invalid; the store is unavailable.
    pub async fn list(
        &self,
        caller: &Caller,
        user: Option<&UserId>,
        query: ListQuery,
    ) -> Result<Page<Session>, Problem> {
        let query = ListQuery {
            user: caller.sees(user).cloned(),
            ..query
        };
        let (now_us, confirm_us) = (self.runs.now_us(), self.confirm_us());
        let page = self.sessions.list(&caller.tenant, &query).await?;
        Ok(page.map(|stored| session::session(stored, now_us, confirm_us)))
    }

    /// The versions of a session's plan after `after`, in order, at most `most`.
    ///
    /// # Errors
    /// There is no such session; the store is unavailable.
    pub async fn versions(
        &self,
        caller: &Caller,
        user: Option<&UserId>,
        session: PlanningSessionId,
        (after, most): (u32, u32),
    ) -> Result<Vec<Version>, Problem> {
        self.session(caller, user, session).await?;
        Ok(self.sessions.versions(session, after, most).await?)
    }
}

impl Planning {
    /// The address if it is that of a repository on the host of `github.url`, or of a page below one, by https and
    /// without a password.
    pub fn link(&self, address: &str) -> Option<Url> {
        link(&self.settings.repositories, address)
    }
}

fn link(repositories: &Repositories, address: &str) -> Option<Url> {
    let url = Url::parse(address).ok()?;
    let names: Vec<&str> = url.path_segments()?.take(2).collect();
    let mut repository = url.clone();
    repository.set_query(None);
    repository.set_fragment(None);
    repository.set_path(&names.join("/"));
    let is_known = repositories.parse(repository.as_str()).is_ok();
    (url.scheme() == "https" && is_known).then_some(url)
}

#[cfg(test)]
mod links_tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// What a model or a server writes becomes a link only if it leads to a repository on the configured host.
    #[test]
    fn only_pages_of_repositories_on_the_configured_host_are_links() {
        let github = Repositories::new(Url::parse("https://github.com").unwrap(), None);
        for fine in [
            "https://github.com/acme/dates",
            "https://github.com/acme/dates/pull/7",
            "https://github.com/acme/dates/pull/7?w=1#diff",
        ] {
            assert_eq!(link(&github, fine).unwrap().as_str(), fine);
        }
        for other in [
            "",
            "acme/dates/pull/7",
            "javascript:alert(1)",
            "javascript://github.com/acme/dates/%0aalert(1)",
            "data:text/html,x",
            "http://github.com/acme/dates/pull/7",
            "https://github.com",
            "https://github.com/login",
            "https://github.com.example.org/acme/dates/pull/7",
            "https://github.com@example.org/acme/dates/pull/7",
            "https://ann:secret@github.com/acme/dates/pull/7",
            "https://github.com:8443/acme/dates/pull/7",
            "https://example.org/acme/dates/pull/7",
            "//github.com/acme/dates",
        ] {
            assert_eq!(link(&github, other), None, "{other}");
        }
        let plain = Repositories::new(Url::parse("http://127.0.0.1:3000").unwrap(), None);
        assert_eq!(link(&plain, "http://127.0.0.1:3000/acme/dates/pull/7"), None);
    }
}
