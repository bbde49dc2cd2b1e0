//! Evaluation: how often a model decides as expected (C-SC-1), and whether the invariants hold whatever it says.
//!
//! 1. [`load`] reads cases from `evaluation/*.yaml` and rejects invalid ones, with all errors at once.
//! 2. [`run`] applies each case to a [`Subject`]: a new user, the seeded tasks, the message, the tasks after.
//! 3. [`score`] compares the observed with the expected result; [`invariants`] checks what must be true of any decision
//!    under any model.
//! 4. [`Report`] counts the results; [`render`] writes it as a table, as JSON or as JUnit XML.
//!
//! This module deliberately knows no model, no database and no HTTP. Implementations of [`Subject`] provide them.

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
