//! Checks what each step of a flow passes to its agent.

use std::collections::{BTreeMap, BTreeSet};

use gavel_reading::{Errors, ReadError, quoted, unknown_name_message};

use super::super::fields::Field;
use super::super::values::Named;
use super::super::{Flow, Input, InputType, Step};
use super::{Agents, Directory, Entry, Place};
use crate::domain::templates::Template;

/// Checks that each step passes every required argument of its agent, with matching types and no others. Returns a
/// warning for each input of the flow that no step uses.
pub(super) fn check(
    flow: &Flow,
    inputs: &BTreeMap<String, Input>,
    place: &Place,
    directory: &Directory,
    errors: &mut Errors,
) -> Vec<ReadError> {
    let mut used: BTreeSet<&str> = BTreeSet::new();
    let mut all_known = true;
    for (n, step) in flow.steps().iter().enumerate() {
        for name in named(step) {
            used.extend(inputs.get_key_value(&name).map(|(name, _)| name.as_str()));
        }
        // A blank template, which already has an error, might have used any input.
        all_known &= step.input.values().all(|text| !text.is_empty());
        let Some(takes) = directory.takes(&step.agent) else {
            // The agent is unknown or invalid and already has an error, so its inputs are unknown.
            all_known = false;
            continue;
        };
        unknown_arguments(step, n, takes, place, errors);
        let earlier = flow.known_to(n).iter().rev();
        let earlier: BTreeMap<&str, &Step> = earlier.map(|other| (other.name.as_str(), other)).collect();
        for (argument, input) in takes {
            let template = step.input.get(argument);
            let path = match template {
                Some(_) => format!("steps[{n}].input.{argument}"),
                None => format!("steps[{n}]"),
            };
            let takes_it = format!(
                "the type {}, which `{argument}` of {} has",
                input.kind.as_str(),
                step.agent
            );
            let source = match template {
                Some(text) => only_placeholder(text),
                None => Some(argument.clone()),
            };
            let earlier = source.as_deref().and_then(|name| earlier.get(name));
            let given = source.as_deref().and_then(|name| inputs.get_key_value(name));
            match (earlier, given, template) {
                // A step's output takes precedence over an input of the flow; both having the same name is an error.
                (Some(earlier), ..) => {
                    let text = input.kind != InputType::String && gives_text(&earlier.agent, directory);
                    if text {
                        let found = format!("the output of {}, which is text", earlier.name);
                        errors.push(place.error(&path, found, takes_it));
                    }
                }
                (None, Some((name, given)), _) => {
                    used.insert(name);
                    if !fits(given, input) {
                        let found = format!("the input `{name}` of the type {}", given.kind.as_str());
                        errors.push(place.error(&path, found, takes_it));
                    }
                }
                // A template that is not exactly one placeholder becomes text. An unknown placeholder already has an
                // error.
                (None, None, Some(text)) if source.is_none() && !text.is_empty() && input.kind != InputType::String => {
                    errors.push(place.error(&path, format!("the text {}", quoted(text)), takes_it));
                }
                (None, None, None) if input.required => {
                    let found = format!("nothing for `{argument}`, which {} requires", step.agent);
                    let allowed =
                        format!("`input: {{{argument}: …}}`, or an input of the flow or an earlier step of that name");
                    errors.push(place.error(&path, found, allowed));
                }
                (None, None, _) => {}
            }
        }
    }
    if flow.steps().is_empty() || !all_known {
        return Vec::new();
    }
    unused(inputs, &used, place)
}

fn unknown_arguments(step: &Step, n: usize, takes: &BTreeMap<String, Input>, place: &Place, errors: &mut Errors) {
    for argument in step.input.keys().filter(|argument| !takes.contains_key(*argument)) {
        errors.add(|| {
            let known: Vec<_> = takes.keys().map(String::as_str).collect();
            let found = format!("an argument that {} does not take", step.agent);
            let path = format!("steps[{n}].input.{argument}");
            place.error(&path, found, unknown_name_message(argument, &known))
        });
    }
}

/// A warning for each input of the flow that no step takes.
fn unused(inputs: &BTreeMap<String, Input>, used: &BTreeSet<&str>, place: &Place) -> Vec<ReadError> {
    let unused = inputs.keys().filter(|name| !used.contains(name.as_str()));
    let warning = |name: &String| {
        let path = format!("{}.{name}", Field::Inputs.portable());
        let found = format!("the input {}, which no step takes", quoted(name));
        let allowed =
            format!("inputs that a step takes: by an argument of the same name, or by ${{{name}}} in its input");
        place.error(&path, found, allowed)
    };
    unused.map(warning).collect()
}

/// Whether an agent always returns text: without an output it answers with text, and `processOutput` formats the output
/// as text. A flow returns the result of its last step, which is not checked here.
fn gives_text(agent: &str, directory: &Directory) -> bool {
    directory.valid(agent).is_some_and(|definition| {
        definition.flow.steps().is_empty() && (definition.output.is_none() || definition.process_output.is_some())
    })
}

/// The name in a template that is exactly one placeholder, which passes the value on unchanged.
fn only_placeholder(text: &str) -> Option<String> {
    let name = text.strip_prefix("${")?.strip_suffix('}')?;
    let (template, errors) = Template::read(text);
    (errors.is_empty() && template.names().eq([name])).then(|| name.to_owned())
}

/// All names in the templates of a step.
fn named(step: &Step) -> Vec<String> {
    let templates = step.input.values().map(|text| Template::read(text).0);
    let names = templates.flat_map(|template| template.names().map(str::to_owned).collect::<Vec<_>>());
    names.collect()
}

/// Whether a value of one input can be passed on as another.
fn fits(given: &Input, taken: &Input) -> bool {
    given.kind == taken.kind
        || matches!(
            (given.kind, taken.kind),
            (InputType::Integer, InputType::Number) | (InputType::Integers, InputType::Numbers)
        )
}

/// The agents that an agent calls, each with the portable path of the reference.
pub(super) fn called<'a>(names: &'a Named, directory: &Directory) -> Vec<(&'a str, &'a str)> {
    let tools = names.tools.iter().filter(|(_, name)| directory.is_agent(name));
    let called = names.agents.iter().chain(tools);
    called.map(|(path, name)| (path.as_str(), name.as_str())).collect()
}

/// Checks that every called agent exists, valid or not.
pub(super) fn check_calls(entry: &Entry, directory: &Directory, errors: &mut Errors) {
    for (path, name) in entry.names.agents.iter().filter(|(_, name)| !directory.has(name)) {
        errors.add(|| {
            let known = directory.by_name.keys();
            let known = known.filter(|known| Some(*known) != entry.name.as_ref());
            let others: Vec<_> = known.map(String::as_str).collect();
            let allowed = if others.is_empty() {
                "the name of another agent, but no other agent exists".to_owned()
            } else {
                format!("an existing agent: {}", unknown_name_message(name, &others))
            };
            entry.place.error(path, quoted(name), allowed)
        });
    }
}

/// Reports each cycle once, at the call from its alphabetically first agent to the next. None of its agents is valid.
pub(super) fn cycles(directory: &Directory, errors: &mut Vec<ReadError>, agents: &mut Agents) {
    let mut reported: Vec<Vec<&str>> = Vec::new();
    for entry in &directory.entries {
        let Some(name) = entry.definition.as_ref().map(|definition| definition.name.as_str()) else {
            continue;
        };
        let Some(way) = way_back(name, directory) else { continue };
        for name in &way {
            agents.remove(*name);
        }
        let mut members = way.clone();
        members.sort_unstable();
        if reported.contains(&members) {
            continue;
        }
        reported.push(members);
        let next = way.get(1).copied().unwrap_or(name);
        let calls = called(&entry.names, directory);
        let path = calls.iter().find(|(_, called)| *called == next).map(|(path, _)| *path);
        let found = format!("the cycle {} → {name}", way.join(" → "));
        let allowed = "agents that do not lead back to the one that calls them".to_owned();
        errors.push(entry.place.error(path.unwrap_or_default(), found, allowed));
    }
}

/// The shortest chain of calls from an agent to itself.
fn way_back<'a>(name: &'a str, directory: &'a Directory) -> Option<Vec<&'a str>> {
    let mut ways = std::collections::VecDeque::from([vec![name]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        let last = way.last().and_then(|last| directory.entry(last));
        let last = last.filter(|last| last.definition.is_some());
        for (_, next) in last.map(|last| called(&last.names, directory)).unwrap_or_default() {
            if next == name {
                return Some(way);
            }
            if seen.insert(next) {
                ways.push_back([way.as_slice(), &[next]].concat());
            }
        }
    }
    None
}

/// Removes agents that call an invalid agent, because they cannot work.
pub(super) fn drop_those_without_all(directory: &Directory, agents: &mut Agents) {
    loop {
        let lacking: Vec<String> = agents
            .iter()
            .filter(|(_, agent)| {
                let called = agent.definition.calls(|name| directory.is_agent(name));
                called.iter().any(|name| !agents.contains_key(*name))
            })
            .map(|(name, _)| name.clone())
            .collect();
        if lacking.is_empty() {
            return;
        }
        for name in lacking {
            agents.remove(&name);
        }
    }
}
