//! The chat surface: how often a model decides as expected (C-SC-1), and whether the invariants hold whatever it says.
//!
//! 1. [`load`] reads cases from `evaluation/*.yaml` and rejects invalid ones, with all errors at once.
//! 2. [`run`] applies each case to a [`Subject`]: a new user, the seeded tasks, the message, the tasks after.
//! 3. [`score`] compares the observed with the expected result; [`invariants`] checks what must be true of any decision
//!    under any model.
//! 4. [`Report`] counts the results; [`render`] writes it as a table, as JSON or as JUnit XML.
//!
//! [`Args`] are the options of the command, which evaluates the chat surface of a running gavel. Tests have other
//! subjects.

mod api;
mod case;
mod command;
mod day;
mod invariants;
mod load;
mod matcher;
pub mod render;
mod report;
mod runner;
mod score;
mod subject;

pub use case::{
    Case, DECISIONS, Expectation, ExpectedCall, ExpectedTask, ExpectedTasks, Forbidden, Kind, SeedTask, Turn,
};
pub use command::Args;
pub use day::Day;
pub use load::{load, parse};
pub use matcher::Matcher;
pub use report::{CaseResult, Confusion, Exit, Gate, KindScore, Rate, Report, STAND_INS, Verdict};
pub use runner::{Options, Progress, run};
pub use subject::{Observed, ObservedCall, ObservedError, ObservedResult, Subject, Task};
