//! Planning sessions: their settings, and the sweep that ends those whose deadline has passed.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::config::{self, Auth, Config};
use crate::surfaces::planning::{Planning, PlanningSettings, Repositories};

/// Interval between two searches for sessions past their deadline.
const SWEEP: Duration = Duration::from_secs(2);

/// Without authentication and without a list every repository is allowed: the operator is the only user.
pub(super) fn settings(config: &Config) -> PlanningSettings {
    let config::Planning {
        repositories,
        github,
        max_hours,
        sessions_per_user,
        sessions,
    } = config.planning.clone();
    let is_open = repositories.is_empty() && matches!(config.auth, Auth::None);
    PlanningSettings {
        repositories: Repositories::new(github, (!is_open).then_some(repositories)),
        max_hours,
        sessions_per_user,
        sessions,
    }
}

pub(super) async fn sweep(planning: Arc<Planning>, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(SWEEP);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                let handled = planning.sweep().await;
                if handled > 0 {
                    tracing::info!(handled, "planning sessions were moved on: a deadline passed, or a run was lost");
                }
            }
            () = stop.cancelled() => return,
        }
    }
}
