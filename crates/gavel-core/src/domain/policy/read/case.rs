//! Reads one test: a call and its expected decision.

use std::sync::Arc;

use gavel_reading::{Content, FLAG, Fields, List, OneOf, Record, Scalar, WORDS};
use serde_json::{Value, json};

use super::super::{AGENTS, Case, CaseCall, Effect, SURFACES, SessionFacts};
use super::NAME;
use crate::domain::argument_path::ArgumentPath;
use crate::domain::definition::Approval;
use crate::domain::ids::UserId;

const TOOL: Scalar<String> = Scalar {
    allowed: "the name of a tool, such as google__gmail_send",
    read: WORDS.read,
};
const ARGUMENTS: Scalar<Value> = Scalar {
    allowed: "a map",
    read: |node| matches!(node.content, Content::Map(_)).then(|| node.to_json()),
};
const USER: Scalar<UserId> = Scalar {
    allowed: "the name of a user",
    read: |node| UserId::parse((WORDS.read)(node)?).ok(),
};
const PATH: Scalar<ArgumentPath> = Scalar {
    allowed: ArgumentPath::ALLOWED,
    read: |node| ArgumentPath::parse(node.text()?),
};

pub(super) fn case(fields: &Fields<'_>) -> Option<Case> {
    let name = fields.need("name", NAME);
    let call = fields.need("call", Record("a call: {tool, arguments, …}", call));
    let expect = fields.need("expect", OneOf(&Effect::NAMES));
    let rule = fields.take("rule", WORDS).map(Arc::from);
    Some(Case {
        name: name?.into(),
        line: fields.at.node.line,
        call: call?,
        expect: expect?,
        rule,
    })
}

fn call(fields: &Fields<'_>) -> Option<CaseCall> {
    let server = fields.take("server", WORDS);
    let tool = fields.need("tool", TOOL);
    let arguments = fields.take("arguments", ARGUMENTS).unwrap_or_else(|| json!({}));
    let user = match fields.get("user") {
        Some(_) => fields.take("user", USER),
        None => UserId::parse("local").ok(),
    };
    let agent = fields.take("agent", WORDS).map(Arc::from);
    let surface = fields.take("surface", OneOf(&SURFACES.map(|surface| (surface, surface))));
    let session = |fields: &Fields<'_>| {
        let given = SessionFacts::FIELDS.map(|name| Some((name.to_owned(), fields.take(name, WORDS)?)));
        Some(given.into_iter().flatten().collect())
    };
    let session = fields.take("session", Record("a map with id, owner and repo", session));
    let side_effect = fields.take("side_effect", FLAG).unwrap_or(true);
    let recipients = fields.take("recipients", List(PATH)).unwrap_or_default();
    let approval = fields.take("approval", OneOf(&Approval::NAMES)).unwrap_or_default();
    let tool = tool?;
    if tool.starts_with(&format!("{AGENTS}__")) || server.as_deref() == Some(AGENTS) {
        for at in ["side_effect", "recipients", "approval"]
            .into_iter()
            .filter_map(|key| fields.get(key))
        {
            at.invalid("nothing: a call of an agent is decided by rules alone, and the agent's own calls one by one");
        }
    }
    let (server, tool) = match (server, tool.split_once("__")) {
        (Some(server), _) => (server, tool),
        (None, Some((server, tool))) => (server.to_owned(), tool.to_owned()),
        (None, None) => (String::new(), tool),
    };
    Some(CaseCall {
        server: server.into(),
        tool: tool.into(),
        arguments,
        user: user?,
        agent,
        surface: surface.unwrap_or("agent"),
        session: session.unwrap_or_default(),
        side_effect,
        recipients,
        approval,
    })
}
