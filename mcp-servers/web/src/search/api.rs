//! One request to Google's API, and its answer as JSON.

use std::time::Duration;

use gavel_mcp_base::ToolError;
use gavel_mcp_base::http::{Http, Reply};
use reqwest::{Request, StatusCode};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::error::{rate_limited, search_refused, search_unavailable};

/// Larger than any expected answer, in bytes.
const MAX: usize = 4 << 20;
/// The wait if the service names none.
const WAIT: Duration = Duration::from_secs(30);
/// Longer than any call may take.
const LONGEST: Duration = Duration::from_secs(600);

/// The connections to Google.
#[derive(Debug, Clone)]
pub(super) struct Api(Http);

impl Api {
    pub(super) fn new() -> anyhow::Result<Self> {
        let agent = concat!("gavel-mcp-web/", env!("CARGO_PKG_VERSION"));
        Http::new("the search service", agent, MAX, None).map(Self)
    }

    /// Sends a request once.
    pub(super) async fn send<T: DeserializeOwned>(&self, request: Request) -> Result<T, ToolError> {
        let reply = self.0.send(request, Instant::now() + LONGEST).await;
        let reply = reply.map_err(|_| search_unavailable())?;
        if !reply.status.is_success() {
            tracing::warn!(status = %reply.status, "the search service answered with an error");
            return Err(refusal(&reply));
        }
        reply.json().ok_or_else(search_unavailable)
    }
}

fn refusal(reply: &Reply) -> ToolError {
    match reply.status {
        StatusCode::TOO_MANY_REQUESTS => rate_limited(reply.retry_after().unwrap_or(WAIT)),
        StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => {
            search_refused(reply.status.as_u16())
        }
        _ => search_unavailable(),
    }
}
