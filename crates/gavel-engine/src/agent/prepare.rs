//! Builds a run from a definition, inputs and settings (D-R1 to D-R3).

use crate::journal::Journal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::call::Children;
use super::given::{Given, Known};
use super::texts::{rendered, task, to_message};
use super::{Agents, Settings};
use crate::agent_context::AgentContext;
use crate::domain::definition::{Approval, Definition, Field};
use crate::domain::journal::{Entry, Target};
use crate::log::Log;
use crate::next::Ending;
use crate::ports::model::Declaration;
use crate::ports::runs::StoredRun;
use crate::ports::tools::Catalog;
use crate::record::{Durability, Record};
use crate::run::{Context, Run};
use crate::snapshot::DefinitionSnapshot;
use crate::strategy::Strategy;
use crate::toolset::{Missing, Toolset, clash};
use crate::verdict::VerdictFunction;

/// How long a run waits for the servers of its tools. Longer than for a request: often no caller waits, and right after
/// a process starts no server is connected.
const SERVER_WAIT: Duration = Duration::from_secs(15);

/// The parts of a run that can be built.
pub(super) struct Parts {
    pub(super) bundle: Arc<DefinitionSnapshot>,
    pub(super) definition: Arc<Definition>,
    pub(super) settings: Settings,
    pub(super) input: Map<String, Value>,
    pub(super) strategy: Strategy,
    toolset: Arc<Toolset>,
    system: Arc<str>,
    output_due: bool,
}

/// Why a run cannot be built.
pub(super) struct Unable {
    pub(super) ending: Ending,
    /// Further details, for operators only.
    pub(super) detail: Option<Arc<str>>,
}

impl From<Ending> for Unable {
    fn from(ending: Ending) -> Self {
        Self { ending, detail: None }
    }
}

/// Reads the stored parts of a run, unless its caller knows them, and finds its tools. All tools must be available,
/// unless the run tolerates missing ones.
///
/// # Errors
/// [`Ending::Unable`], or [`Ending::TooLong`] with the text that is too long; in words for the caller that triggered
/// it.
pub(super) async fn parts(
    agents: &Agents,
    stored: &StoredRun,
    known: Known<'_>,
    tolerate_missing_tools: bool,
) -> Result<Parts, Unable> {
    let Given {
        bundle,
        settings,
        input,
    } = known.read(stored)?;
    let Some(member) = bundle.get(&stored.agent).cloned() else {
        let why = format!("its stored definitions do not contain {:?}", stored.agent.as_ref());
        return Err(Ending::Unable(why).into());
    };
    let definition = Arc::clone(&member.definition);
    agents.models.of(&definition).map_err(Ending::Unable)?;
    let contract = member
        .contract()
        .map_err(|error| Ending::Unable(format!("its output schema is invalid: {error}")))?;
    let output_due = contract.is_some();
    let strategy = settings.strategy(&definition);
    let mut verdicts = Vec::new();
    if settings.in_loop && !strategy.has_steps() {
        verdicts.push(VerdictFunction::ExitLoop(contract.clone()));
    }
    let basis = settings.planning.as_ref().zip(stored.origin.session());
    let basis = basis.map(|(work, session)| Arc::new(work.basis(*session)));
    verdicts.extend(contract.map(|contract| match basis {
        Some(basis) => VerdictFunction::CompletePlan(contract, basis),
        None => VerdictFunction::CompleteTask(contract),
    }));
    if let Strategy::React(work) = &strategy {
        verdicts.push(VerdictFunction::Reflect(work.tools.as_slice().into()));
    }
    // In a planning session the allowlist names tools of servers that need not be there: what a plan can name was
    // looked at before. It needs what code reads at its beginning.
    let in_session = settings.planning.is_some() || matches!(strategy, Strategy::React(_));
    let read = |name: &str| {
        let reads = settings.opening.iter().flat_map(|opening| &opening.reads);
        reads.into_iter().any(|read| read.tool == name)
    };
    let is_needed = |name: &str| match in_session {
        true => read(name),
        false => !tolerate_missing_tools,
    };
    let toolset = if strategy.has_steps() {
        Arc::new(Toolset::build(&Catalog::default(), &[], &[]))
    } else {
        let generation = agents.engine.tools.catalog().generation;
        match member.toolset(generation, settings.in_loop) {
            Some(toolset) => toolset,
            None => {
                let toolset = toolset(agents, &bundle, &definition, &verdicts, is_needed).await?;
                if toolset.missing.is_empty() {
                    member.keep_toolset(&toolset, settings.in_loop);
                }
                toolset
            }
        }
    };
    let system = match &definition.prompt {
        Some(prompt) => rendered(Field::SystemPrompt, &prompt.system_prompt, &definition, &input)?,
        None => String::new(),
    };
    Ok(Parts {
        bundle,
        definition,
        settings,
        input,
        strategy,
        toolset,
        system: system.into(),
        output_due,
    })
}

/// Exactly the listed tools and agents. If one is missing that is needed, the agent would not be the same, so the run
/// does not start.
async fn toolset(
    agents: &Agents,
    bundle: &DefinitionSnapshot,
    definition: &Definition,
    verdicts: &[VerdictFunction],
    is_needed: impl Fn(&str) -> bool,
) -> Result<Arc<Toolset>, Unable> {
    let is_agent = |name: &str| bundle.get(name).is_some();
    let called = definition.calls(is_agent).into_iter();
    let declarations: Vec<_> = called
        .filter_map(|name| Some(declaration(&bundle.get(name)?.definition)))
        .collect();
    let grant = definition.server_tools(is_agent);
    let tools = &agents.engine.tools;
    let find = || Toolset::with_agents(&tools.catalog(), &grant, &declarations, verdicts);
    let mut toolset = find();
    if !toolset.missing.is_empty() {
        let names: Vec<_> = toolset.missing.iter().map(|one| one.name.clone()).collect();
        tools.ready(&names, Instant::now() + SERVER_WAIT).await;
        toolset = find();
    }
    if let Some(clash) = clash(&tools.catalog(), definition, is_agent) {
        return Err(Ending::Unable(clash).into());
    }
    // The reasons contain the servers' own text, so they are for operators only: users and the model read the error
    // below.
    for Missing { name, reason } in &toolset.missing {
        match is_needed(name) {
            true => {
                tracing::warn!(agent = %definition.name, tool = %name, %reason, "a tool that an agent needs is unavailable")
            }
            false => {
                tracing::debug!(agent = %definition.name, tool = %name, %reason, "an agent works without a tool that is unavailable")
            }
        }
    }
    let missing = toolset.missing.iter().map(|one| one.name.as_str());
    let missing: Vec<_> = missing.filter(|name| is_needed(name)).collect();
    if missing.is_empty() {
        return Ok(Arc::new(toolset));
    }
    Err(Unable {
        ending: Ending::Unable(format!(
            "tools that it needs are unavailable: {}; `gavel doctor` shows the reason",
            missing.join(", ")
        )),
        detail: toolset.shortage().map(Arc::from),
    })
}

/// An agent as a function, for the model that may call it (D-3, D-4).
fn declaration(definition: &Definition) -> Declaration {
    Declaration {
        name: definition.name.clone(),
        description: definition.description.clone(),
        parameters: crate::domain::canonical::to_raw(&definition.call_schema()),
    }
}

impl Parts {
    /// The first entry of a new run's journal.
    pub(super) fn first_entry(&self, now_us: i64) -> Result<Option<Entry>, Ending> {
        let task = task(&self.definition, &self.strategy, &self.settings, &self.input)?;
        Ok(task.map(|task| to_message(&task, now_us, self.settings.zone)))
    }

    /// Builds the run. The tools in `journal` that earlier processes used are looked up again.
    pub(super) fn run(
        self,
        agents: &Arc<Agents>,
        stored: &StoredRun,
        mut journal: Journal,
        before: Duration,
        log: Log,
        cancel: CancellationToken,
    ) -> Run {
        for entry in journal.entries_mut() {
            find_tools(entry, &self.toolset);
        }
        let began = agents.engine.clock.instant();
        let now_us = agents.engine.clock.now_us();
        let limits = self.settings.limits_at(now_us, before, self.output_due);
        let agent = AgentContext {
            definition: Arc::clone(&self.definition),
            snapshot: Arc::clone(&self.bundle),
            input: self.input,
            depth: self.settings.depth,
            actions: Arc::clone(&agents.actions),
        };
        Run {
            record: Record {
                journal,
                before,
                ..Record::new(stored.decision.clone(), Durability::Log(log), began)
            },
            context: Context {
                system: self.system,
                settings: Arc::new(self.definition.model.clone()),
                approval: self.definition.approval,
                floor: self.settings.floor.unwrap_or(Approval::Never),
                zone: self.settings.zone,
                toolset: self.toolset,
                bound: self.settings.bound.clone(),
                words: self.settings.words.clone(),
                scope: self.settings.scope.clone(),
                history: Vec::new(),
                strategy: self.strategy.clone(),
                limits,
                traceparent: self.settings.traceparent.clone(),
                events: None,
                cancel: cancel.clone(),
                agent: Some(agent),
                children: Some(Arc::new(Children {
                    agents: Arc::clone(agents),
                    project: stored.project.clone(),
                    definition: self.definition,
                    snapshot: self.bundle,
                    settings: self.settings,
                    strategy: self.strategy,
                    limits,
                    cancel,
                    driving: Mutex::default(),
                })),
            },
        }
    }
}

/// Resolves tools that an earlier process used, if they are unchanged.
fn find_tools(entry: &mut Entry, toolset: &Toolset) {
    let calls = match entry {
        Entry::ModelTurn { calls, .. } => calls.as_mut_slice(),
        Entry::Step { call, .. } => std::slice::from_mut(call),
        _ => return,
    };
    for call in calls {
        if let Target::Unresolved(tool) = &call.target
            && let Some(found) = toolset.find(tool)
        {
            call.target = Target::Tool(Arc::clone(found));
        }
    }
}
