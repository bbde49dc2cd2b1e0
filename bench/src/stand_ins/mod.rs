//! The model and the MCP server that both servers call: scripted, checking their requests, on loopback.

mod mcp;
mod model;
mod script;

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::loopback::{Loopback, listen};
use crate::serve::serve;

pub(crate) use script::{CONFIRMED, TOOL};

/// Both stand-ins, serving until dropped.
pub(crate) struct StandIns {
    pub(crate) model_at: Loopback,
    pub(crate) mcp_at: Loopback,
    model: Arc<model::Model>,
    mcp: Arc<mcp::Mcp>,
    stop: CancellationToken,
}

/// The number of requests to the stand-ins so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) model_calls: u64,
    pub(crate) tool_calls: u64,
    /// Requests that a real model or server would have rejected.
    pub(crate) faults: u64,
}

impl Seen {
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            model_calls: self.model_calls - earlier.model_calls,
            tool_calls: self.tool_calls - earlier.tool_calls,
            faults: self.faults - earlier.faults,
        }
    }
}

impl StandIns {
    pub(crate) fn start(tasks: &TaskTracker) -> anyhow::Result<Self> {
        let (model_listener, model_at) = listen(0)?;
        let (mcp_listener, mcp_at) = listen(0)?;
        let model = Arc::new(model::Model::default());
        let mcp = Arc::new(mcp::Mcp::default());
        let stop = CancellationToken::new();
        let answering = Arc::clone(&model);
        tasks.spawn(serve(model_listener, stop.clone(), move |request| {
            Arc::clone(&answering).answer(request)
        }));
        let answering = Arc::clone(&mcp);
        tasks.spawn(serve(mcp_listener, stop.clone(), move |request| {
            Arc::clone(&answering).answer(request)
        }));
        Ok(Self {
            model_at,
            mcp_at,
            model,
            mcp,
            stop,
        })
    }

    /// Sets the time that the model takes for each call from now on.
    pub(crate) fn set_latency(&self, latency: Duration) {
        self.model.set_latency(latency);
    }

    pub(crate) fn seen(&self) -> Seen {
        Seen {
            model_calls: self.model.calls(),
            tool_calls: self.mcp.calls(),
            faults: self.model.faults() + self.mcp.faults(),
        }
    }
}

impl Drop for StandIns {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
