//! Begins sessions and the runs that plan: a new session, and another version of its plan.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::checks::{draft_of, missing, not_allowed, project, prompt_error, unavailable, values};
use super::{BegunPlanning, FLOOR, Planning, RefinePlan, StartPlanning};
use crate::api::planning::{Session, VersionKind};
use crate::api::problem::Code;
use crate::domain::ids::{PlanningSessionId, UserId};
use crate::domain::plan::{self, Plan};
use crate::domain::planning_session::{PLANNER, READS};
use crate::domain::policy::{PLANNING, SessionFacts};
use crate::domain::repository::Repository;
use crate::domain::tool::Tool;
use crate::engine::agent::Settings;
use crate::engine::opening::{Opening, Read, Shown};
use crate::engine::planning::{AGENT_MD, AGENTS_MD, PlanningWork, REPOSITORY, TREE};
use crate::engine::snapshot::DefinitionSnapshot;
use crate::ports::planning::StoredSession;
use crate::ports::runs::{InSession, SessionWork};
use crate::surfaces::caller::Caller;
use crate::surfaces::definitions::Project;
use crate::surfaces::problem::Problem;
use crate::surfaces::request::RequestMeta;
use crate::surfaces::runs::{Begin, Origin};

/// The most earlier versions whose texts a refinement sees.
const MOST_VERSIONS: u32 = 20;
/// The most bytes of these texts.
const FEEDBACK: usize = 64 * 1024;

/// A run that plans, as its surface decides about it.
struct Work {
    place: InSession,
    opening: Opening,
    repository: Repository,
    work: PlanningWork,
    /// What persons wrote.
    words: Vec<String>,
    /// The recorded message.
    task: String,
    deadline_us: i64,
    background: bool,
    meta: RequestMeta,
    zone: Option<chrono_tz::Tz>,
}

impl Planning {
    /// Begins a session, and the run that makes its first plan (P-201, P-F1).
    ///
    /// # Errors
    /// [`Problem`]; what goes wrong later is the reason of the session.
    pub async fn start_planning(
        &self,
        caller: &Caller,
        user: UserId,
        start: StartPlanning,
    ) -> Result<BegunPlanning, Problem> {
        // First: a deadline that was far enough ahead may be too near when the request is sent again.
        if let Some(before) = self.begun_before(&start.meta).await? {
            return Ok(before);
        }
        let (repository, deadline_us) = self.checked(&start)?;
        let repo_url = self.settings.repositories.address(&repository);
        if !self.settings.repositories.allow(&caller.tenant, &repository) {
            return Err(not_allowed(repository));
        }
        let tools = self.worker_tools(caller).await?;
        let session = PlanningSessionId::new();
        let goal: Arc<str> = start.prompt.as_str().into();
        let work = PlanningWork {
            tools,
            current: None,
            last: 0,
            by: caller.person(Some(&user)).into(),
            why: Arc::clone(&goal),
        };
        let values = values(&work.tools, &goal, &repo_url, deadline_us);
        let work = Work {
            place: InSession {
                session,
                work: SessionWork::Start {
                    prompt: goal,
                    repo_url: repo_url.as_str().into(),
                    deadline_us,
                },
            },
            opening: opening(&repository, &self.settings.templates.plan, values),
            repository,
            work,
            words: vec![start.prompt.clone(), repo_url],
            task: start.prompt,
            deadline_us,
            background: start.background,
            meta: start.meta,
            zone: start.time_zone,
        };
        self.begin_planning(caller, user, work).await
    }

    /// Asks for another version of the plan (P-204, P-F2).
    ///
    /// # Errors
    /// As [`Planning::start_planning`]; the session does not wait for its confirmation.
    pub async fn refine_plan(
        &self,
        caller: &Caller,
        user: Option<&UserId>,
        refine: RefinePlan,
    ) -> Result<BegunPlanning, Problem> {
        let errors = prompt_error("/refinementPrompt", &refine.refinement_prompt);
        if let Some(error) = errors {
            return Err(Problem::from(vec![error]));
        }
        if let Some(before) = self.begun_before(&refine.meta).await? {
            return Ok(before);
        }
        let stored = self.open_for_changes(caller, user, refine.session).await?;
        let repository = self.repository(&stored)?;
        let tools = self.worker_tools(caller).await?;
        let change: Arc<str> = refine.refinement_prompt.as_str().into();
        let feedback = self.feedback(&stored).await?;
        let mut values = values(&tools, &stored.prompt, &stored.repo_url, stored.deadline_us);
        values.insert("plan".to_owned(), draft_of(&stored));
        values.insert("feedback".to_owned(), feedback.clone());
        values.insert("change".to_owned(), change.to_string());
        let work = Work {
            place: InSession {
                session: stored.id,
                work: SessionWork::Refine {
                    version: stored.version,
                },
            },
            opening: opening(&repository, &self.settings.templates.refine, values),
            repository,
            work: PlanningWork {
                tools,
                last: stored.plan.last,
                current: Some(stored.plan.tasks),
                by: caller.person(user).into(),
                why: Arc::clone(&change),
            },
            words: vec![
                stored.prompt.to_string(),
                stored.repo_url.to_string(),
                feedback,
                change.to_string(),
            ],
            task: refine.refinement_prompt,
            deadline_us: stored.deadline_us,
            background: refine.background,
            meta: refine.meta,
            zone: None,
        };
        self.begin_planning(caller, stored.user, work).await
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

    /// Begins the run of the agent `planner`.
    async fn begin_planning(&self, caller: &Caller, user: UserId, work: Work) -> Result<BegunPlanning, Problem> {
        let (project, readers) = self.ready(caller, PLANNER, &READS).await?;
        if let Some(tool) = readers.iter().find(|tool| tool.side_effect) {
            let reason = format!("the agent {PLANNER} lists {}, which can change something", tool.name);
            return Err(unavailable(reason));
        }
        let current = work.work.current.as_ref().map(|tasks| Plan {
            tasks: tasks.clone(),
            last: work.work.last,
        });
        let schema = plan::schema(&work.work.tools, current.as_ref());
        let (snapshot, definition) = project
            .snapshot(PLANNER)
            .zip(project.agents.get(PLANNER))
            .ok_or(Code::NotFound)?;
        let settings = Settings {
            until_us: Some(work.deadline_us),
            zone: work.zone,
            floor: Some(FLOOR),
            // No call may name another repository.
            bound: Some(Arc::new(bound(work.place.session, &work.repository))),
            words: Some(Arc::new(work.words)),
            opening: Some(Arc::new(work.opening)),
            planning: Some(Arc::new(work.work)),
            ..Settings::top(&definition.definition, None, work.meta.traceparent.clone())
        };
        let run = SessionRun {
            agent: PLANNER,
            place: work.place,
            snapshot: Arc::new(snapshot.with_output_schema(PLANNER, schema)),
            settings,
            task: work.task,
            background: work.background,
            meta: work.meta,
        };
        self.begin(caller, user, &project, run).await
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

/// A run of one of the agents of planning.
pub(super) struct SessionRun {
    pub(super) agent: &'static str,
    pub(super) place: InSession,
    pub(super) snapshot: Arc<DefinitionSnapshot>,
    pub(super) settings: Settings,
    /// The recorded message.
    pub(super) task: String,
    pub(super) background: bool,
    pub(super) meta: RequestMeta,
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

    /// The project of an agent that can run now, and those of its tools that servers offer: the `needed` ones, and others.
    pub(super) async fn ready(
        &self,
        caller: &Caller,
        agent: &str,
        needed: &[&str],
    ) -> Result<(Arc<Project>, Vec<Arc<Tool>>), Problem> {
        let project = self.directory.project(&caller.tenant, &project()).await?;
        if !project.agents.contains_key(agent) {
            return Err(missing(agent));
        }
        let tools = self.directory.tools_of(&project, agent, needed).await;
        let tools = tools.map_err(|reason| unavailable(format!("the agent {agent} cannot run: {reason}")))?;
        Ok((project, tools))
    }

    /// Begins a run.
    pub(super) async fn begin(
        &self,
        caller: &Caller,
        user: UserId,
        of: &Project,
        run: SessionRun,
    ) -> Result<BegunPlanning, Problem> {
        let session = run.place.session;
        let begin = Begin {
            surface: PLANNING,
            origin: Origin::Session(run.place),
            project: project(),
            agent: run.agent.into(),
            version: of.versions.get(run.agent).copied(),
            snapshot: run.snapshot,
            inputs: Map::from_iter([("task".to_owned(), Value::from(run.task))]),
            settings: run.settings,
            background: run.background,
            meta: run.meta,
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
