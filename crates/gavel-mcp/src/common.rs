//! What all servers share.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::meta::IdentitySigner;
use super::pins::Pins;
use super::registry::Registry;
use crate::domain::budget::Budget;

/// Shared by all servers.
pub(super) struct Common {
    pub(super) registry: Registry,
    pub(super) pins: Pins,
    pub(super) signer: Option<IdentitySigner>,
    /// The memory budget for answers.
    pub(super) answers: Arc<Budget>,
    pub(super) base_env: Arc<Vec<(&'static str, String)>>,
    pub(super) attempt_limit: Duration,
    pub(super) result_bytes: usize,
    pub(super) max_users: usize,
    pub(super) user_idle: Duration,
    pub(super) tasks: TaskTracker,
    pub(super) stop: CancellationToken,
}
