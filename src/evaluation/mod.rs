//! Evaluation: how often a model decides as it should (C-SC-1), and whether code holds whatever it says.
//!
//! 1. [`load`] reads cases from `evaluation/*.yaml` and refuses wrong ones, all errors at once.
//! 2. [`run`] takes each case to a [`Subject`]: a new user, the seeded tasks, the message, the tasks after.
//! 3. [`score`] compares what was observed with what was expected; [`invariants`] checks what must be
//!    true of any decision under any model.
//! 4. [`Report`] counts, and is written as a table, as JSON or as JUnit XML ([`render`]).
//!
//! Absent on purpose: this module knows no model, no database and no HTTP. Whoever implements
//! [`Subject`] brings the real thing.

pub mod agents;
mod case;
mod day;
mod invariants;
mod load;
mod matcher;
pub mod render;
mod report;
mod runner;
mod score;
mod subject;

pub use case::{Case, Expectation, ExpectedCall, ExpectedTask, ExpectedTasks, Forbidden, Kind, SeedTask, Turn};
pub use day::Day;
pub use load::{CaseError, load, parse};
pub use matcher::Matcher;
pub use report::{CaseResult, Confusion, Exit, Gate, KindScore, Rate, Report, STAND_INS, Verdict};
pub use runner::{Options, Progress, run};
pub use subject::{Observed, ObservedCall, ObservedError, ObservedResult, ObservedTask, Seed, Subject};
