//! Rate limits, and how long to wait.

use std::time::Duration;

use chrono::Utc;

use super::http::Reply;

/// How long to wait if GitHub does not say it.
const UNSAID: Duration = Duration::from_secs(60);
/// The longest wait that is believed.
const LONGEST: u64 = 86_400;

/// How long a rate limit lasts; `None` if the answer is something else.
pub(crate) fn limit(reply: &Reply) -> Option<Duration> {
    let exhausted = reply.header("x-ratelimit-remaining") == Some("0");
    let said = reply.retry_after();
    let limited = match reply.status.as_u16() {
        429 => true,
        // A 403 without these headers is a limit only if it says so; usually it is a missing permission.
        403 => exhausted || said.is_some() || mentions_limit(&reply.body),
        _ => false,
    };
    if !limited {
        return None;
    }
    let reset = || {
        let at: i64 = reply.header("x-ratelimit-reset")?.trim().parse().ok()?;
        let wait = u64::try_from(at - Utc::now().timestamp()).unwrap_or(0) + 1;
        Some(Duration::from_secs(wait.min(LONGEST)))
    };
    Some(said.or_else(|| exhausted.then(reset).flatten()).unwrap_or(UNSAID))
}

fn mentions_limit(body: &[u8]) -> bool {
    let start = &body[..body.len().min(4096)];
    String::from_utf8_lossy(start).to_lowercase().contains("rate limit")
}

/// How long to wait before a read is repeated: GitHub's value, or longer each time; random, so that callers do not
/// retry together.
pub(crate) fn pause(attempt: u32, reply: Option<&Reply>) -> Duration {
    let own = Duration::from_millis(250 * 2_u64.pow(attempt.min(6)));
    let own = own.mul_f64(0.5 + fastrand::f64() / 2.0);
    reply.and_then(Reply::retry_after).map_or(own, |said| said.max(own))
}

#[cfg(test)]
mod tests {
    use reqwest::StatusCode;
    use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

    use super::*;

    fn wait(status: u16, headers: &[(&'static str, &str)], body: &str) -> Option<u64> {
        let headers = headers.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_str(value).expect("a value"),
            )
        });
        let reply = Reply {
            status: StatusCode::from_u16(status).expect("a status"),
            headers: HeaderMap::from_iter(headers),
            body: body.as_bytes().to_vec(),
        };
        limit(&reply).map(|wait| wait.as_secs())
    }

    #[test]
    fn each_form_of_a_rate_limit_has_its_wait() {
        let soon = (Utc::now().timestamp() + 20).to_string();
        let reset = wait(
            403,
            &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", &soon)],
            "{}",
        );
        assert!(reset.is_some_and(|seconds| (18..=21).contains(&seconds)), "{reset:?}");
        assert_eq!(wait(403, &[("retry-after", "7")], "{}"), Some(7));
        assert_eq!(wait(429, &[("retry-after", "7")], "{}"), Some(7));
        assert_eq!(wait(429, &[("x-ratelimit-remaining", "0")], "{}"), Some(60));
        assert_eq!(wait(429, &[], "{}"), Some(60));
        assert_eq!(
            wait(403, &[], r#"{"message":"You have exceeded a secondary rate limit"}"#),
            Some(60)
        );
        assert_eq!(
            wait(
                403,
                &[("x-ratelimit-remaining", "12")],
                r#"{"message":"Resource not accessible"}"#
            ),
            None
        );
        assert_eq!(wait(500, &[("retry-after", "7")], "{}"), None);
        // A reset that has passed, and one that is absurd.
        let (past, never) = ("1", u64::MAX.to_string());
        assert_eq!(
            wait(
                403,
                &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", past)],
                "{}"
            ),
            Some(1)
        );
        assert_eq!(wait(403, &[("retry-after", &never)], "{}"), Some(LONGEST));
    }
}
