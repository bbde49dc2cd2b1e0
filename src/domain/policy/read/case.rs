//! Reads one test: a call and its expected decision.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::super::{AGENTS, Case, CaseCall, SURFACES, SessionFacts};
use super::{Fields, Reader};
use crate::domain::argument_path::ArgumentPath;
use crate::domain::definition::{Approval, Content, Node};
use crate::domain::ids::UserId;

const CASE: [&str; 4] = ["name", "call", "expect", "rule"];

const CALL: [&str; 10] = [
    "server",
    "tool",
    "arguments",
    "user",
    "agent",
    "surface",
    "session",
    "side_effect",
    "recipients",
    "approval",
];

impl Reader<'_> {
    pub(super) fn case(&mut self, node: &Node, path: &str) -> Option<Case> {
        let fields = self.fields(node, path, &CASE)?;
        let name = self.name(&fields, "name");
        let call = match fields.get("call") {
            Some(call) => self.call(call, &fields.at("call")),
            None => {
                self.missing(&fields, "call", "a call: {tool, arguments, …}");
                None
            }
        };
        let expect = self.effect(&fields, "expect");
        let rule = self.text(&fields, "rule").map(Arc::from);
        Some(Case {
            name: name?.into(),
            line: node.line,
            call: call?,
            expect: expect?,
            rule,
        })
    }

    pub(super) fn call(&mut self, node: &Node, path: &str) -> Option<CaseCall> {
        let fields = self.fields(node, path, &CALL)?;
        let tool = self.needed_text(&fields, "tool", "the name of a tool, such as google__gmail_send");
        let server = self.text(&fields, "server");
        let arguments = match fields.get("arguments") {
            None => json!({}),
            Some(node) if matches!(node.content, Content::Map(_)) => node.to_json(),
            Some(node) => {
                self.invalid(node.line, &fields.at("arguments"), node.found(), "a map");
                Value::Null
            }
        };
        let user = self.text(&fields, "user").unwrap_or_else(|| "local".to_owned());
        let user = UserId::parse(user).map_err(|error| {
            self.invalid(node.line, &fields.at("user"), error.to_string(), "the name of a user");
        });
        let agent = self.text(&fields, "agent");
        let surface = match fields.get("surface") {
            None => "agent",
            Some(node) => self.choice(node, &fields.at("surface"), &SURFACES.map(|surface| (surface, surface)))?,
        };
        let session = match fields.get("session") {
            None => BTreeMap::new(),
            Some(node) => self.session(node, &fields.at("session"))?,
        };
        let side_effect = match fields
            .get("side_effect")
            .map(|node| (node.line, &node.content, node.found()))
        {
            None => true,
            Some((_, Content::Bool(value), _)) => *value,
            Some((line, _, found)) => {
                self.invalid(line, &fields.at("side_effect"), found, "true or false");
                true
            }
        };
        let recipients = self.paths(&fields);
        let approval = match fields.get("approval") {
            None => Approval::default(),
            Some(node) => self.choice(node, &fields.at("approval"), &Approval::NAMES)?,
        };
        let tool = tool?;
        if tool.starts_with(&format!("{AGENTS}__")) || server.as_deref() == Some(AGENTS) {
            for key in ["side_effect", "recipients", "approval"] {
                if let Some(node) = fields.get(key) {
                    let allowed =
                        "nothing: a call of an agent is decided by rules alone, and the agent's own calls one by one";
                    self.invalid(node.line, &fields.at(key), node.found(), allowed);
                }
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
            user: user.ok()?,
            agent: agent.map(Arc::from),
            surface,
            session,
            side_effect,
            recipients,
            approval,
        })
    }

    fn session(&mut self, node: &Node, path: &str) -> Option<BTreeMap<String, String>> {
        let fields = self.fields(node, path, &SessionFacts::FIELDS)?;
        let given = SessionFacts::FIELDS.map(|name| Some((name.to_owned(), self.text(&fields, name)?)));
        Some(given.into_iter().flatten().collect())
    }

    fn paths(&mut self, fields: &Fields<'_>) -> Vec<ArgumentPath> {
        let mut paths = Vec::new();
        for (n, node) in self.list(fields, "recipients").iter().enumerate() {
            let path = match &node.content {
                Content::Text(text) => ArgumentPath::parse(text),
                _ => None,
            };
            match path {
                Some(path) => paths.push(path),
                None => {
                    let place = format!("{}[{n}]", fields.at("recipients"));
                    self.invalid(node.line, &place, node.found(), ArgumentPath::ALLOWED);
                }
            }
        }
        paths
    }
}
