//! Warnings about limits that cannot have the effect they suggest. They reject no agent.

use super::super::fields::Field;
use super::directory::{Directory, Read};
use super::links::called;
use gavel_reading::ReadError;

/// The most steps of one run, over all its resumes.
const MOST_STEPS: u32 = 500;

/// Checks one agent's limits, and those of the agents that it calls.
pub(super) fn check(agent: &Read, directory: &Directory, warnings: &mut Vec<ReadError>) {
    let definition = &agent.definition;
    let turns = Field::MaxTurns.portable();
    match definition.limits.max_turns {
        Some(most) if most > MOST_STEPS => {
            let allowed = format!("at most {MOST_STEPS}: a run ends there over all its resumes");
            warnings.push(agent.place.error(&turns, most.to_string(), allowed));
        }
        Some(1) if !definition.tools.is_empty() || !definition.sub_agents.is_empty() => {
            let found = "1, so the model never sees the result of a tool".to_owned();
            warnings.push(
                agent
                    .place
                    .error(&turns, found, "2 or more for an agent with tools".to_owned()),
            );
        }
        _ => {}
    }
    let (thinking, most) = (definition.model.thinking_budget, definition.model.max_output_tokens);
    if let (Some(thinking), Some(most)) = (thinking, most)
        && u32::try_from(thinking).is_ok_and(|thinking| thinking >= most)
    {
        let found = format!("{thinking}, which leaves nothing of {most} output tokens for an answer");
        let allowed = "less than maxOutputTokens, which counts thinking too".to_owned();
        warnings.push(agent.place.error(&Field::ThinkingBudget.portable(), found, allowed));
    }
    let Some(whole) = definition.limits.max_time else {
        return;
    };
    let steps = definition
        .flow
        .steps()
        .iter()
        .map(|step| (step.agent.as_str(), step.timeout));
    let given: Vec<_> = definition
        .sub_agents
        .iter()
        .map(|sub_agent| (sub_agent.agent.as_str(), sub_agent.timeout))
        .chain(steps)
        .collect();
    for (path, name) in called(definition, directory) {
        let own = || directory.agents.get(name)?.definition.limits.max_time;
        let given = given
            .iter()
            .find(|(agent, _)| *agent == name)
            .and_then(|(_, timeout)| *timeout);
        let part = given.or_else(own);
        if let Some(part) = part.filter(|part| *part > whole) {
            let found = format!(
                "{name} with {} s, in an agent with {} s",
                part.as_secs(),
                whole.as_secs()
            );
            let allowed = "no more time than its caller has: it is stopped together with its caller".to_owned();
            warnings.push(agent.place.error(&path, found, allowed));
        }
    }
}
