//! What each step of a flow gives to its agent.

use std::collections::BTreeSet;

use super::super::error::Mistakes;
use super::super::fields::{Field, unknown_name_message};
use super::super::inputs::type_name;
use super::super::node::quoted;
use super::super::{Input, InputType, Step};
use super::{Folder, Read};
use crate::domain::templates::Template;

/// Each step gives every argument its agent requires, of the right type and no others, and each input of the flow is used.
pub(super) fn check(agent: &Read, folder: &Folder, errors: &mut Mistakes) {
    let flow = &agent.definition.flow;
    let mut used: BTreeSet<&str> = BTreeSet::new();
    let mut all_known = true;
    for (n, step) in flow.steps().iter().enumerate() {
        let Some(worker) = folder.agents.get(&step.agent) else {
            // Unknown or wrong, and told of; what it would have taken nobody knows.
            all_known = false;
            continue;
        };
        let takes = &worker.definition.inputs;
        for argument in step.input.keys().filter(|argument| !takes.contains_key(*argument)) {
            errors.add(|| {
                let known: Vec<_> = takes.keys().map(String::as_str).collect();
                let found = format!("an argument that {} does not take", step.agent);
                let path = format!("steps[{n}].input.{argument}");
                agent.place.error(&path, found, unknown_name_message(argument, &known))
            });
        }
        let earlier: BTreeSet<&str> = flow.known_to(n).iter().map(|other| other.name.as_str()).collect();
        for (argument, input) in takes {
            let earlier = earlier.contains(argument.as_str());
            let (source, path) = match step.input.get(argument) {
                Some(text) => (only_placeholder(text), format!("steps[{n}].input.{argument}")),
                // A step's output goes before an input of the flow; both cannot have one name.
                None if earlier => (None, format!("steps[{n}]")),
                None => (Some(argument.clone()), format!("steps[{n}]")),
            };
            let given = source
                .as_deref()
                .and_then(|name| agent.definition.inputs.get_key_value(name));
            if let Some((name, given)) = given {
                used.insert(name);
                if !fits(given, input) {
                    let found = format!("the input `{name}` of the type {}", type_name(given.kind));
                    let allowed = format!(
                        "the type {}, which `{argument}` of {} has",
                        type_name(input.kind),
                        step.agent
                    );
                    errors.push(agent.place.error(&path, found, allowed));
                }
            } else if input.required && !earlier && !step.input.contains_key(argument) {
                let found = format!("nothing for `{argument}`, which {} requires", step.agent);
                let allowed =
                    format!("`input: {{{argument}: …}}`, or an input of the flow or an earlier step of that name");
                errors.push(agent.place.error(&path, found, allowed));
            }
        }
        for name in named(step) {
            used.extend(
                agent
                    .definition
                    .inputs
                    .get_key_value(&name)
                    .map(|(name, _)| name.as_str()),
            );
        }
    }
    if flow.steps().is_empty() || !all_known {
        return;
    }
    for name in agent
        .definition
        .inputs
        .keys()
        .filter(|name| !used.contains(name.as_str()))
    {
        let path = format!("{}.{name}", Field::Inputs.portable());
        let found = format!("the input {}, which no step takes", quoted(name));
        let allowed =
            format!("inputs that a step takes: by an argument of the same name, or by ${{{name}}} in its input");
        errors.push(agent.place.error(&path, found, allowed));
    }
}

/// The name of a template that is one placeholder and nothing else: it hands on the value as it is.
fn only_placeholder(text: &str) -> Option<String> {
    let name = text.strip_prefix("${")?.strip_suffix('}')?;
    let template = Template::parse(text).ok()?;
    template.names().eq([name]).then(|| name.to_owned())
}

/// Every name in the templates of a step.
fn named(step: &Step) -> Vec<String> {
    let templates = step.input.values().filter_map(|text| Template::parse(text).ok());
    let names = templates.flat_map(|template| template.names().map(str::to_owned).collect::<Vec<_>>());
    names.collect()
}

/// May a value of one input be handed on as another?
fn fits(given: &Input, taken: &Input) -> bool {
    given.kind == taken.kind
        || matches!(
            (given.kind, taken.kind),
            (InputType::Integer, InputType::Number) | (InputType::Integers, InputType::Numbers)
        )
}
