//! Requests to Google.

use std::time::Duration;

use gavel_mcp_base::settings::is_loopback;

pub(crate) use gavel_mcp_base::http::{Http, Lost, Reply, at};

use crate::settings::Places;

/// Larger than any expected answer, in bytes.
const MAX_BODY: usize = 2 << 20;

/// The connections to these places.
pub(crate) fn connections(places: &Places) -> anyhow::Result<Http> {
    let Places {
        gmail,
        calendar,
        token,
        auth,
        revoke,
    } = places;
    let is_local = [gmail, calendar, token, auth, revoke].into_iter().any(is_loopback);
    let agent = concat!("gavel-mcp-google/", env!("CARGO_PKG_VERSION"));
    Http::new("Google", agent, MAX_BODY, None, is_local)
}

/// How long to wait: Google's value, or longer each time; random, so that callers do not retry together.
pub(crate) fn pause(attempt: u32, reply: Option<&Reply>) -> Duration {
    let own = Duration::from_millis(250 * 2_u64.pow(attempt.min(6)));
    let own = own.mul_f64(0.5 + fastrand::f64() / 2.0);
    reply.and_then(Reply::retry_after).map_or(own, |said| said.max(own))
}
