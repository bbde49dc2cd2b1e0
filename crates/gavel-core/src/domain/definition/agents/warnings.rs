//! What a definition contains that gavel ignores.

use std::collections::BTreeSet;

use super::super::fields::Field;
use super::directory::Read;
use crate::domain::family::Family;
use crate::domain::templates::Template;
use gavel_reading::ReadError;
use gavel_reading::quoted;

/// Warns about an input that neither prompt uses, so that it never reaches the model.
pub(super) fn unused_inputs(agent: &Read, warnings: &mut Vec<ReadError>) {
    let Some(prompt) = &agent.definition.prompt else { return };
    let templates = [&prompt.query, &prompt.system_prompt].map(|text| Template::read(text).0);
    let named: BTreeSet<&str> = templates.iter().flat_map(Template::names).collect();
    for input in agent
        .definition
        .inputs
        .keys()
        .filter(|input| !named.contains(input.as_str()))
    {
        let path = format!("{}.{input}", Field::Inputs.portable());
        let path = match agent.place.places.has(&path) {
            true => path,
            false => Field::Query.portable(),
        };
        let found = format!(
            "the input {}, which no prompt names, so no model reads it",
            quoted(input)
        );
        let allowed = format!("${{{input}}} in the query or the system prompt");
        warnings.push(agent.place.error(&path, found, allowed));
    }
}

/// Warns about a model that is not Google's.
pub(super) fn other_model(agent: &Read, warnings: &mut Vec<ReadError>) {
    const OTHERS: [&str; 7] = ["claude", "sonnet", "opus", "haiku", "gpt", "o3", "o4"];
    let model = agent.definition.model.model.as_deref();
    if let Some(model) = model.filter(|model| OTHERS.iter().any(|other| model.to_ascii_lowercase().starts_with(other)))
    {
        let found = format!("{}, which is not a Google model", quoted(model));
        let allowed = "a model of Gemini, or no model: the configured one".to_owned();
        warnings.push(agent.place.error(&Field::Model.portable(), found, allowed));
    }
}

/// Warns about a level that the definition's own model does not know.
pub(super) fn unknown_level(agent: &Read, warnings: &mut Vec<ReadError>) {
    let settings = &agent.definition.model;
    let (Some(model), Some(level)) = (&settings.model, settings.thinking_level) else {
        return;
    };
    if let Some(allowed) = Family::of(model).lacks(level) {
        let found = format!(
            "{}, which {} does not know, so the nearest level is sent",
            quoted(level.as_str()),
            quoted(model)
        );
        warnings.push(agent.place.error(&Field::ThinkingLevel.portable(), found, allowed));
    }
}

/// Warns if an agent file of Gemini CLI means something else in gavel.
pub(super) fn gemini_cli(agent: &Read, warnings: &mut Vec<ReadError>) {
    let is_theirs = agent.place.file.replace('\\', "/").contains(".gemini/agents/");
    if is_theirs && !agent.place.places.has(&Field::Tools.portable()) {
        let found = "nothing, which allows every tool in Gemini CLI and none here".to_owned();
        let allowed = "the list of tools that it may use".to_owned();
        warnings.push(agent.place.error(&Field::Tools.portable(), found, allowed));
    }
}
