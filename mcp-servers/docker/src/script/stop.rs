//! Ending a script from outside.

use std::time::Duration;

use tokio::time::timeout;

use super::{STOP, Script};
use crate::engine::Engine;
use crate::engine::exec::Command;

/// Five seconds until it has begun, two between TERM and KILL, and five for what remains.
const TIME: Duration = Duration::from_secs(15);

/// Why a script is ended.
#[derive(Debug, Clone, Copy)]
pub(super) enum Why {
    /// It ran as long as it may.
    Timeout,
    /// The caller cancelled the call, or its time has ended.
    Cancelled,
    /// Its supervisor is gone.
    Interrupted,
}

impl Why {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
        }
    }
}

/// Ends the script and all that it started. Returns whether the container had to be restarted for that.
pub(super) async fn stop(engine: &Engine, script: &Script, why: Why) -> bool {
    if ends(engine, script, why, "").await {
        return false;
    }
    match engine.restart(&script.container).await {
        Ok(Some(_turn)) => {
            tracing::warn!(
                container = script.container,
                "a script could not be ended; its container was restarted"
            );
            // Nothing is left to end: this notes what happened, for the kept result. Another attempt
            // waits for the turn, and then reads it.
            ends(engine, script, why, "restarted").await;
            true
        }
        // The container has stopped, or is gone, and the script with it.
        Ok(None) => false,
        Err(_) => {
            tracing::error!(
                container = script.container,
                "a container with a script that could not be ended did not restart"
            );
            false
        }
    }
}

/// Whether nothing of the script is left.
async fn ends(engine: &Engine, script: &Script, why: Why, after: &str) -> bool {
    let command = Command {
        code: STOP,
        arguments: vec![
            script.key.clone(),
            format!("/var/lib/gavel/calls/{}", script.key),
            why.text().to_owned(),
            after.to_owned(),
        ],
        input: &[],
        most: 1024,
    };
    let stopped = timeout(TIME, engine.exec(&script.container, &command)).await;
    stopped
        .ok()
        .and_then(Result::ok)
        .is_some_and(|written| matches!(written.out.trim_ascii(), b"ended" | b"stopped"))
}
