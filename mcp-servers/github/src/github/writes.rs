//! Requests with an effect: one at a time, each sent once.

use std::time::Duration;

use gavel_mcp_base::{Fault, ToolError};
use reqwest::Method;
use serde_json::Value;
use tokio::sync::MutexGuard;
use tokio::time::Instant;
use url::Url;

use super::{GitHub, LEAST_WAIT, rate_limit};
use super::{Lost, Reply, new_request};
use crate::call::Call;
use crate::error::{Code, rate_limited, unavailable};

/// Between two requests with an effect, as GitHub asks for.
const SPACING: Duration = Duration::from_secs(1);

/// The right to change something, which one call has at a time.
#[derive(Debug)]
pub(crate) struct Turn<'a>(MutexGuard<'a, Option<Instant>>);

impl GitHub {
    /// Waits until no other call changes anything.
    pub(crate) async fn turn(&self, deadline: Instant) -> Result<Turn<'_>, ToolError> {
        let turn = tokio::time::timeout_at(deadline, self.writes.lock()).await;
        turn.map(Turn).map_err(|_| {
            let words = "Other calls are changing something at GitHub. Nothing was done. Try again later.";
            ToolError::new(Code::RateLimited, words).with("retryAfterSeconds", SPACING.as_secs())
        })
    }

    /// Sends a request with an effect. It is sent again only if GitHub refused it for its token or for a rate limit.
    /// Returns an answer that says whether the effect took place: a success, or a refusal (a redirect is one).
    pub(crate) async fn write(
        &self,
        turn: &mut Turn<'_>,
        call: &Call,
        method: Method,
        url: Url,
        body: &Value,
    ) -> Result<Reply, Fault> {
        let deadline = call.deadline;
        let mut access = self.tokens.access(deadline).await?;
        let mut renewed = false;
        if let Some(last) = *turn.0 {
            wait_until(last + SPACING, deadline, SPACING).await?;
        }
        loop {
            let mut request = new_request(method.clone(), url.clone(), Some(body));
            access.authorize(&mut request);
            // Before, in case that the call is dropped while it waits for the answer; and after.
            *turn.0 = Some(Instant::now());
            let sent = self.http.send(request, deadline).await;
            *turn.0 = Some(Instant::now());
            let reply = match sent {
                Ok(reply) => reply,
                Err(Lost::NotSent) => return Err(unavailable().into()),
                Err(Lost::Unknown | Lost::TooLarge) => return Err(call.unsettled("GitHub did not answer")),
            };
            if reply.status == 401 && !renewed {
                renewed = true;
                if let Some(other) = self.tokens.renewed(&access, deadline).await? {
                    access = other;
                    continue;
                }
            }
            match rate_limit(&reply) {
                Some(limit) => {
                    let wait = limit.max(LEAST_WAIT);
                    wait_until(Instant::now() + wait, deadline, limit).await?;
                }
                None => return answered(reply, call),
            }
        }
    }
}

/// A failure of GitHub's own may follow the effect.
fn answered(reply: Reply, call: &Call) -> Result<Reply, Fault> {
    let status = reply.status;
    match status.is_success() || status.is_redirection() || status.is_client_error() && status != 408 {
        true => Ok(reply),
        false => Err(call.unsettled(&format!("GitHub answered with the status {}", status.as_u16()))),
    }
}

pub(super) async fn wait_until(time: Instant, deadline: Instant, limit: Duration) -> Result<(), ToolError> {
    if time >= deadline {
        return Err(rate_limited(limit));
    }
    tokio::time::sleep_until(time).await;
    Ok(())
}
