//! The tools and the sub-agents of a definition.

use super::super::duration::TIMEOUT;
use super::super::fields::Field;
use super::super::values::{AGENT, Part, Values};
use super::super::{SubAgent, well_known, well_known_tool};
use gavel_reading::{At, Content, Node, Parser, Scalar, quoted};

pub(super) fn tools(values: &mut Values<'_>) -> Vec<String> {
    let item = "the name of one tool: up to 128 characters without spaces or `*`, since the list names every tool";
    let written = values.given(Field::Tools).and_then(|given| match &given.node.content {
        Content::Text(text) => Some(as_list(text)),
        _ => None,
    });
    let names = values.names(Field::Tools, item, written, |name| {
        name.len() <= 128 && !name.contains(|c: char| c.is_whitespace() || c.is_control() || c == '*')
    });
    for (n, name) in &names {
        let path = format!("{}[{n}]", Field::Tools.portable());
        values.names.tools.push((path, name.clone()));
    }
    names.into_iter().map(|(_, name)| name).collect()
}

/// The list to write for tools that are given as one text, as in Claude Code.
fn as_list(text: &str) -> String {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    let (bundled, others): (Vec<_>, Vec<_>) = names
        .map(|name| (name, well_known::bundled(name)))
        .partition(|(name, bundled)| bundled.is_some() || well_known_tool(name).is_none());
    let mut tools: Vec<&str> = bundled.iter().map(|(name, bundled)| bundled.unwrap_or(name)).collect();
    tools.dedup();
    let mut allowed = format!("a list, here [{}]", tools.join(", "));
    if !others.is_empty() {
        let others: Vec<_> = others.into_iter().map(|(name, _)| name).collect();
        allowed.push_str(&format!("; no bundled server does what {} does", others.join(", ")));
    }
    allowed
}

pub(super) fn sub_agents(values: &mut Values<'_>, tools: &[String]) -> Vec<SubAgent> {
    let allowed = "a list of agents: names, or maps of agent and timeout";
    let Some(Part { path, node }) =
        values.part(Field::SubAgents, allowed, |content| matches!(content, Content::List(_)))
    else {
        return Vec::new();
    };
    let Content::List(items) = &node.content else {
        return Vec::new();
    };
    let mut sub_agents: Vec<SubAgent> = Vec::new();
    for (n, node) in items.iter().enumerate() {
        let (path, portable) = (format!("{path}[{n}]"), format!("{}[{n}]", Field::SubAgents.portable()));
        values.places.insert(portable.clone(), path.clone(), node.line);
        let Some(sub_agent) = sub_agent(values, &path, node) else {
            continue;
        };
        let name = quoted(&sub_agent.agent);
        if sub_agents.iter().any(|other| other.agent == sub_agent.agent) {
            values.error(
                Some(node.line),
                &path,
                &format!("{name} a second time"),
                "each agent once",
            );
            continue;
        }
        if tools.contains(&sub_agent.agent) {
            let allowed = "each name in one of the two: an agent that `tools` names is called as a tool too";
            values.error(
                Some(node.line),
                &path,
                &format!("{name}, which `tools` names too"),
                allowed,
            );
        }
        values.names.agents.push((portable, sub_agent.agent.clone()));
        sub_agents.push(sub_agent);
    }
    sub_agents
}

/// A name, or a map of agent and timeout.
fn sub_agent(values: &Values<'_>, path: &str, node: &Node) -> Option<SubAgent> {
    let at = At::root(&values.errors, values.file, node).named(path);
    if !matches!(node.content, Content::Map(_)) {
        let agent = Scalar {
            allowed: "the name of an agent, or a map of agent and timeout",
            read: AGENT.read,
        };
        return agent.parse(&at).map(|agent| SubAgent { agent, timeout: None });
    }
    at.record(|fields| {
        let agent = fields.need_as("agent", "the name of an agent", AGENT);
        let timeout = fields.take("timeout", TIMEOUT);
        Some(SubAgent { agent: agent?, timeout })
    })
}
