//! A definition, inputs and settings made into a run (D-R1 to D-R3).

use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::{Agents, Bundle, Place, Round, Settings};
use crate::domain::definition::{Approval, Definition, Field};
use crate::domain::journal::{Entry, Target};
use crate::domain::templates::{MOST_RENDERED, RenderError, Template};
use crate::engine::log::Log;
use crate::engine::next::Ending;
use crate::engine::toolset::clash;
use crate::engine::verdict::{OutputContract, VerdictFunction};
use crate::engine::{Run, Toolset, context, flow};
use crate::ports::model::Declaration;
use crate::ports::runs::StoredRun;
use crate::ports::tools::Catalog;

/// How long a run waits for servers its grant names. Longer than a request does: nobody may be waiting, and a run that
/// is taken up at the start of a process finds none connected.
const SERVER_WAIT: Duration = Duration::from_secs(15);

/// What a run is made of, once it is clear that it can be made.
pub(super) struct Parts {
    pub(super) bundle: Arc<Bundle>,
    pub(super) definition: Arc<Definition>,
    pub(super) settings: Settings,
    pub(super) input: Map<String, Value>,
    toolset: Arc<Toolset>,
    system: Arc<str>,
    /// What the model is told first; a flow tells its steps.
    task: Option<String>,
    output_due: bool,
}

/// Why a run cannot be put together.
pub(super) struct Unable {
    pub(super) ending: Ending,
    /// More of it, for operators alone.
    pub(super) detail: Option<Arc<str>>,
}

impl From<Ending> for Unable {
    fn from(ending: Ending) -> Self {
        Self { ending, detail: None }
    }
}

/// Reads what was kept of a run, where its caller does not know it, and finds its tools: all of them, unless it goes on without those
/// that are not there.
///
/// # Errors
/// [`Ending::Unable`], or [`Ending::TooLong`] with the text that is, in words for whoever triggered it.
pub(super) async fn parts(
    agents: &Agents,
    stored: &StoredRun,
    known: Option<&Arc<Bundle>>,
    goes_on: bool,
) -> Result<Parts, Unable> {
    let unable = |what: &str, error: &dyn Display| Ending::Unable(format!("{what}: {error}"));
    let bundle =
        Bundle::read_once(&stored.snapshot, known).map_err(|error| unable("its definition cannot be read", &error))?;
    let member = bundle
        .get(&stored.agent)
        .ok_or_else(|| Ending::Unable(format!("its definition does not hold {:?}", stored.agent.as_ref())))?
        .clone();
    let settings: Settings =
        serde_json::from_str(stored.settings.get()).map_err(|error| unable("its settings cannot be read", &error))?;
    let input: Map<String, Value> =
        serde_json::from_str(stored.input.get()).map_err(|error| unable("its inputs cannot be read", &error))?;
    let definition = member.definition;
    agents.models.of(&definition).map_err(Ending::Unable)?;
    let contract = match (&definition.output, &member.output_schema) {
        (Some(output), Some(schema)) => Some(Arc::new(
            OutputContract::new(output, schema).map_err(|error| unable("its output schema is none", &error))?,
        )),
        _ => None,
    };
    let output_due = contract.is_some();
    let mut verdicts = Vec::new();
    if settings.in_loop && settings.flow(&definition).is_none() {
        verdicts.push(VerdictFunction::ExitLoop(contract.clone()));
    }
    verdicts.extend(contract.map(VerdictFunction::CompleteTask));
    let toolset = if settings.flow(&definition).is_some() {
        Arc::new(Toolset::build(&Catalog::default(), &[], &[]))
    } else {
        toolset(agents, &bundle, &definition, &verdicts, goes_on).await?
    };
    let (mut system, mut task) = (String::new(), None);
    if let Some(prompt) = &definition.prompt {
        system = rendered(Field::SystemPrompt, &prompt.system_prompt, &definition, &input)?;
        if settings.flow(&definition).is_none() {
            let words = rendered(Field::Query, &prompt.query, &definition, &input)?;
            task = Some(with_round(words, settings.round.as_ref(), &definition)?);
        }
    }
    Ok(Parts {
        bundle,
        definition,
        settings,
        input,
        toolset,
        system: system.into(),
        task,
        output_due,
    })
}

/// Exactly the tools and agents that are granted; without one of them the agent is another one, and does not begin to run.
async fn toolset(
    agents: &Agents,
    bundle: &Bundle,
    definition: &Definition,
    verdicts: &[VerdictFunction],
    goes_on: bool,
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
    // Reasons hold what servers say of themselves, and are for operators: what is told here is read by users, and by the model.
    for missing in &toolset.missing {
        tracing::warn!(agent = %definition.name, tool = %missing.name, reason = %missing.reason, "a tool that an agent needs is not there");
    }
    if toolset.missing.is_empty() || goes_on {
        return Ok(Arc::new(toolset));
    }
    let missing: Vec<_> = toolset.missing.iter().map(|one| one.name.as_str()).collect();
    Err(Unable {
        ending: Ending::Unable(format!(
            "tools that it needs are not there: {}; `gavel doctor` says why",
            missing.join(", ")
        )),
        detail: toolset.shortage().map(Arc::from),
    })
}

/// An agent as its caller's model sees it (D-3, D-4).
fn declaration(definition: &Definition) -> Declaration {
    Declaration {
        name: definition.name.clone(),
        description: definition.description.clone(),
        parameters: crate::domain::canonical::to_raw(&definition.call_schema()),
    }
}

impl Parts {
    /// The first entries of a new run's journal: the task. A flow has none, its steps have.
    pub(super) fn task(&self, now_us: i64) -> Vec<Entry> {
        let words = self.task.iter();
        let told = words.map(|words| Entry::User(context::message(words, now_us, self.settings.zone, &[])));
        told.collect()
    }

    /// The run. `journal` is what has happened, tools of earlier processes not found yet.
    pub(super) fn run(
        self,
        agents: &Arc<Agents>,
        stored: &StoredRun,
        mut journal: Vec<Entry>,
        before: Duration,
        log: Log,
        cancel: CancellationToken,
    ) -> Run {
        for entry in &mut journal {
            find_tools(entry, &self.toolset);
        }
        let began = agents.engine.clock.instant();
        let settings = self.definition.model.clone();
        Run {
            record: stored.decision.clone(),
            opened: true,
            system: self.system,
            settings: Arc::new(settings),
            approval: match (self.settings.needs_leave, self.definition.approval) {
                (true, Approval::Never) => Approval::SideEffects,
                (_, approval) => approval,
            },
            can_wait: true,
            zone: self.settings.zone,
            grants: Vec::new(),
            toolset: self.toolset,
            history: Vec::new(),
            journal,
            limits: self.settings.limits(self.output_due),
            began,
            before,
            traceparent: self.settings.traceparent.clone(),
            events: None,
            cancel,
            intended: Vec::new(),
            fault_detail: None,
            log: Some(log),
            agent: Some(Place {
                agents: Arc::clone(agents),
                bundle: self.bundle,
                definition: self.definition,
                project: stored.project.clone(),
                input: self.input,
                settings: self.settings,
                calling: Arc::default(),
            }),
            remembered: None,
        }
    }
}

/// The task, and what is told of its round after it.
fn with_round(words: String, round: Option<&Round>, definition: &Definition) -> Result<String, Ending> {
    let Some(round) = round else { return Ok(words) };
    let words = words + &told(round);
    match words.len() {
        length if length > MOST_RENDERED => {
            let what = format!("with what the round before came to {}", RenderError::TooLong(length));
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

/// What is told of a round after the task.
fn told(round: &Round) -> String {
    let mut words = format!(
        "\n\nThis is round {} of at most {}. When nothing is left to improve, end with exit_loop.",
        round.number, round.of
    );
    if let Some(before) = &round.before {
        words.push_str("\nThe round before came to this:\n<result>\n");
        words.push_str(before);
        words.push_str("\n</result>");
    }
    words
}

/// A text with the inputs put in: words as they are, everything else as JSON, an optional one that is absent as nothing.
fn rendered(field: Field, text: &str, definition: &Definition, input: &Map<String, Value>) -> Result<String, Ending> {
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

/// Tools of an earlier process are tools again where they are what they were.
fn find_tools(entry: &mut Entry, toolset: &Toolset) {
    let Entry::ModelTurn { calls, .. } = entry else { return };
    for call in calls {
        if let Target::Gone(tool) = &call.target
            && let Some(found) = toolset.find(tool)
        {
            call.target = Target::Tool(Arc::clone(found));
        }
    }
}
