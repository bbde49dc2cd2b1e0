//! Why a run does not continue in this process.

use std::sync::Arc;

use crate::domain::ids::RunId;
use crate::ports::records::{QueryError, RecordError};

/// Why a run does not continue in this process. Everything that was sent is recorded.
#[derive(Debug)]
pub enum Stop {
    /// An entry could not be made durable, or the store could not be read.
    Record(RecordError),
    /// Another process holds the run, or may hold it.
    LeaseLost,
    /// A call that was about to start may not start anymore: its approval expired, its grant was revoked, or the run was
    /// cancelled. The next worker reads which.
    ApprovalGone,
    /// The run was signaled to stop here.
    Halted,
    /// This run or a child run waits for an approval; its row records that.
    Suspended(RunId),
    /// A step of its flow was cut short. The flow resumes the step when it is itself resumed.
    StepStopped(CutStep),
}

/// A step of a flow that was cut short.
#[derive(Clone, Debug, Default)]
pub struct CutStep {
    /// Its last text.
    pub summary: Option<String>,
    /// Its model calls, including those of its own steps.
    pub steps: u32,
    /// Their tokens.
    pub tokens: u64,
    /// Was it cut short by its deadline, which is that of the flow?
    pub past_deadline: bool,
}

impl From<RecordError> for Stop {
    fn from(error: RecordError) -> Self {
        Self::Record(error)
    }
}

/// A store that cannot be read counts as unavailable.
impl From<QueryError> for Stop {
    fn from(error: QueryError) -> Self {
        Self::Record(RecordError::Unavailable(Arc::from(error.to_string())))
    }
}
