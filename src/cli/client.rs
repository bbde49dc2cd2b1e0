//! `POST /v1/chat` of a gavel that runs elsewhere.

use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use reqwest::StatusCode;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use url::Url;

/// Longer than any chat deadline.
const TIMEOUT: Duration = Duration::from_secs(620);
const CONNECT: Duration = Duration::from_secs(5);
/// The variable with the key or token that is sent along; `…_FILE` names a file that holds it.
pub(super) const KEY: &str = "GAVEL_API_KEY";

/// A server to ask.
pub(super) struct Client {
    http: reqwest::Client,
    url: Url,
    key: Option<SecretString>,
}

impl Client {
    /// For the server at `base`, such as `http://localhost:8080`.
    pub(super) fn new(base: &str) -> anyhow::Result<Self> {
        let mut url = Url::parse(base)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .with_context(|| {
                format!("--server {base:?}: give an http:// or https:// URL, such as http://localhost:8080")
            })?;
        let path = format!("{}/v1/chat", url.path().trim_end_matches('/'));
        url.set_path(&path);
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .timeout(TIMEOUT)
            .build()?;
        Ok(Self { http, url, key: key()? })
    }

    /// The decision's body; a problem document is an error in its own words.
    pub(super) async fn decide(&self, body: &Value) -> anyhow::Result<String> {
        let mut request = self.http.post(self.url.clone()).json(body);
        if let Some(key) = &self.key {
            request = request.bearer_auth(key.expose_secret());
        }
        let response = request
            .send()
            .await
            .with_context(|| format!("{} does not answer", self.url))?;
        let status = response.status();
        let text = response
            .text()
            .await
            .with_context(|| format!("the answer of {} broke off", self.url))?;
        let Ok(body) = serde_json::from_str::<Value>(&text) else {
            bail!("{} answered {status} without JSON; is it a gavel?", self.url);
        };
        if body.get("decision_type").is_some() {
            return Ok(text);
        }
        let error = problem(&body).unwrap_or_else(|| anyhow!("{} answered {status} without a decision", self.url));
        if status != StatusCode::UNAUTHORIZED {
            return Err(error);
        }
        Err(match self.key {
            Some(_) => anyhow!(
                "{error}\n  {KEY} (or {KEY}_FILE) holds no key or token that {} knows",
                self.url
            ),
            None => anyhow!(
                "{error}\n  give a key or token of {} in {KEY}, or a file with it in {KEY}_FILE",
                self.url
            ),
        })
    }
}

/// An RFC 9457 document in words.
fn problem(body: &Value) -> Option<anyhow::Error> {
    let text = |value: &Value, field: &str| value.get(field).and_then(Value::as_str).map(str::to_owned);
    let mut words = text(body, "detail").or_else(|| text(body, "title"))?;
    for error in body.get("errors").and_then(Value::as_array).into_iter().flatten() {
        if let (Some(pointer), Some(detail)) = (text(error, "pointer"), text(error, "detail")) {
            words.push_str(&format!("\n  {pointer}: {detail}"));
        }
    }
    Some(anyhow!(words))
}

fn key() -> anyhow::Result<Option<SecretString>> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let by_file = format!("{KEY}_FILE");
    match (set(KEY), set(&by_file)) {
        (Some(_), Some(_)) => bail!("{KEY} and {by_file} are both given; keep one of the two"),
        (Some(key), None) => Ok(Some(SecretString::from(key))),
        (None, Some(path)) => {
            let text = std::fs::read_to_string(&path).with_context(|| format!("{by_file}: {path} cannot be read"))?;
            Ok(Some(SecretString::from(text.trim_end())))
        }
        (None, None) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_problem_is_told_with_every_field() {
        let body = json!({"title": "t", "detail": "the request is not valid", "errors": [{"pointer": "/message", "detail": "must not be empty"}]});
        assert_eq!(
            problem(&body).unwrap().to_string(),
            "the request is not valid\n  /message: must not be empty"
        );
        assert!(problem(&json!({"status": 404})).is_none());
    }

    #[test]
    fn a_server_is_named_by_its_url() {
        // Another test may have installed it, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        assert_eq!(
            Client::new("http://h:1/gavel/").unwrap().url.as_str(),
            "http://h:1/gavel/v1/chat"
        );
        for wrong in ["localhost:8080", "", "ftp://h", "http://"] {
            assert!(Client::new(wrong).is_err(), "{wrong}");
        }
    }
}
