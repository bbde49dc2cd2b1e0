//! A complete answer, and a server's refusal as text: RFC 9457 problem documents.

use anyhow::{Context, anyhow, bail};
use reqwest::header::RETRY_AFTER;
use reqwest::{Response, StatusCode};
use serde_json::Value;
use url::Url;

use super::key::KEY;

/// Most bytes of an answer. A page of runs with all their messages is about a hundredth of that.
const MOST_BYTES: usize = 64 << 20;

/// The server's own explanation why it refused.
#[derive(Debug, thiserror::Error)]
#[error("{words}")]
pub(crate) struct Refused {
    pub(crate) status: StatusCode,
    /// `code` of the problem document, if the answer is one.
    code: Option<String>,
    words: String,
}

impl Refused {
    pub(super) fn of(status: StatusCode, words: String) -> Self {
        Self {
            status,
            code: None,
            words,
        }
    }

    /// The refusal that an error is, if it is one.
    pub(crate) fn in_error(error: &anyhow::Error) -> Option<&Self> {
        error.downcast_ref()
    }

    pub(crate) fn has_code(&self, code: &str) -> bool {
        self.code.as_deref() == Some(code)
    }

    /// Is the request itself invalid, whatever the state of the server?
    pub(crate) fn is_invalid_request(&self) -> bool {
        self.has_code("invalid_request") || self.has_code("not_grantable")
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.status == StatusCode::NOT_FOUND
    }
}

/// A complete answer.
pub(super) struct Whole {
    pub(super) status: StatusCode,
    pub(super) url: Url,
    /// Seconds, from the `retry-after` header.
    retry_after: Option<u64>,
    pub(super) text: String,
}

impl Whole {
    pub(super) async fn read(mut response: Response) -> anyhow::Result<Self> {
        let (status, url) = (response.status(), response.url().clone());
        let retry_after = response.headers().get(RETRY_AFTER);
        let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
        let mut bytes = Vec::new();
        loop {
            let piece = response.chunk().await.map_err(reqwest::Error::without_url);
            let Some(piece) = piece.with_context(|| format!("the answer of {url} was cut off"))? else {
                break;
            };
            if bytes.len() + piece.len() > MOST_BYTES {
                bail!(
                    "the answer of {url} has more than {} MiB and was not read completely",
                    MOST_BYTES >> 20
                );
            }
            bytes.extend_from_slice(&piece);
        }
        let text = String::from_utf8(bytes).with_context(|| format!("the answer of {url} is not UTF-8 text"))?;
        Ok(Self {
            status,
            url,
            retry_after,
            text,
        })
    }

    /// The refusal of `server`, with what a user of the command line can do about it.
    pub(super) fn refused(self, server: &str, with_key: bool) -> anyhow::Error {
        let Self { status, url, .. } = self;
        let body: Option<Value> = serde_json::from_str(&self.text).ok();
        let Some((mut words, code)) = body.as_ref().and_then(problem) else {
            let what = match body {
                Some(_) => "",
                None => " without JSON; check that --server names a gavel",
            };
            return anyhow!("{url} answered {status}{what}");
        };
        if status == StatusCode::UNAUTHORIZED {
            words.push_str(&match with_key {
                true => format!("\n  {KEY} (or {KEY}_FILE) does not hold a valid key or token of {server}"),
                false => format!("\n  give a key or token of {server} in {KEY}, or the path of its file in {KEY}_FILE"),
            });
        }
        if words.contains("X-Gavel-User") {
            words.push_str(match code.as_deref() {
                Some("user_mismatch") => "\n  a command sends it with --user: leave that out",
                _ => "\n  a command sends it with --user NAME",
            });
        }
        if let Some(seconds) = self.retry_after {
            words.push_str(&format!("\n  try again in {seconds} s"));
        }
        Refused { status, code, words }.into()
    }
}

/// An RFC 9457 document as text, and its code.
pub(super) fn problem(body: &Value) -> Option<(String, Option<String>)> {
    let text = |value: &Value, field: &str| value.get(field).and_then(Value::as_str).map(str::to_owned);
    let mut words = text(body, "detail").or_else(|| text(body, "title"))?;
    for error in body.get("errors").and_then(Value::as_array).into_iter().flatten() {
        if let (Some(pointer), Some(detail)) = (text(error, "pointer"), text(error, "detail")) {
            words.push_str(&format!("\n  {pointer}: {detail}"));
        }
    }
    Some((words, text(body, "code")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_problem_is_shown_with_every_field() {
        let body = json!({"title": "t", "detail": "the request is not valid", "errors": [{"pointer": "/message", "detail": "must not be empty"}]});
        assert_eq!(
            problem(&body).unwrap(),
            (
                "the request is not valid\n  /message: must not be empty".to_owned(),
                None
            )
        );
        assert!(problem(&json!({"status": 404})).is_none());
    }

    #[test]
    fn a_refusal_says_when_to_try_again() {
        let refused = |retry_after| {
            let answer = Whole {
                status: StatusCode::TOO_MANY_REQUESTS,
                url: "http://h:1".parse().unwrap(),
                retry_after,
                text: json!({"detail": "Over the quota.", "code": "rate_limited"}).to_string(),
            };
            answer.refused("http://h:1", false).to_string()
        };
        assert_eq!(refused(Some(7)), "Over the quota.\n  try again in 7 s");
        assert_eq!(refused(None), "Over the quota.");
    }
}
