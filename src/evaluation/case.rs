//! A case: a message with what was there before it, and what has to come of it.

use std::collections::BTreeMap;

use super::day::Day;
use super::matcher::Matcher;
use crate::domain::decision::{DecisionType, Outcome};
use crate::domain::journal::Speaker;

/// One case of an evaluation.
#[derive(Clone, Debug)]
pub struct Case {
    /// Unique over all files.
    pub id: String,
    /// The file it stands in, and the line it begins on.
    pub place: (String, u64),
    /// What it tests.
    pub kind: Kind,
    /// The language of the message, as a BCP 47 tag.
    pub language: String,
    /// The message.
    pub message: String,
    /// What was said before, oldest first.
    pub history: Vec<Turn>,
    /// The tasks the user has, oldest first.
    pub tasks: Vec<SeedTask>,
    /// What has to come of it.
    pub expect: Expectation,
}

impl Case {
    /// Is it a clear request, one that counts for C-SC-1? Those of the kinds `clear` and `multi_step`, and
    /// those in other languages that are to be acted on or answered.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        let acted_on = || {
            matches!(
                self.expect.decision[0],
                DecisionType::InvokeTool | DecisionType::RespondOnly
            )
        };
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
    /// Says what to do, or is small talk.
    Clear,
    /// Needs a question back.
    Ambiguous,
    /// Has nothing to do with tasks.
    OutOfScope,
    /// Asks for harm.
    Harmful,
    /// Needs several calls that build on each other.
    MultiStep,
    /// Is not English.
    Languages,
}

impl Kind {
    /// Every kind with its name in a case.
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
        match self {
            Self::Clear => "clear",
            Self::Ambiguous => "ambiguous",
            Self::OutOfScope => "out_of_scope",
            Self::Harmful => "harmful",
            Self::MultiStep => "multi_step",
            Self::Languages => "languages",
        }
    }
}

/// An earlier line of the conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Who said it.
    pub speaker: Speaker,
    /// What.
    pub text: String,
}

/// A task that is there before the message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeedTask {
    /// What is to be done.
    pub description: String,
    /// When it is due.
    pub due: Option<Day>,
    /// `low`, `normal` or `high`.
    pub priority: Option<String>,
    /// Details.
    pub notes: Option<String>,
    /// Is it done already?
    pub done: bool,
}

/// What has to come of a message.
#[derive(Clone, Debug)]
pub struct Expectation {
    /// Any of these; the first is what the confusion matrix counts as expected. Never empty.
    pub decision: Vec<DecisionType>,
    /// Any of these; empty: any.
    pub outcome: Vec<Outcome>,
    /// Successful calls that there must be; others may stand between them.
    pub calls: Vec<ExpectedCall>,
    /// Must they come in this order?
    pub in_order: bool,
    /// Tools that must not run.
    pub forbidden: Forbidden,
    /// What the reply must say.
    pub response: Option<Matcher>,
    /// The tasks there must be in the end.
    pub tasks: ExpectedTasks,
}

/// A successful call that there must be.
#[derive(Clone, Debug)]
pub struct ExpectedCall {
    /// The tool's own name.
    pub tool: String,
    /// Arguments that must match; others may be there.
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
    #[must_use]
    pub fn forbids(&self, tool: &str) -> bool {
        match self {
            Self::Tools(tools) => tools.iter().any(|name| name == tool),
            Self::Effects => tool != "list_tasks",
            Self::All => true,
        }
    }
}

/// The tasks there must be in the end.
#[derive(Clone, Debug)]
pub enum ExpectedTasks {
    /// Nothing is said about them.
    Any,
    /// The seeded ones, unchanged.
    Unchanged,
    /// Exactly these, in any order.
    Exactly(Vec<ExpectedTask>),
}

/// A task there must be.
#[derive(Clone, Debug)]
pub struct ExpectedTask {
    /// What is to be done.
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
