//! What the work of a session waits for, and why it continues.

use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::domain::ids::ActionId;
use crate::domain::names::names;
use crate::domain::plan::TaskId;
use crate::surfaces::planning::WaitingKind;

/// A call that a person must decide about.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlanningWaitingCall)]
pub struct WaitingCall {
    /// `approval`: a person must approve or reject the call. `in_doubt`: a person must settle whether it had its effect.
    pub kind: WaitingKind,
    /// Its task.
    #[schema(value_type = Option<String>, example = "t1", required = true)]
    pub task_id: Option<TaskId>,
    /// The call.
    #[schema(value_type = String, format = "uuid")]
    pub action_id: ActionId,
    /// The tool.
    #[schema(value_type = String)]
    pub tool: Arc<str>,
    /// Exactly its arguments.
    #[schema(value_type = Object)]
    pub arguments: Arc<RawValue>,
    /// Why a person is asked.
    pub reason: String,
}

names! {
    /// Why the work of a session continues.
    ResumedBecause {
        /// A person approved the call.
        Approved = "approved",
        /// A person rejected it.
        Rejected = "rejected",
        /// No person answered in time.
        Expired = "expired",
        /// A person said that the call had its effect.
        Happened = "happened",
        /// A person said that it did not.
        DidNotHappen = "did_not_happen",
        /// Another process took the work over.
        Recovered = "recovered",
    }
}
