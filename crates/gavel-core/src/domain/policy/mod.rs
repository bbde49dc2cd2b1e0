//! The operator's policy: rules that add to the settings of tools and definitions.
//!
//! A policy is a file of rules, and of tests with the expected decisions. [`read`] parses it and collects every error,
//! [`condition`] is what a rule requires of a call, and [`grant`] is what users have allowed permanently.
//! `engine/gate` combines them into a decision.

mod condition;
mod grant;
mod read;
mod session;
mod unknown;

use std::collections::BTreeMap;
use std::sync::Arc;

use globset::GlobSet;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use condition::{Condition, Evaluation};
pub use grant::Grant;
pub use session::SessionFacts;
pub use unknown::Known;

use super::address::{MOST_RECIPIENTS, Recipients};
use super::argument_path::ArgumentPath;
use super::definition::{Approval, ReadError};
use super::ids::UserId;
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

/// The decision on a call, from least to most strict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// The call may run.
    Allow,
    /// The call requires approval.
    RequireApproval,
    /// The call must not run.
    Deny,
}

impl Effect {
    /// Each value with its name in a policy file.
    pub const NAMES: [(&'static str, Self); 3] = [
        ("allow", Self::Allow),
        ("require_approval", Self::RequireApproval),
        ("deny", Self::Deny),
    ];

    /// The name in a policy file.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::RequireApproval => "require_approval",
            Self::Deny => "deny",
        }
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
    #[must_use]
    pub fn looks_at_recipients(&self) -> bool {
        self.when.as_ref().is_some_and(Condition::uses_recipients)
    }

    /// Whether its condition reads the arguments, so that the rule can be applied only to a call.
    #[must_use]
    pub fn looks_at_arguments(&self) -> bool {
        self.when.as_ref().is_some_and(Condition::uses_arguments)
    }

    /// Whether the rule covers calls like this one, regardless of its condition.
    #[must_use]
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
