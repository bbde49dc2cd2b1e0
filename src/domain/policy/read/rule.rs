//! Reads one rule.

use super::super::{Condition, Rule};
use super::names::names_agents_only;
use super::{Fields, Reader};
use crate::domain::definition::{Content, Node, quoted};

/// The longest reason, in bytes: people and models read it.
const MOST_REASON: usize = 500;

const RULE: [&str; 8] = ["name", "tools", "agents", "users", "surfaces", "when", "then", "reason"];

impl Reader<'_> {
    pub(super) fn rule(&mut self, node: &Node, path: &str) -> Option<Rule> {
        let fields = self.fields(node, path, &RULE)?;
        let name = self.name(&fields, "name");
        let tools = match fields.get("tools") {
            Some(_) => self.names(&fields, "tools"),
            None => {
                self.missing(
                    &fields,
                    "tools",
                    "names of tools, such as [google__gmail_send], or [\"*\"] for all",
                );
                None
            }
        };
        let agents = self.names(&fields, "agents");
        let users = self.names(&fields, "users");
        let surfaces = self.surfaces(&fields);
        let when = self.condition(&fields);
        if let Some(node) = fields.get("when").filter(|_| names_agents_only(&fields))
            && when.as_ref().is_some_and(Condition::uses_recipients)
        {
            let allowed = "a condition without `recipients`: a call of an agent has none";
            self.invalid(node.line, &fields.at("when"), node.found(), allowed);
        }
        let then = self.effect(&fields, "then");
        let reason = self.needed_text(&fields, "reason", "why, in words for approvers and the model");
        if let Some(reason) = reason.as_ref().filter(|reason| reason.len() > MOST_REASON) {
            let found = format!("{} bytes", reason.len());
            self.invalid(node.line, &fields.at("reason"), found, format!("at most {MOST_REASON}"));
        }
        Some(Rule {
            name: name?.into(),
            line: node.line,
            tools: tools?,
            agents,
            users,
            surfaces,
            when,
            then: then?,
            reason: reason?.into(),
        })
    }

    fn condition(&mut self, fields: &Fields<'_>) -> Option<Condition> {
        let node = fields.get("when")?;
        let Content::Text(source) = &node.content else {
            self.invalid(node.line, &fields.at("when"), node.found(), "a CEL expression");
            return None;
        };
        match Condition::parse(source.trim()) {
            Ok(condition) => Some(condition),
            Err(error) => {
                let found = format!("{}, which {error}", quoted(source.trim()));
                self.invalid(
                    node.line,
                    &fields.at("when"),
                    found,
                    "a CEL expression that returns true or false",
                );
                None
            }
        }
    }
}
