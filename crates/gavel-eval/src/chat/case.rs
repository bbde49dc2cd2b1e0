//! A case: a message with its preconditions and the expected result.

use std::collections::BTreeMap;

use super::day::Day;
use super::matcher::Matcher;

/// The types of a decision, as gavel's API spells them.
pub const DECISIONS: [&str; 4] = [REFUSE, CLARIFY, INVOKE, RESPOND];
pub(super) const REFUSE: &str = "REFUSE";
pub(super) const CLARIFY: &str = "REQUEST_CLARIFICATION";
pub(super) const INVOKE: &str = "INVOKE_TOOL";
pub(super) const RESPOND: &str = "RESPOND_ONLY";

/// One case of an evaluation.
#[derive(Clone, Debug)]
pub struct Case {
    /// Unique over all files.
    pub id: String,
    /// The file that contains it, and the line where it begins.
    pub place: (String, u64),
    /// What it tests.
    pub kind: Kind,
    /// The language of the message, as a BCP 47 tag.
    pub language: String,
    /// The message.
    pub message: String,
    /// The earlier conversation, oldest first.
    pub history: Vec<Turn>,
    /// The tasks the user has, oldest first.
    pub tasks: Vec<SeedTask>,
    /// The expected result.
    pub expect: Expectation,
}

impl Case {
    /// Is it a clear request, one that counts for C-SC-1? These are the kinds `clear` and `multi_step`, and cases in
    /// other languages that expect an action or an answer.
    pub fn is_clear(&self) -> bool {
        let acted_on = || [INVOKE, RESPOND].contains(&self.expect.decision[0]);
        match self.kind {
            Kind::Clear | Kind::MultiStep => true,
            Kind::Languages => acted_on(),
            Kind::Ambiguous | Kind::OutOfScope | Kind::Harmful => false,
        }
    }
}

/// What a case tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// States an action, or is small talk.
    Clear,
    /// Requires a clarifying question.
    Ambiguous,
    /// Is unrelated to tasks.
    OutOfScope,
    /// Asks for harm.
    Harmful,
    /// Needs several calls that build on each other.
    MultiStep,
    /// Is not English.
    Languages,
}

impl Kind {
    /// Every kind with its name in a case, in the order of the enum.
    pub const NAMES: [(&'static str, Self); 6] = [
        ("clear", Self::Clear),
        ("ambiguous", Self::Ambiguous),
        ("out_of_scope", Self::OutOfScope),
        ("harmful", Self::Harmful),
        ("multi_step", Self::MultiStep),
        ("languages", Self::Languages),
    ];

    /// The name in a case.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::NAMES[self as usize].0
    }
}

/// An earlier line of the conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// `user` or `assistant`.
    pub role: &'static str,
    /// The text.
    pub text: String,
}

/// A task that exists before the message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeedTask {
    /// The text of the task.
    pub description: String,
    /// When it is due.
    pub due: Option<Day>,
    /// `low`, `normal` or `high`.
    pub priority: Option<String>,
    /// Details.
    pub notes: Option<String>,
    /// Is it already done?
    pub done: bool,
}

/// The expected result of a message.
#[derive(Clone, Debug)]
pub struct Expectation {
    /// Any of these; the confusion matrix counts the first as expected. Never empty.
    pub decision: Vec<&'static str>,
    /// Any of these; empty: any.
    pub outcome: Vec<String>,
    /// Required successful calls; others may occur between them.
    pub calls: Vec<ExpectedCall>,
    /// Must they occur in this order?
    pub in_order: bool,
    /// Tools that must not run.
    pub forbidden: Forbidden,
    /// The condition on the reply.
    pub response: Option<Matcher>,
    /// The expected tasks at the end.
    pub tasks: ExpectedTasks,
}

/// A required successful call.
#[derive(Clone, Debug)]
pub struct ExpectedCall {
    /// The tool's own name.
    pub tool: String,
    /// Arguments that must match; there may be others.
    pub arguments: BTreeMap<String, Matcher>,
}

/// Tools that must not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forbidden {
    /// These.
    Tools(Vec<String>),
    /// Every tool that changes something (all but `list_tasks`).
    Effects,
    /// Every tool.
    All,
}

impl Forbidden {
    /// Must this tool not run?
    pub fn forbids(&self, tool: &str) -> bool {
        match self {
            Self::Tools(tools) => tools.iter().any(|name| name == tool),
            Self::Effects => tool != "list_tasks",
            Self::All => true,
        }
    }
}

/// The expected tasks at the end.
#[derive(Clone, Debug)]
pub enum ExpectedTasks {
    /// No condition.
    Any,
    /// The seeded ones, unchanged.
    Unchanged,
    /// Exactly these, in any order.
    Exactly(Vec<ExpectedTask>),
}

/// An expected task.
#[derive(Clone, Debug)]
pub struct ExpectedTask {
    /// The text of the task.
    pub description: Matcher,
    /// When it is due.
    pub due: Option<Matcher>,
    /// Its priority.
    pub priority: Option<Matcher>,
    /// Its notes.
    pub notes: Option<Matcher>,
    /// Is it done?
    pub done: bool,
}
