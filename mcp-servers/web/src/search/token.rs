//! Access tokens for Vertex AI: of a service account, or of the machine in Google Cloud.

use std::time::{Duration, Instant};

use gavel_mcp_base::http::post;
use gavel_mcp_base::{Secret, ToolError};
use reqwest::header::HeaderValue;
use reqwest::{Method, Request};
use serde::Deserialize;
use tokio::sync::Mutex;

use super::Credentials;
use super::api::Api;

const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
/// The longest lifetime that Google accepts, in seconds.
const SECONDS: u64 = 3600;
/// A token that ends sooner is replaced.
const MARGIN: Duration = Duration::from_secs(60);

/// The token that is in use.
#[derive(Debug, Default)]
pub(super) struct Tokens(Mutex<Option<(Secret, Instant)>>);

#[derive(Deserialize)]
struct WireToken {
    access_token: String,
    expires_in: u64,
}

impl Tokens {
    /// A token, or None if the credentials are a key. Concurrent calls share one request.
    pub(super) async fn get(&self, api: &Api, credentials: &Credentials) -> Result<Option<Secret>, ToolError> {
        let mut kept = self.0.lock().await;
        if let Some((token, _)) = kept.as_ref().filter(|(_, end)| *end > Instant::now() + MARGIN) {
            return Ok(Some(token.clone()));
        }
        let token: WireToken = match credentials {
            Credentials::Key(_) => return Ok(None),
            Credentials::Account(account, url) => {
                let form = account.form(url, SCOPE, None)?;
                let kind = "application/x-www-form-urlencoded";
                api.send(post(url.clone(), kind, form)).await?
            }
            Credentials::Metadata(url) => {
                let mut request = Request::new(Method::GET, url.clone());
                let flavor = HeaderValue::from_static("Google");
                request.headers_mut().insert("Metadata-Flavor", flavor);
                api.send(request).await?
            }
        };
        let end = Instant::now() + Duration::from_secs(token.expires_in.min(SECONDS));
        let token = Secret::new(token.access_token);
        *kept = Some((token.clone(), end));
        Ok(Some(token))
    }
}
