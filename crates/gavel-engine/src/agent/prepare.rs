//! Builds a run from a definition, inputs and settings (D-R1 to D-R3).

use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono_tz::Tz;
use serde_json::{Map, Value};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::call::Children;
use super::{Agents, Round, Settings};
use crate::context::{self, AgentContext};
use crate::domain::definition::{Approval, Definition, Field};
use crate::domain::journal::{Completion, Entry, Target, Verdict};
use crate::domain::templates::{MOST_RENDERED, RenderError, Template};
use crate::flow;
use crate::journal::Journal;
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
                definition: Arc::clone(&self.definition),
                floor: self.settings.floor.unwrap_or(Approval::Never),
                zone: self.settings.zone,
                toolset: self.toolset,
                bound: self.settings.bound.clone(),
                words: self.settings.words.clone(),
                scope: self.settings.scope.clone(),
                history: Arc::default(),
                strategy: self.strategy,
                limits,
                traceparent: self.settings.traceparent.clone(),
                events: None,
                cancel,
                agent: Some(agent),
                children: Some(Arc::new(Children {
                    agents: Arc::clone(agents),
                    project: stored.project.clone(),
                    definition: self.definition,
                    snapshot: self.bundle,
                    settings: self.settings,
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

// What a run is prepared from, as its row stores it.

/// What a run is prepared from, as its row stores it.
pub struct Given {
    /// The definitions that it needs, with its own.
    pub bundle: Arc<DefinitionSnapshot>,
    /// Its settings.
    pub settings: Settings,
    /// Its inputs.
    pub input: Map<String, Value>,
}

/// What is known of a run before its row is read.
pub(super) enum Known<'a> {
    /// The definitions of the run that called it, if one did.
    Bundle(Option<&'a Arc<DefinitionSnapshot>>),
    All(Box<Given>),
}

impl Known<'_> {
    /// Reads what is not known.
    ///
    /// # Errors
    /// [`Ending::Unable`]: what is stored is of a later version, or damaged.
    pub(super) fn read(self, stored: &StoredRun) -> Result<Given, Ending> {
        let unable = |what: &str, error: &dyn Display| Ending::Unable(format!("{what}: {error}"));
        let known = match self {
            Self::All(given) => return Ok(*given),
            Self::Bundle(bundle) => bundle,
        };
        Ok(Given {
            bundle: DefinitionSnapshot::read_once(&stored.snapshot, known)
                .map_err(|error| unable("its definition cannot be read", &error))?,
            settings: Settings::read(&stored.settings).map_err(Ending::Unable)?,
            input: serde_json::from_str(stored.input.get())
                .map_err(|error| unable("its inputs cannot be read", &error))?,
        })
    }
}

// The texts that are made of a run's definition: its system prompt, its task, and its final text.

/// The first message to the model. The steps of a flow have one instead, and so has what a run reads first.
pub(super) fn task(
    definition: &Definition,
    strategy: &Strategy,
    settings: &Settings,
    input: &Map<String, Value>,
) -> Result<Option<String>, Ending> {
    let Some(prompt) = definition
        .prompt
        .as_ref()
        .filter(|_| matches!(strategy, Strategy::Turns | Strategy::React(_)))
    else {
        return Ok(None);
    };
    let words = rendered(Field::Query, &prompt.query, definition, input)?;
    with_round(words, settings.round.as_ref(), definition).map(Some)
}

/// The task as the first entry of a journal.
pub(super) fn to_message(task: &str, now_us: i64, zone: Option<Tz>) -> Entry {
    Entry::User(context::message(task, now_us, zone, &[]))
}

/// The task, followed by the text about the current round.
fn with_round(words: String, round: Option<&Round>, definition: &Definition) -> Result<String, Ending> {
    let Some(round) = round else { return Ok(words) };
    let words = words + &round_message(round);
    match words.len() {
        length if length > MOST_RENDERED => {
            let what = format!(
                "with the result of the previous round, {}",
                RenderError::TooLong(length)
            );
            Err(too_long(Field::Query, definition, &what))
        }
        _ => Ok(words),
    }
}

fn too_long(field: Field, definition: &Definition, what: &str) -> Ending {
    Ending::TooLong(format!(
        "{} of the agent {:?}: {what}",
        field.portable(),
        definition.name
    ))
}

/// The text about the current round, which follows the task.
fn round_message(round: &Round) -> String {
    let mut words = format!(
        "\n\nThis is round {} of at most {}. When nothing is left to improve, end with exit_loop.",
        round.number, round.of
    );
    if let Some(before) = &round.before {
        words.push_str("\nThe result of the previous round:\n<result>\n");
        words.push_str(before);
        words.push_str("\n</result>");
    }
    words
}

/// A text with its inputs inserted: strings unchanged, other values as JSON, absent optional inputs as nothing.
pub(super) fn rendered(
    field: Field,
    text: &str,
    definition: &Definition,
    input: &Map<String, Value>,
) -> Result<String, Ending> {
    let value = |name: &str| match input.get(name) {
        Some(value) => Some(flow::text(value)),
        None if definition.inputs.contains_key(name) => Some(String::new()),
        None => None,
    };
    // Checked when the definition was read: each placeholder is an input.
    let Ok(template) = Template::parse(text) else {
        return Ok(text.to_owned());
    };
    match template.render(value) {
        Ok(rendered) => Ok(rendered),
        Err(RenderError::Missing(_)) => Ok(text.to_owned()),
        Err(error) => Err(too_long(field, definition, &error.to_string())),
    }
}

/// The final text, if the definition formats the output (D-6).
///
/// # Errors
/// The text would be too long.
pub(super) fn formatted(definition: Option<&Definition>, ending: &Ending) -> Result<Option<String>, String> {
    let (Ending::Verdict(Verdict::Complete { output, .. }) | Ending::Flow(output)) = ending else {
        return Ok(None);
    };
    let (Some(definition), Completion::Output(json)) = (definition, output) else {
        return Ok(None);
    };
    let template = definition.process_output.as_deref().map(Template::parse);
    let (Some(Ok(template)), Ok(value)) = (template, serde_json::from_str::<Value>(json)) else {
        return Ok(None);
    };
    let whole = definition.output.as_ref().map(|output| output.name.as_str());
    let find = |name: &str| match value.get(name) {
        Some(property) => Some(flow::text(property)),
        None if Some(name) == whole => Some(flow::text(&value)),
        // An optional property.
        None => Some(String::new()),
    };
    match template.render(find) {
        Ok(text) => Ok(Some(text)),
        Err(RenderError::Missing(_)) => Ok(None),
        Err(error) => Err(format!(
            "{} of the agent {:?}: {error}",
            Field::ProcessOutput.portable(),
            definition.name
        )),
    }
}
