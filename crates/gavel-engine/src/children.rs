//! The port through which a run calls other agents. [`agent`] implements it; the rest of the engine knows no agents.
//!
//! [`agent`]: super::agent

use std::sync::Arc;

use serde_json::value::RawValue;

use super::record::Record;
use super::stop::Stop;
use crate::domain::ids::RunId;
use crate::domain::journal::{CallResult, Entry, Proposed};
use crate::ports::BoxFuture;

/// The child runs of one run, whose record each method gets.
pub trait ChildRuns: Send + Sync {
    /// Creates the child run of a started call, unless it exists, and drives it to its end. A child run that was cut
    /// short, and started again since, is reopened first.
    fn call<'a>(
        &'a self,
        record: &'a Record,
        call: &'a Proposed,
        arguments: &'a Arc<RawValue>,
    ) -> BoxFuture<'a, Result<CallResult, Stop>>;

    /// The child run that continues a started call, and whether it must be started again: it was cut short, and this run
    /// is resumed since.
    fn continuing<'a>(&'a self, record: &'a Record, call: &'a Proposed) -> BoxFuture<'a, Result<(RunId, bool), Stop>>;

    /// Ends the child runs that have not ended, in their current state. Returns the results of their calls.
    fn cancel<'a>(&'a self, record: &'a Record) -> BoxFuture<'a, Result<Vec<Entry>, Stop>>;

    /// Returns when no child run is being driven.
    fn idle(&self) -> BoxFuture<'_, ()>;
}
