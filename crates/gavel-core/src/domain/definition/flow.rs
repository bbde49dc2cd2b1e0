//! The flow of an agent: `flow_type`, `steps`, `max_iterations`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use gavel_reading::{At, Content, OneOf, Parser, Scalar, quoted, unknown_name_message};

use super::Input;
use super::fields::Field;
use super::values::{AGENT, Places, SECONDS, SOME_TEXT, Values};
use crate::domain::names::names;
use crate::domain::templates::{Template, malformed_at};

/// The flow of an agent's work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Flow {
    /// The agent works on the task once.
    #[default]
    Single,
    /// The steps run one after another.
    Sequential {
        /// Distinct names. If empty, the agent itself is the only step, so it works on the task once.
        steps: Vec<Step>,
    },
    /// The steps run repeatedly, until one of their agents ends the loop.
    Loop {
        /// The steps of the loop; if empty, the agent itself.
        steps: Vec<Step>,
        /// The most iterations; at least 1.
        max_iterations: u32,
    },
}

/// A step of a flow: another agent and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The name by which later steps refer to its output. Differs from the names of other steps and of inputs.
    pub name: String,
    /// The agent.
    pub agent: String,
    /// Templates by argument of that agent: `${name}` is an input of the flow or the output of a step. An argument
    /// without a template takes the step's output or the input of the same name.
    pub input: BTreeMap<String, String>,
    /// Its time limit, which replaces its agent's own; whole seconds.
    pub timeout: Option<Duration>,
}

impl Flow {
    /// The most iterations of a loop that sets no limit.
    pub const DEFAULT_ITERATIONS: u32 = 3;

    /// The steps; empty if the agent itself does the work.
    pub fn steps(&self) -> &[Step] {
        match self {
            Self::Single => &[],
            Self::Sequential { steps } | Self::Loop { steps, .. } => steps,
        }
    }

    /// The name in a definition.
    pub fn as_str(&self) -> &'static str {
        let kind = match self {
            Self::Single => FlowType::Single,
            Self::Sequential { .. } => FlowType::Sequential,
            Self::Loop { .. } => FlowType::Loop,
        };
        kind.as_str()
    }

    /// The steps whose output step `n` can use: the earlier ones; in a loop all, with their outputs of the previous
    /// round.
    pub(super) fn known_to(&self, n: usize) -> &[Step] {
        match self {
            Self::Single => &[],
            Self::Sequential { steps } => &steps[..n],
            Self::Loop { steps, .. } => steps,
        }
    }
}

// Reads the fields of a flow.

names! {
    /// The type of a flow (`flow_type`).
    FlowType {
        /// Once.
        Single = "single",
        /// Its steps, one after another.
        Sequential = "sequential",
        /// Its steps, repeatedly.
        Loop = "loop",
    }
}

/// Reads the flow. An invalid flow is returned as far as it could be read. `inputs` is `None` if they are invalid.
pub(super) fn flow(values: &mut Values<'_>, inputs: Option<&BTreeMap<String, Input>>) -> Flow {
    let kind = values.take(Field::FlowType, OneOf(FlowType::NAMES));
    let invalid_type = kind.is_none() && values.has(Field::FlowType);
    let (steps, all_read) = steps(values, inputs);
    let rounds = values.count(Field::MaxIterations);
    // Steps are checked even if the type is invalid, as in a loop, where each may use all of them.
    let otherwise = if invalid_type && !steps.is_empty() {
        FlowType::Loop
    } else {
        FlowType::Single
    };
    let kind = kind.unwrap_or(otherwise);
    let flow = match kind {
        FlowType::Single => Flow::Single,
        FlowType::Sequential => Flow::Sequential { steps },
        FlowType::Loop => Flow::Loop {
            steps,
            max_iterations: rounds.unwrap_or(Flow::DEFAULT_ITERATIONS),
        },
    };
    if all_read {
        if let Some(inputs) = inputs {
            check_names(values, &flow, inputs);
        }
        values.names.flow = flow.clone();
    }
    let has_rounds = values.has(Field::MaxIterations);
    // Without a type, both errors have the same cause.
    let invalid = match kind {
        _ if invalid_type => None,
        FlowType::Single if values.has(Field::Steps) => match has_rounds {
            true => Some((Field::Steps, "loop")),
            false => Some((Field::Steps, "sequential or loop")),
        },
        FlowType::Single | FlowType::Sequential if has_rounds => Some((Field::MaxIterations, "loop")),
        FlowType::Single | FlowType::Sequential | FlowType::Loop => None,
    };
    if let Some((field, types)) = invalid {
        let found = format!("a flow of the type {}", flow.as_str());
        let allowed = format!("flow_type {types}, or nothing here");
        values.place(field).error(found, allowed);
    }
    flow
}

/// A flow of steps calls no model itself, so settings for a model have no effect: one error for all of them.
pub(super) fn only_for_models(values: &Values<'_>) {
    let fields = [
        Field::OutputName,
        Field::OutputDescription,
        Field::OutputSchema,
        Field::ProcessOutput,
        Field::Query,
        Field::SystemPrompt,
        Field::Provider,
        Field::Model,
        Field::Temperature,
        Field::TopP,
        Field::ThinkingBudget,
        Field::ThinkingLevel,
        Field::IncludeThoughts,
        Field::MaxOutputTokens,
        Field::Tools,
        Field::SubAgents,
        Field::Approval,
    ];
    // An empty list is the same as none.
    let says_something = |at: &&At<'_>| !at.node.items().is_some_and(<[_]>::is_empty);
    let given = fields.into_iter().filter_map(|field| values.given(field));
    let mut given: Vec<_> = given.filter(says_something).collect();
    given.sort_by_key(|at| (at.line, &at.path));
    if let Some(first) = given.first() {
        let paths: Vec<_> = given.iter().map(|at| format!("`{}`", at.path)).collect();
        let allowed = "only steps, whose agents have their own prompts, models and tools; or only these, without steps: \
                       then the agent itself is the only step";
        first.error(format!("{} beside `steps`", paths.join(", ")), allowed);
    }
}

/// The steps, and whether all of them could be read.
fn steps(values: &mut Values<'_>, inputs: Option<&BTreeMap<String, Input>>) -> (Vec<Step>, bool) {
    let allowed = "a list of steps, at least one: the name of an agent, or {name, agent, input, timeout}";
    let items = values.items(Field::Steps, allowed);
    if let Some(at) = values.given(Field::Steps)
        && at.node.items().is_some_and(<[_]>::is_empty)
    {
        at.invalid(allowed);
    }
    let mut steps: Vec<Step> = Vec::new();
    for (n, at) in items.iter().enumerate() {
        let Some(step) = step(at, n, &mut values.places) else {
            continue;
        };
        values.names.agents.push((format!("steps[{n}]"), step.agent.clone()));
        let taken = if inputs.is_some_and(|inputs| inputs.contains_key(&step.name)) {
            Some("an input has this name too")
        } else if steps.iter().any(|other| other.name == step.name) {
            Some("another step has this name too")
        } else {
            None
        };
        if let Some(taken) = taken {
            let allowed = "a unique `name` for each step, because later steps refer to its output by name";
            let at = at.clone().named(format!("{}.name", at.path));
            at.error(format!("{}; {taken}", quoted(&step.name)), allowed);
        }
        steps.push(step);
    }
    let all_read = !items.is_empty() && steps.len() == items.len();
    (steps, all_read)
}

fn step(at: &At<'_>, n: usize, places: &mut Places) -> Option<Step> {
    if !matches!(at.node.content, Content::Map(_)) {
        let agent = Scalar {
            allowed: "the name of an agent, or a map of name, agent, input and timeout",
            read: AGENT.read,
        };
        return agent.parse(at).map(|agent| Step {
            name: agent.clone(),
            agent,
            input: BTreeMap::new(),
            timeout: None,
        });
    }
    at.record(|fields| {
        let name = fields.take("name", AGENT);
        let agent = fields.need_as("agent", "the name of an agent", AGENT);
        let input = fields.get("input").map(|at| templates(&at, places, n));
        let timeout = fields.take("timeout", SECONDS);
        // Of an invalid step nothing is known.
        let is_absent = |field| fields.get(field).is_none();
        let is_valid = (name.is_some() || is_absent("name")) && (timeout.is_some() || is_absent("timeout"));
        let agent = agent.filter(|_| is_valid)?;
        Some(Step {
            name: name.unwrap_or_else(|| agent.clone()),
            agent,
            input: input.unwrap_or_else(|| Some(BTreeMap::new()))?,
            timeout,
        })
    })
}

/// The templates of one step. Their placeholders are checked once all steps are known.
fn templates(at: &At<'_>, places: &mut Places, n: usize) -> Option<BTreeMap<String, String>> {
    if !matches!(at.node.content, Content::Map(_)) {
        at.invalid("a map from argument of the step's agent to a text with ${placeholders}");
        return None;
    }
    let mut templates = BTreeMap::new();
    for (name, at) in at.entries()? {
        places.insert(format!("steps[{n}].input.{name}"), &at);
        // An invalid template still counts as given.
        templates.insert(name.to_owned(), SOME_TEXT.parse(&at).unwrap_or_default());
    }
    Some(templates)
}

/// Each placeholder of a step must name an input of the flow, or a step whose output exists by then.
fn check_names(values: &Values<'_>, flow: &Flow, inputs: &BTreeMap<String, Input>) {
    // For a duplicate name, which is an error, the first step.
    let numbered = flow.steps().iter().enumerate().rev();
    let places: HashMap<&str, usize> = numbered.map(|(n, step)| (step.name.as_str(), n)).collect();
    for (n, step) in flow.steps().iter().enumerate() {
        let steps = flow.known_to(n).iter().map(|step| step.name.as_str());
        let listed: Vec<&str> = inputs.keys().map(String::as_str).chain(steps).collect();
        let known: HashSet<&str> = listed.iter().copied().collect();
        for (argument, text) in &step.input {
            let place = values.place_of(&format!("steps[{n}].input.{argument}"));
            let (template, malformed) = Template::read(text);
            for at in malformed {
                values.error_within(&place, (text, at), || malformed_at(text, at));
            }
            let mut reported = HashSet::new();
            let unknown = template.places().filter(|(name, _)| !known.contains(name));
            for (name, at) in unknown.filter(|(name, _)| reported.insert(*name)) {
                let found_and_allowed = || {
                    let allowed = match places.get(name) {
                        Some(at) if *at == n => {
                            "an input of the flow or an earlier step, not the step itself".to_owned()
                        }
                        Some(_) => "an input of the flow or an earlier step, not a later one".to_owned(),
                        None => format!(
                            "an input of the flow or an earlier step: {}",
                            unknown_name_message(name, &listed)
                        ),
                    };
                    (format!("the placeholder ${{{name}}}"), allowed)
                };
                values.error_within(&place, (text, at), found_and_allowed);
            }
        }
    }
}
