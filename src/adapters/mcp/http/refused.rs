//! What a response that is not 2xx says, whatever the request: to wait, or that credentials are refused.

use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};

/// The longest pause that a server may request.
const LONGEST_PAUSE: Duration = Duration::from_secs(60 * 60);

/// The pause that a response requests, in seconds or as a date (RFC 9110 section 10.2.3), capped at one hour.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let pause = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let at = httpdate::parse_http_date(text).ok()?;
            at.duration_since(std::time::SystemTime::now()).ok()?
        }
    };
    Some(pause.min(LONGEST_PAUSE)).filter(|pause| !pause.is_zero())
}

pub(super) fn is_auth(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_pause_is_read_in_seconds_and_as_a_date() {
        let of = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, text.parse().unwrap());
            retry_after(&headers)
        };
        assert_eq!(of("30"), Some(Duration::from_secs(30)));
        assert_eq!(of("999999999"), Some(LONGEST_PAUSE));
        for none in ["0", "-1", "soon", "Wed, 21 Oct 2015 07:28:00 GMT"] {
            assert_eq!(of(none), None, "{none}");
        }
        let date = httpdate::fmt_http_date(std::time::SystemTime::now() + Duration::from_secs(100));
        assert!((95..=100).contains(&of(&date).unwrap().as_secs()));
    }
}
