//! Reads one rule.

use std::sync::Arc;

use gavel_reading::{At, Fields, OneOf, Scalar, WORDS, With, quoted};

use super::super::{Condition, Effect, Rule};
use super::NAME;
use super::names::{NAMES, names, names_agents_only, surfaces};

/// The longest reason, in bytes: people and models read it.
const MOST_REASON: usize = 500;

const REASON: Scalar<String> = Scalar {
    allowed: "why, in words for approvers and the model",
    read: WORDS.read,
};

pub(super) fn rule(fields: &Fields<'_>) -> Option<Rule> {
    let name = fields.need("name", NAME);
    let tools = fields.need(
        "tools",
        With(
            "names of tools, such as [google__gmail_send], or [\"*\"] for all",
            names,
        ),
    );
    let agents = fields.take("agents", With(NAMES, names));
    let users = fields.take("users", With(NAMES, names));
    let surfaces = fields.take("surfaces", With(NAMES, surfaces));
    let when = fields.take("when", With("a CEL expression", condition));
    if let Some(at) = fields
        .get("when")
        .filter(|_| fields.get("tools").is_some_and(|tools| names_agents_only(&tools)))
        && when.as_ref().is_some_and(Condition::uses_recipients)
    {
        at.invalid("a condition without `recipients`: a call of an agent has none");
    }
    let then = fields.need("then", OneOf(&Effect::NAMES));
    let reason = fields.need("reason", REASON);
    if let Some(at) = fields
        .get("reason")
        .filter(|_| reason.as_ref().is_some_and(|reason| reason.len() > MOST_REASON))
    {
        let bytes = reason.as_ref().map_or(0, String::len);
        at.error(format!("{bytes} bytes"), format!("at most {MOST_REASON}"));
    }
    Some(Rule {
        name: name?.into(),
        line: fields.at.node.line,
        tools: tools?,
        agents,
        users,
        surfaces,
        when,
        then: then?,
        reason: Arc::from(reason?),
    })
}

fn condition(at: &At<'_>) -> Option<Condition> {
    let Some(source) = at.node.text() else {
        at.invalid("a CEL expression");
        return None;
    };
    let condition = Condition::parse(source.trim()).map_err(|error| {
        let found = format!("{}, which {error}", quoted(source.trim()));
        at.error(found, "a CEL expression that returns true or false");
    });
    condition.ok()
}
