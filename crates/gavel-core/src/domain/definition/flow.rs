//! The flow of an agent: `flow_type`, `steps`, `max_iterations`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use gavel_reading::{At, Content, Node, Parser, Scalar, quoted, unknown_name_message};

use super::Input;
use super::fields::Field;
use super::values::TIMEOUT;
use super::values::{AGENT, Places, SOME_TEXT, Values};
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
        match self {
            Self::Single => "single",
            Self::Sequential { .. } => "sequential",
            Self::Loop { .. } => "loop",
        }
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

#[derive(Clone, Copy, PartialEq)]
enum Type {
    Single,
    Sequential,
    Loop,
}

const TYPES: [(&str, Type); 3] = [
    ("single", Type::Single),
    ("sequential", Type::Sequential),
    ("loop", Type::Loop),
];

/// Reads the flow. An invalid flow is returned as far as it could be read. `inputs` is `None` if they are invalid.
pub(super) fn flow(values: &mut Values<'_>, inputs: Option<&BTreeMap<String, Input>>) -> Flow {
    let kind = values.choice(Field::FlowType, &TYPES);
    let invalid_type = kind.is_none() && values.line(Field::FlowType).is_some();
    let (steps, all_read) = steps(values, inputs);
    let rounds = values.count(Field::MaxIterations);
    // Steps are checked even if the type is invalid, as in a loop, where each may use all of them.
    let otherwise = if invalid_type && !steps.is_empty() {
        Type::Loop
    } else {
        Type::Single
    };
    let kind = kind.unwrap_or(otherwise);
    let flow = match kind {
        Type::Single => Flow::Single,
        Type::Sequential => Flow::Sequential { steps },
        Type::Loop => Flow::Loop {
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
    if invalid_type {
        return flow;
    }
    let only = |values: &mut Values<'_>, field: Field, fits: bool, types: &str| {
        if let Some(line) = values.line(field).filter(|_| !fits) {
            let found = format!("a flow of the type {}", flow.as_str());
            let allowed = format!("flow_type {types}, or nothing here");
            let path = values.spelled(field);
            values.error(Some(line), &path, &found, &allowed);
        }
    };
    let rounds_given = values.line(Field::MaxIterations).is_some();
    // Without a type, both errors have the same cause.
    if kind == Type::Single && values.line(Field::Steps).is_some() {
        only(
            values,
            Field::Steps,
            false,
            if rounds_given { "loop" } else { "sequential or loop" },
        );
    } else {
        only(values, Field::MaxIterations, kind == Type::Loop, "loop");
    }
    flow
}

/// A flow of steps calls no model itself, so settings for a model have no effect: one error for all of them.
pub(super) fn only_for_models(values: &mut Values<'_>) {
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
    let says_something = |node: &Node| !matches!(&node.content, Content::List(items) if items.is_empty());
    let given = fields.into_iter().filter_map(|field| values.given(field));
    let given = given.filter(|given| says_something(given.node));
    let mut given: Vec<_> = given.map(|given| (given.line, given.path.clone())).collect();
    given.sort();
    let paths: Vec<_> = given.iter().map(|(_, path)| format!("`{path}`")).collect();
    if let Some((line, path)) = given.first() {
        let found = format!("{} beside `steps`", paths.join(", "));
        let allowed = "only steps, whose agents have their own prompts, models and tools; or only these, without steps: \
                       then the agent itself is the only step";
        values.error(Some(*line), path, &found, allowed);
    }
}

/// The steps, and whether all of them could be read.
fn steps(values: &mut Values<'_>, inputs: Option<&BTreeMap<String, Input>>) -> (Vec<Step>, bool) {
    let allowed = "a list of steps, at least one: the name of an agent, or {name, agent, input, timeout}";
    let is_list = |content: &Content| matches!(content, Content::List(items) if !items.is_empty());
    let Some(part) = values.part(Field::Steps, allowed, is_list) else {
        return (Vec::new(), false);
    };
    let Content::List(items) = &part.node.content else {
        return (Vec::new(), false);
    };
    let mut steps: Vec<Step> = Vec::new();
    for (n, node) in items.iter().enumerate() {
        let path = format!("{}[{n}]", part.path);
        values.places.insert(format!("steps[{n}]"), path.clone(), node.line);
        let Some(step) = step(values, &path, n, node) else {
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
            let found = format!("{}; {taken}", quoted(&step.name));
            let allowed = "a unique `name` for each step, because later steps refer to its output by name";
            values.error(Some(node.line), &format!("{path}.name"), &found, allowed);
        }
        steps.push(step);
    }
    let all_read = steps.len() == items.len();
    (steps, all_read)
}

fn step(values: &mut Values<'_>, path: &str, n: usize, node: &Node) -> Option<Step> {
    let at = At::root(&values.errors, values.file, node).named(path);
    if !matches!(node.content, Content::Map(_)) {
        let agent = Scalar {
            allowed: "the name of an agent, or a map of name, agent, input and timeout",
            read: AGENT.read,
        };
        return agent.parse(&at).map(|agent| Step {
            name: agent.clone(),
            agent,
            input: BTreeMap::new(),
            timeout: None,
        });
    }
    let places = &mut values.places;
    at.record(|fields| {
        let name = fields.take("name", AGENT);
        let agent = fields.need_as("agent", "the name of an agent", AGENT);
        let input = fields.get("input").map(|at| templates(&at, places, n));
        let timeout = fields.take("timeout", TIMEOUT);
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
        places.insert(format!("steps[{n}].input.{name}"), at.path.clone(), at.node.line);
        // An invalid template still counts as given.
        templates.insert(name.to_owned(), SOME_TEXT.parse(&at).unwrap_or_default());
    }
    Some(templates)
}

/// Each placeholder of a step must name an input of the flow, or a step whose output exists by then.
fn check_names(values: &mut Values<'_>, flow: &Flow, inputs: &BTreeMap<String, Input>) {
    // For a duplicate name, which is an error, the first step.
    let numbered = flow.steps().iter().enumerate().rev();
    let places: HashMap<&str, usize> = numbered.map(|(n, step)| (step.name.as_str(), n)).collect();
    for (n, step) in flow.steps().iter().enumerate() {
        let steps = flow.known_to(n).iter().map(|step| step.name.as_str());
        let listed: Vec<&str> = inputs.keys().map(String::as_str).chain(steps).collect();
        let known: HashSet<&str> = listed.iter().copied().collect();
        for (argument, text) in &step.input {
            let path = format!("steps[{n}].input.{argument}");
            let line = values.places.line(&path);
            let path = values.places.spelled(&path);
            let (template, malformed) = Template::read(text);
            for at in malformed {
                values.error_within(line, &path, (text, at), || malformed_at(text, at));
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
                values.error_within(line, &path, (text, at), found_and_allowed);
            }
        }
    }
}
