//! The policy's decision on one call.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::super::address::Recipients;
use super::super::policy::DecidedBy;
use super::super::tool::FailureCode;

/// The policy's decision on one call.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyDecision {
    /// It may run, with exactly these canonical arguments.
    Allow {
        /// Identity injected, checked, canonical.
        arguments: Arc<RawValue>,
        /// What approved it; `None` if no approval was required.
        by: Option<DecidedBy>,
    },
    /// An approver must approve it first.
    RequireApproval {
        /// Identity injected, checked, canonical.
        arguments: Arc<RawValue>,
        /// Why it requires approval.
        reason: String,
        /// What requires the approval.
        by: Vec<DecidedBy>,
        /// What the approver should know, as text.
        warnings: Vec<String>,
        /// All recipients of the call.
        recipients: Recipients,
        /// The call sets an argument that no grant can cover.
        ungrantable: bool,
        /// The account that would be used, as named by the tool's server.
        account: Option<String>,
    },
    /// It must not run.
    Refuse {
        /// Why: a code from the closed list.
        code: FailureCode,
        /// Why, as text for the model and the logs.
        message: String,
        /// The part of the policy that decided it; empty if the call itself was invalid.
        by: Vec<DecidedBy>,
    },
}
