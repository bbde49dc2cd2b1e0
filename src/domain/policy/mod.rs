//! The operator's policy: rules on top of what tools and definitions say of themselves.
//!
//! A policy is a file of rules and of tests that say what must come out. [`read`] makes it and collects every mistake,
//! [`condition`] is what a rule asks of a call, [`grant`] what people have allowed for good. What they lead to together
//! decides the gate, `engine/policy`.

mod condition;
mod cost;
mod grant;
mod read;

use std::sync::Arc;

use globset::GlobSet;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use condition::{Condition, Evaluation};
pub use grant::Grant;

use super::address::{MOST_RECIPIENTS, Recipients};
use super::argument_path::ArgumentPath;
use super::definition::{Approval, DefinitionError};

/// The surface of threads, on which a side effect always needs leave.
pub const THREAD: &str = "thread";
/// Where a call can come from, as the record names it.
pub const SURFACES: [&str; 3] = ["chat", "agent", THREAD];

/// Rules, with tests of them.
#[derive(Debug)]
pub struct Policy {
    /// In the order of the file. The order makes no difference: the strictest counts.
    pub rules: Vec<Rule>,
    /// What must come out.
    pub tests: Vec<Case>,
    /// Most recipients of one call, over all its arguments.
    pub most_recipients: usize,
    /// The file, as it was named to the reader.
    pub file: Arc<str>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            tests: Vec::new(),
            most_recipients: MOST_RECIPIENTS,
            file: Arc::from(""),
        }
    }
}

impl Policy {
    /// Reads a policy file. Its tests are not run.
    ///
    /// # Errors
    /// Every mistake, each with its line.
    pub fn read(text: &str, file: &str) -> Result<Self, Vec<DefinitionError>> {
        read::read(text, file)
    }
}

/// What is answered for a call, from lax to strict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// It may run.
    Allow,
    /// A person must agree first.
    RequireApproval,
    /// It does not run.
    Deny,
}

impl Effect {
    /// Each with its name in a policy file.
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
    /// Where it stands.
    pub line: u64,
    /// Whose calls it is about: names of tools, bare or `server__tool`.
    tools: Names,
    agents: Option<Names>,
    users: Option<Names>,
    surfaces: Option<Names>,
    /// What must hold; absent: nothing more.
    when: Option<Condition>,
    /// What it answers.
    pub then: Effect,
    /// Why, in words for approvers and the model.
    pub reason: Arc<str>,
}

/// Names, in which `*` stands for anything.
#[derive(Debug)]
struct Names {
    set: GlobSet,
}

impl Names {
    fn hold(&self, name: &str) -> bool {
        self.set.is_match(name)
    }
}

/// All that a rule may look at.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The server that offers the tool.
    pub server: &'a str,
    /// The tool's name on that server.
    pub tool: &'a str,
    /// Who acts.
    pub user: &'a str,
    /// The agent whose run it is; none on the chat surface.
    pub agent: Option<&'a str>,
    /// One of [`SURFACES`].
    pub surface: &'a str,
    /// The canonical arguments.
    pub arguments: &'a Value,
    /// The recipients, of a tool whose settings name them.
    pub recipients: Option<&'a Recipients>,
}

impl Rule {
    /// Does its condition look at whom a call reaches?
    #[must_use]
    pub fn looks_at_recipients(&self) -> bool {
        self.when.as_ref().is_some_and(Condition::uses_recipients)
    }

    /// Is the rule about calls like this one, whatever its condition says?
    #[must_use]
    pub fn is_about(&self, facts: &Facts<'_>) -> bool {
        let named = |names: &Option<Names>, name: Option<&str>| match names {
            None => true,
            Some(names) => name.is_some_and(|name| names.hold(name)),
        };
        // Some other server's tool may be called `google__gmail_send`: what may only be too strict takes either name.
        let by_bare_name = self.then != Effect::Allow || !facts.tool.contains("__");
        (by_bare_name && self.tools.hold(facts.tool) || self.tools.hold(&format!("{}__{}", facts.server, facts.tool)))
            && named(&self.agents, facts.agent)
            && named(&self.users, Some(facts.user))
            && named(&self.surfaces, Some(facts.surface))
    }

    /// Is the rule about this call?
    ///
    /// # Errors
    /// Why its condition cannot be evaluated.
    pub fn applies(&self, evaluation: &mut Evaluation<'_>) -> Result<bool, String> {
        let facts = evaluation.facts();
        match &self.when {
            _ if !self.is_about(facts) => Ok(false),
            None => Ok(true),
            // "All recipients are ours" holds of nobody, and whoever wrote it did not mean that.
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

/// A test of a policy: a call, and what must be answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Unique in its file.
    pub name: Arc<str>,
    /// Where it stands.
    pub line: u64,
    /// The call.
    pub call: CaseCall,
    /// What must be answered.
    pub expect: Effect,
    /// The rule that must decide it.
    pub rule: Option<Arc<str>>,
}

/// The call of a [`Case`]: no server is asked, so it says itself what the gate would know of the tool.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseCall {
    /// The server's name in `mcp.json`; absent: one that no rule can name.
    pub server: Arc<str>,
    /// The tool's name.
    pub tool: Arc<str>,
    /// The arguments.
    pub arguments: Value,
    /// Who acts.
    pub user: Arc<str>,
    /// Whose run it is.
    pub agent: Option<Arc<str>>,
    /// Where: one of [`SURFACES`].
    pub surface: &'static str,
    /// Does a call change something?
    pub side_effect: bool,
    /// Which arguments name recipients.
    pub recipients: Vec<ArgumentPath>,
    /// The definition's rule.
    pub approval: Approval,
}

/// What decided a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecidedBy {
    /// It has side effects, and those need leave.
    SideEffects,
    /// The tool's own setting.
    Tool,
    /// The agent's definition.
    Definition,
    /// A rule of the policy.
    Rule(Arc<str>),
    /// What a person has allowed for good.
    Grant(Arc<str>),
    /// The checks of addresses, texts and times, which no rule lifts.
    Parameters,
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
        }
    }
}
