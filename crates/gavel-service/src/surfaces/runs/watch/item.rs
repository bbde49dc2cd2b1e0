//! What the event log of a run holds, before it becomes events.

use crate::api::events::Event;
use crate::api::runs::AgentRun;
use crate::domain::ids::RunId;
use crate::domain::journal::Entry;

/// What a reader of the event log gets, as it is stored: for surfaces that make events of their own of it.
#[derive(Debug)]
pub(crate) struct LogItem {
    /// The position in the log; that of the item before it, if it is live.
    pub(crate) position: u64,
    /// The run: the watched one, or one that it called.
    pub(crate) run: RunId,
    pub(crate) what: Logged,
}

/// What is in the event log of a run, or arrives beside it.
#[derive(Debug)]
pub(crate) enum Logged {
    /// An entry, written at this time in microseconds since the epoch.
    Entry(Box<Entry>, i64),
    /// Text of the model as it arrives, or that it is void.
    Live(Event),
    /// The run has ended.
    End(Box<AgentRun>),
}
