//! Begins sessions and the runs that plan: a new session, and another version of its plan.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::checks::{draft_of, missing, not_allowed, unavailable, values};
use super::{BegunPlanning, FLOOR, Planning};
use crate::api::planning::{RefineBody, Session, StartBody, VersionKind};
use crate::api::problem::Code;
use crate::domain::ids::{PlanningSessionId, ProjectId, UserId};
use crate::domain::plan::{self, Plan};
use crate::domain::planning_session::{PLANNER, READS};
use crate::domain::policy::{PLANNING, SessionFacts};
use crate::domain::repository::Repository;
use crate::engine::agent::Settings;
use crate::engine::opening::{Opening, Read, Shown};
use crate::engine::planning::{AGENT_MD, AGENTS_MD, PlanningWork, REPOSITORY, TREE};
use crate::ports::planning::StoredSession;
use crate::ports::runs::{InSession, SessionWork};
use crate::surfaces::caller::Caller;
use crate::surfaces::definitions::Chosen;
use crate::surfaces::problem::Problem;
use crate::surfaces::request::{RequestMeta, prompt_error};
use crate::surfaces::runs::{Begin, Origin};

/// The most earlier versions whose texts a refinement sees.
const MOST_VERSIONS: u32 = 20;
/// The most bytes of these texts.
const FEEDBACK: usize = 64 * 1024;

impl Planning {
    /// Begins a session, and the run that makes its first plan (P-201, P-F1).
    ///
    /// # Errors
    /// [`Problem`]; what goes wrong later is the reason of the session.
    pub async fn start_planning(
        &self,
        caller: &Caller,
        user: UserId,
        start: StartBody,
        meta: RequestMeta,
    ) -> Result<BegunPlanning, Problem> {
        // First: a deadline that was far enough ahead may be too near when the request is sent again.
        if let Some(before) = self.begun_before(&meta).await? {
            return Ok(before);
        }
        let (repository, deadline_us, zone) = self.checked(&start)?;
        let repo_url = self.settings.repositories.address(&repository);
        if !self.settings.repositories.allow(&caller.tenant, &repository) {
            return Err(not_allowed(repository));
        }
        let tools = self.worker_tools(caller).await?;
        let (planner, settings) = self.planner(caller, &meta).await?;
        let session = PlanningSessionId::new();
        let goal: Arc<str> = start.prompt.as_str().into();
        let values = values(&tools, &goal, &repo_url, deadline_us);
        let work = PlanningWork {
            tools,
            current: None,
            last: 0,
            by: caller.person(Some(&user)).into(),
            why: Arc::clone(&goal),
        };
        let planner = drafting(planner, &work);
        let settings = Settings {
            until_us: Some(deadline_us),
            zone,
            // No call may name another repository.
            bound: Some(Arc::new(bound(session, &repository))),
            opening: Some(Arc::new(opening(&repository, &self.settings.templates.plan, values))),
            words: Some(Arc::new(vec![start.prompt.clone(), repo_url.clone()])),
            planning: Some(Arc::new(work)),
            ..settings
        };
        let work = SessionWork::Start {
            prompt: goal,
            repo_url: repo_url.into(),
            deadline_us,
        };
        let place = (InSession { session, work }, start.prompt);
        self.begin(caller, user, planner, place, settings, meta).await
    }

    /// Asks for another version of the plan (P-204, P-F2).
    ///
    /// # Errors
    /// As [`Planning::start_planning`]; the session does not wait for its confirmation.
    pub async fn refine_plan(
        &self,
        caller: &Caller,
        user: Option<&UserId>,
        session: PlanningSessionId,
        refine: RefineBody,
        meta: RequestMeta,
    ) -> Result<BegunPlanning, Problem> {
        if let Some(error) = prompt_error("/refinementPrompt", &refine.refinement_prompt) {
            return Err(Problem::from(vec![error]));
        }
        if let Some(before) = self.begun_before(&meta).await? {
            return Ok(before);
        }
        let stored = self.open_for_changes(caller, user, session).await?;
        let repository = self.repository(&stored)?;
        let tools = self.worker_tools(caller).await?;
        let (planner, settings) = self.planner(caller, &meta).await?;
        let change = refine.refinement_prompt;
        let feedback = self.feedback(&stored).await?;
        let mut values = values(&tools, &stored.prompt, &stored.repo_url, stored.deadline_us);
        values.insert("plan".to_owned(), draft_of(&stored));
        values.insert("feedback".to_owned(), feedback.clone());
        values.insert("change".to_owned(), change.clone());
        let words = [&*stored.prompt, &*stored.repo_url, &*feedback, &*change];
        let words = words.map(str::to_owned).to_vec();
        let work = PlanningWork {
            tools,
            last: stored.plan.last,
            current: Some(stored.plan.tasks),
            by: caller.person(user).into(),
            why: change.as_str().into(),
        };
        let planner = drafting(planner, &work);
        let settings = Settings {
            until_us: Some(stored.deadline_us),
            bound: Some(Arc::new(bound(session, &repository))),
            opening: Some(Arc::new(opening(&repository, &self.settings.templates.refine, values))),
            words: Some(Arc::new(words)),
            planning: Some(Arc::new(work)),
            ..settings
        };
        let version = stored.version;
        let work = SessionWork::Refine { version };
        let place = (InSession { session, work }, change);
        self.begin(caller, stored.user, planner, place, settings, meta).await
    }

    /// Waits until the run that plans has ended. Returns the session.
    ///
    /// # Errors
    /// The store is unavailable.
    pub async fn wait(&self, caller: &Caller, begun: &mut BegunPlanning) -> Result<Session, Problem> {
        self.runs.wait(caller, &mut begun.begun).await?;
        self.session(caller, None, begun.session).await
    }

    /// What persons asked to change before, oldest first, as far as it fits.
    pub(super) async fn feedback(&self, stored: &StoredSession) -> Result<String, Problem> {
        let after = stored.version.saturating_sub(MOST_VERSIONS).max(1);
        let versions = self.sessions.versions(stored.id, after, MOST_VERSIONS).await?;
        let refined = versions
            .iter()
            .rev()
            .filter(|version| version.kind == VersionKind::Refined);
        let mut room = FEEDBACK;
        let fits = refined.map_while(|version| {
            room = room.checked_sub(version.why.len())?;
            Some(format!("- {}", version.why))
        });
        let mut lines: Vec<_> = fits.collect();
        lines.reverse();
        Ok(lines.join("\n"))
    }

    /// The agent that plans, and the settings of its run: it can run now, and can change nothing.
    async fn planner(&self, caller: &Caller, meta: &RequestMeta) -> Result<(Chosen, Settings), Problem> {
        let project = self.directory.project(&caller.tenant, &ProjectId::default()).await?;
        let planner = project.agents.get(PLANNER).ok_or_else(|| missing(PLANNER))?;
        let readers = self.directory.tools_of(&project, PLANNER, &READS).await;
        let readers = readers.map_err(|reason| unavailable(format!("the agent {PLANNER} cannot run: {reason}")))?;
        if let Some(tool) = readers.iter().find(|tool| tool.side_effect) {
            let reason = format!("the agent {PLANNER} lists {}, which can change something", tool.name);
            return Err(unavailable(reason));
        }
        let settings = Settings {
            floor: Some(FLOOR),
            ..Settings::top(&planner.definition, None, meta.traceparent.clone())
        };
        Ok((project.choose(ProjectId::default(), PLANNER)?, settings))
    }
}

/// The planner, whose draft must fit the tools and the current plan.
fn drafting(planner: Chosen, work: &PlanningWork) -> Chosen {
    let current = work.current.as_ref().map(|tasks| Plan {
        tasks: tasks.clone(),
        last: work.last,
    });
    let schema = plan::schema(&work.tools, current.as_ref());
    Chosen {
        snapshot: Arc::new(planner.snapshot.with_output_schema(PLANNER, schema)),
        ..planner
    }
}

// What code reads of a repository before the planner's first turn (P-201), and how much of it the planner sees.

/// The most paths of the tree, those in the fewest directories first.
const PATHS: usize = 2000;
/// The most bytes of AGENT.md.
const AGENTS_FILE: usize = 32 * 1024;
/// The most bytes of README.md.
const README: usize = 16 * 1024;

const RETRIEVE: &str = READS[0];
const LIST: &str = READS[1];
const FILE: &str = READS[2];

/// The reads of a repository, and the message that is made of them.
pub(super) fn opening(repository: &Repository, message: &str, values: BTreeMap<String, String>) -> Opening {
    let read = |name: &str, tool: &str, pointer: &str, shown: Shown| Read {
        name: name.to_owned(),
        tool: tool.to_owned(),
        arguments: Map::from_iter([
            ("owner".to_owned(), Value::from(repository.owner.as_str())),
            ("repo".to_owned(), Value::from(repository.name.as_str())),
        ]),
        pointer: pointer.to_owned(),
        shown,
        is_required: false,
    };
    let file = |name: &str, path: &str, most: usize| {
        let mut read = read(name, FILE, "/file/content", Shown::Text(most));
        read.arguments.insert("path".to_owned(), Value::from(path));
        read
    };
    Opening {
        reads: vec![
            Read {
                is_required: true,
                ..read(REPOSITORY, RETRIEVE, "/repository", Shown::Json)
            },
            Read {
                is_required: true,
                ..read(TREE, LIST, "/entries", Shown::Paths(PATHS))
            },
            file(AGENT_MD, "AGENT.md", AGENTS_FILE),
            file(AGENTS_MD, "AGENTS.md", AGENTS_FILE),
            file("readme", "README.md", README),
        ],
        message: message.to_owned(),
        values,
    }
}

impl Planning {
    /// The session that the same request began before, or worked on.
    pub(super) async fn begun_before(&self, meta: &RequestMeta) -> Result<Option<BegunPlanning>, Problem> {
        let Some(begun) = self.runs.begun_before(meta).await? else {
            return Ok(None);
        };
        let session = self.sessions.session_of(begun.run).await?.ok_or(Code::NotFound)?;
        Ok(Some(BegunPlanning { session, begun }))
    }

    /// Begins the run of an agent in a session. Its recorded message is `task`.
    pub(super) async fn begin(
        &self,
        caller: &Caller,
        user: UserId,
        agent: Chosen,
        (place, task): (InSession, String),
        settings: Settings,
        meta: RequestMeta,
    ) -> Result<BegunPlanning, Problem> {
        let session = place.session;
        let begin = Begin {
            surface: PLANNING,
            origin: Origin::Session(place),
            agent,
            inputs: Map::from_iter([("task".to_owned(), Value::from(task))]),
            settings,
            meta,
        };
        let begun = self.runs.begin(caller, user, begin).await?;
        let session = match begun.replayed {
            // Another request with the same key came first.
            true => self.sessions.session_of(begun.run).await?.unwrap_or(session),
            false => session,
        };
        Ok(BegunPlanning { session, begun })
    }
}

/// What the gate and the rules know of a session, by the names of `SessionFacts::FIELDS`.
pub(super) fn bound(session: PlanningSessionId, repository: &Repository) -> BTreeMap<String, String> {
    let (id, owner, repo) = (session.to_string(), repository.owner.clone(), repository.name.clone());
    let values = SessionFacts::FIELDS.into_iter().zip([id, owner, repo]);
    values.map(|(name, value)| (name.to_owned(), value)).collect()
}
