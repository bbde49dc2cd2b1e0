//! Checks calls between agents: all called agents exist, and no chain of calls returns to its start.

use super::super::fields::Field;
use super::{Agents, Directory, Place};
use crate::domain::definition::Definition;
use gavel_reading::quoted;
use gavel_reading::unknown_name_message;
use gavel_reading::{Errors, ReadError};

/// The agents that an agent calls, each with the portable path of the reference.
pub(super) fn called<'a>(definition: &'a Definition, directory: &Directory) -> Vec<(String, &'a str)> {
    let sub_agents = definition.sub_agents.iter().enumerate();
    let sub_agents = sub_agents.map(|(n, one)| (format!("{}[{n}]", Field::SubAgents.portable()), one.agent.as_str()));
    let tools = definition
        .tools
        .iter()
        .enumerate()
        .filter(|(_, name)| directory.is_agent(name));
    let tools = tools.map(|(n, name)| (format!("{}[{n}]", Field::Tools.portable()), name.as_str()));
    let steps = definition.flow.steps().iter().enumerate();
    let steps = steps.map(|(n, step)| (format!("steps[{n}]"), step.agent.as_str()));
    sub_agents.chain(tools).chain(steps).collect()
}

/// Checks that every called agent exists, valid or not.
pub(super) fn check(called: &[(String, &str)], own: &str, place: &Place, directory: &Directory, errors: &mut Errors) {
    for (path, name) in called.iter().filter(|(_, name)| !directory.has(name)) {
        errors.add(|| {
            let known = directory
                .agents
                .keys()
                .chain(directory.broken_names.keys())
                .map(String::as_str);
            let others: Vec<_> = known.filter(|other| *other != own).collect();
            let allowed = if others.is_empty() {
                "the name of another agent, but no other agent exists".to_owned()
            } else {
                format!("an existing agent: {}", unknown_name_message(name, &others))
            };
            place.error(path, quoted(name), allowed)
        });
    }
}

/// Reports each cycle once, at the call from its alphabetically first agent to the next. None of its agents is valid.
pub(super) fn cycles(directory: &Directory, errors: &mut Vec<ReadError>, agents: &mut Agents) {
    let mut reported: Vec<Vec<&str>> = Vec::new();
    for name in directory.agents.keys() {
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
        let agent = &directory.agents[name];
        let next = way.get(1).copied().unwrap_or(name);
        let place = called(&agent.definition, directory)
            .into_iter()
            .find(|(_, called)| *called == next);
        let found = format!("the cycle {} → {name}", way.join(" → "));
        let allowed = "agents that do not lead back to the one that calls them".to_owned();
        errors.push(
            agent
                .place
                .error(&place.map_or_else(String::new, |(path, _)| path), found, allowed),
        );
    }
}

/// The shortest chain of calls from an agent to itself.
fn way_back<'a>(name: &'a str, directory: &'a Directory) -> Option<Vec<&'a str>> {
    let mut ways = std::collections::VecDeque::from([vec![name]]);
    let mut seen = std::collections::BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        let last = way.last().and_then(|last| directory.agents.get(*last));
        for (_, next) in last.map(|last| called(&last.definition, directory)).unwrap_or_default() {
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
