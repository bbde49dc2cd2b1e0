//! What the tools of the bundled servers act on, and whether it is fit for that: the container engine, GitHub, the sandbox of
//! commands, the web.

use super::BoxFuture;
use crate::api::planning::{Fitness, Subject};

/// Looks at what the bundled servers act on.
pub trait Conditions: Send + Sync {
    /// All that is known now, in the order of [`Subject::ALL`]; nothing about a server that is off. It asks the engine and
    /// GitHub, so it takes up to some seconds.
    fn look(&self) -> BoxFuture<'_, Vec<Condition>>;
}

/// The condition of one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// What it is about.
    pub of: Subject,
    /// Is it fit for work?
    pub state: Fitness,
    /// What was seen, in words for an operator. It has no secret.
    pub detail: String,
    /// What to do about an error.
    pub next: Option<String>,
}
