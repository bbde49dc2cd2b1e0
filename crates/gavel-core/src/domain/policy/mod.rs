//! The operator's policy: rules that add to the settings of tools and definitions.
//!
//! A policy is a file of rules, and of tests with the expected decisions. [`read`] parses it and collects every error,
//! [`condition`] is what a rule requires of a call, and [`grant`] is what users have allowed permanently.
//! `engine/gate` combines them into a decision.

mod condition;
mod read;

use std::collections::BTreeMap;
use std::sync::Arc;

use gavel_reading::nearest;
use globset::GlobSet;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::condition::{Condition, Evaluation};
use super::address::{MOST_RECIPIENTS, Recipients};
use super::argument_path::ArgumentPath;
use super::definition::{Approval, ReadError};
use super::ids::UserId;
use super::names::{names, record};
use super::repository::AllowedRepositories;

/// The surface of threads.
pub const THREAD: &str = "thread";
/// The surface of declared agents.
pub const AGENT: &str = "agent";
/// The surface of `POST /v1/chat`.
pub const CHAT: &str = "chat";
/// The surface of planning sessions.
pub const PLANNING: &str = "planning";
/// The surfaces that a call can come from, as logs name them.
pub const SURFACES: [&str; 4] = [CHAT, AGENT, THREAD, PLANNING];
/// In place of a server, for calls of other agents: a rule names them `NAME` or `agent__NAME`.
pub const AGENTS: &str = "agent";

/// Rules and their tests.
#[derive(Debug)]
pub struct Policy {
    /// In the order of the file. The order has no effect: the strictest rule wins.
    pub rules: Vec<Rule>,
    /// Expected decisions.
    pub tests: Vec<Case>,
    /// The most recipients of one call, over all its arguments.
    pub most_recipients: usize,
    /// The name of the file.
    pub file: Arc<str>,
    /// The repositories that calls may name (`planning.repositories`).
    pub repositories: AllowedRepositories,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            tests: Vec::new(),
            most_recipients: MOST_RECIPIENTS,
            file: Arc::from(""),
            repositories: AllowedRepositories::default(),
        }
    }
}

impl Policy {
    /// Parses a policy file. Does not run its tests.
    ///
    /// # Errors
    /// All errors, each with its line.
    pub fn read(text: &str, file: &str) -> Result<Self, Vec<ReadError>> {
        read::read(text, file)
    }
}

names! {
    /// The decision on a call, from least to most strict.
    Effect {
        /// The call may run.
        Allow = "allow",
        /// The call requires approval.
        RequireApproval = "require_approval",
        /// The call must not run.
        Deny = "deny",
    }
}

/// One rule.
#[derive(Debug)]
pub struct Rule {
    /// Unique in its file.
    pub name: Arc<str>,
    /// Its line in the file.
    pub line: u64,
    /// The tools and called agents it covers: names, bare or `server__tool`.
    tools: Names,
    agents: Option<Names>,
    users: Option<Names>,
    surfaces: Option<Names>,
    /// The condition for it to apply; `None` if there is none.
    when: Option<Condition>,
    /// Its decision.
    pub then: Effect,
    /// The reason, as text for approvers and the model.
    pub reason: Arc<str>,
}

/// Names; `*` matches any text.
#[derive(Debug)]
struct Names {
    set: GlobSet,
    /// As written, in the order of the set.
    written: Vec<Box<str>>,
}

impl Names {
    fn hold(&self, name: &str) -> bool {
        self.set.is_match(name)
    }
}

/// Everything that a rule can read.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The server that offers the tool; [`AGENTS`] if another agent is called.
    pub server: &'a str,
    /// The tool's name on that server, or the called agent's.
    pub tool: &'a str,
    /// The acting user.
    pub user: &'a str,
    /// The agent of the run; `None` on the chat surface.
    pub agent: Option<&'a str>,
    /// One of [`SURFACES`].
    pub surface: &'a str,
    /// The canonical arguments.
    pub arguments: &'a Value,
    /// The recipients, if the tool's settings name recipient arguments.
    pub recipients: Option<&'a Recipients>,
    /// The planning session of the run; all blank outside of sessions.
    pub session: SessionFacts<'a>,
}

impl Rule {
    /// Whether its condition reads the recipients.
    pub fn looks_at_recipients(&self) -> bool {
        self.when.as_ref().is_some_and(Condition::uses_recipients)
    }

    /// Whether its condition reads the arguments, so that the rule can be applied only to a call.
    pub fn looks_at_arguments(&self) -> bool {
        self.when.as_ref().is_some_and(Condition::uses_arguments)
    }

    /// Whether the rule covers calls like this one, regardless of its condition.
    pub fn is_about(&self, facts: &Facts<'_>) -> bool {
        let named = |names: &Option<Names>, name: Option<&str>| match names {
            None => true,
            Some(names) => name.is_some_and(|name| names.hold(name)),
        };
        // Another server's tool may be named `google__gmail_send`. A rule that can only restrict matches either name.
        let by_bare_name = self.then != Effect::Allow || !facts.tool.contains("__");
        (by_bare_name && self.tools.hold(facts.tool) || self.tools.hold(&format!("{}__{}", facts.server, facts.tool)))
            && named(&self.agents, facts.agent)
            && named(&self.users, Some(facts.user))
            && named(&self.surfaces, Some(facts.surface))
    }

    /// Whether the rule applies to this call.
    ///
    /// # Errors
    /// Why its condition cannot be evaluated.
    pub fn applies(&self, evaluation: &mut Evaluation<'_>) -> Result<bool, String> {
        let facts = evaluation.facts();
        match &self.when {
            _ if !self.is_about(facts) => Ok(false),
            None => Ok(true),
            // "All recipients are ours" is true for no recipients, which is not what the author of the rule meant.
            Some(condition)
                if self.then == Effect::Allow
                    && condition.uses_recipients()
                    && facts.recipients.is_some_and(Recipients::is_empty) =>
            {
                Ok(false)
            }
            Some(condition) => condition.holds(evaluation),
        }
    }
}

/// A test of a policy: a call and its expected decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Unique in its file.
    pub name: Arc<str>,
    /// Its line in the file.
    pub line: u64,
    /// The call.
    pub call: CaseCall,
    /// The expected decision.
    pub expect: Effect,
    /// The rule that must decide it.
    pub rule: Option<Arc<str>>,
}

/// The call of a [`Case`]. No server is contacted, so it states what the policy would know about the tool.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseCall {
    /// The server's name in `mcp.json`; if absent, a name that no rule can match.
    pub server: Arc<str>,
    /// The tool's name.
    pub tool: Arc<str>,
    /// The arguments.
    pub arguments: Value,
    /// The acting user.
    pub user: UserId,
    /// The agent of the run.
    pub agent: Option<Arc<str>>,
    /// One of [`SURFACES`].
    pub surface: &'static str,
    /// The planning session of the run, by the names of [`SessionFacts::FIELDS`].
    pub session: BTreeMap<String, String>,
    /// Whether a call changes something.
    pub side_effect: bool,
    /// The arguments that name recipients.
    pub recipients: Vec<ArgumentPath>,
    /// The approval rule of the definition.
    pub approval: Approval,
}

/// What decided a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecidedBy {
    /// It has side effects, which require approval.
    SideEffects,
    /// The tool's own setting.
    Tool,
    /// The agent's definition.
    Definition,
    /// A rule of the policy.
    Rule(Arc<str>),
    /// A grant of the user.
    Grant(Arc<str>),
    /// The checks of addresses, texts and times, which no rule can override.
    Parameters,
    /// The run's planning session, which is bound to one repository, or its confirmation, which asks for an approval.
    Session,
    /// The confirmed plan of the run's planning session.
    Plan,
    /// The repositories that its tenant may use.
    Repositories,
}

impl std::fmt::Display for DecidedBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::SideEffects => f.write_str("side_effects"),
            Self::Tool => f.write_str("tool"),
            Self::Definition => f.write_str("definition"),
            Self::Rule(name) => write!(f, "rule {name}"),
            Self::Grant(id) => write!(f, "grant {id}"),
            Self::Parameters => f.write_str("parameters"),
            Self::Session => f.write_str("session"),
            Self::Plan => f.write_str("plan"),
            Self::Repositories => f.write_str("repositories"),
        }
    }
}

record! {
    /// A check of the policy that matched a call, and whose answer lost against a stricter one, or one that lifted it.
    #[derive(PartialEq, Eq)]
    Lost as "LostCheck" {
        /// Which one, as in `decided_by`: `rule NAME`, `side_effects`, `tool` …
        by: String,
        /// Its answer.
        says: Effect,
    }
}

// Grants: calls of one tool, to exactly one set of recipients, each in its argument, that require no approval.

/// A grant of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Its id.
    pub id: Arc<str>,
    /// The user whose calls it covers.
    pub user: Arc<str>,
    /// The server's name in `mcp.json`.
    pub server: Arc<str>,
    /// The tool's name on that server.
    pub tool: Arc<str>,
    /// Digest of the tool's definition when the grant was made. A tool with another digest may do something that no
    /// approver has checked.
    pub digest: Arc<str>,
    /// All recipients. Never empty: a call without recipients is not what was approved.
    pub recipients: Recipients,
}

impl Grant {
    /// Whether it covers a call of this user and tool to exactly these recipients. One recipient more or less is
    /// another set. So is a recipient in another argument: recipients in `bcc` are hidden, those in `to` are not.
    pub fn covers(&self, user: &str, server: &str, tool: &str, digest: &str, recipients: &Recipients) -> bool {
        !recipients.is_empty()
            && &*self.user == user
            && &*self.server == server
            && &*self.tool == tool
            && &*self.digest == digest
            && self.recipients == *recipients
    }
}

// What rules know of a planning session.

/// A planning session, as rules see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionFacts<'a> {
    /// Its id.
    pub id: &'a str,
    /// The owner of its repository.
    pub owner: &'a str,
    /// The name of its repository.
    pub repo: &'a str,
}

impl<'a> SessionFacts<'a> {
    /// The names of its fields.
    pub const FIELDS: [&'static str; 3] = ["id", "owner", "repo"];

    /// The session of a run that has these values, by the names of the fields.
    pub fn of(values: Option<&'a BTreeMap<String, String>>) -> Self {
        let [id, owner, repo] = Self::FIELDS.map(|name| {
            let value = values.and_then(|values| values.get(name));
            value.map_or("", String::as_str)
        });
        Self { id, owner, repo }
    }

    /// Each value with its name.
    pub fn fields(self) -> impl Iterator<Item = (&'static str, &'a str)> {
        Self::FIELDS.into_iter().zip([self.id, self.owner, self.repo])
    }
}

// Names in rules that match nothing: a misspelled rule never applies, and its own tests have the same error.

/// What the names in rules are compared with.
#[derive(Debug)]
pub struct Known<'a> {
    /// The tools that connected servers offer: the server's name, and the tool's.
    pub tools: Vec<(&'a str, &'a str)>,
    /// The servers that offer nothing now. Names with such a server in them are not reported.
    pub down: Vec<&'a str>,
    /// The agents of the configuration.
    pub agents: Vec<&'a str>,
}

impl Policy {
    /// A sentence for each name in a rule that matches none of the known tools or agents.
    pub fn unknown_names(&self, known: &Known<'_>) -> Vec<String> {
        let called = known.agents.iter().map(|agent| (AGENTS, *agent));
        let tools: Vec<_> = known
            .tools
            .iter()
            .copied()
            .chain(called)
            .flat_map(|(server, tool)| [tool.to_owned(), format!("{server}__{tool}")])
            .collect();
        let agents: Vec<_> = known.agents.iter().map(|&agent| agent.to_owned()).collect();
        let mut found = Vec::new();
        for rule in &self.rules {
            let place = format!("rule {} ({}:{})", rule.name, self.file, rule.line);
            for name in rule.tools.without_match(&tools) {
                if !known.down.iter().any(|server| name.starts_with(&format!("{server}__"))) {
                    let tip = tip(name, &tools);
                    found.push(format!(
                        "{place} names the tool {name:?}, which no connected server offers{tip}"
                    ));
                }
            }
            for name in rule.agents.iter().flat_map(|names| names.without_match(&agents)) {
                let tip = tip(name, &agents);
                found.push(format!(
                    "{place} names the agent {name:?}, which is not in this configuration{tip}"
                ));
            }
        }
        found
    }
}

impl Names {
    /// The names, as written, that match none of `all`.
    fn without_match<'a>(&'a self, all: &[String]) -> impl Iterator<Item = &'a str> {
        let mut matched = vec![false; self.written.len()];
        for name in all {
            self.set.matches(name).into_iter().for_each(|at| matched[at] = true);
        }
        let names = self.written.iter().zip(matched);
        names.filter(|(_, matched)| !matched).map(|(name, _)| &**name)
    }
}

fn tip(name: &str, all: &[String]) -> String {
    let nearest = nearest(name, all.iter().map(String::as_str));
    nearest.map_or_else(String::new, |nearest| format!("; did you mean {nearest}?"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// a rule that can never apply is reported, with the name that was probably meant.
    #[test]
    fn a_name_that_matches_no_tool_or_agent_is_reported_with_the_nearest_one() {
        let text = "rules:
- {name: a, tools: [shop__order_artcle, order_article, 'shop__*', '*'], then: deny, reason: r}
- {name: b, tools: [agent__buyer, byer, google__gmail_send], agents: [buyerr, 'b*'], then: deny, reason: r}
- {name: c, tools: ['mail__*'], then: deny, reason: r}
";
        let policy = Policy::read(text, "policy.yaml").unwrap();
        let known = Known {
            tools: vec![("shop", "order_article"), ("shop", "list_articles")],
            down: vec!["google"],
            agents: vec!["buyer"],
        };
        assert_eq!(
            policy.unknown_names(&known),
            [
                "rule a (policy.yaml:2) names the tool \"shop__order_artcle\", which no connected server offers; \
                 did you mean shop__order_article?",
                "rule b (policy.yaml:3) names the tool \"byer\", which no connected server offers; did you mean buyer?",
                "rule b (policy.yaml:3) names the agent \"buyerr\", which is not in this configuration; did you mean buyer?",
                "rule c (policy.yaml:4) names the tool \"mail__*\", which no connected server offers",
            ]
        );
    }
}
