//! Access tokens for Vertex AI: of a service account (RFC 7523), or of the machine in Google Cloud.

use std::time::{Duration, Instant};

use gavel_mcp_base::http::post;
use gavel_mcp_base::{Secret, ToolError, internal};
use jsonwebtoken::{Algorithm, Header};
use reqwest::header::HeaderValue;
use reqwest::{Method, Request};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use url::Url;
use url::form_urlencoded::Serializer;

use super::api::Api;
use super::{Account, Credentials};

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

#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    scope: &'a str,
    aud: &'a str,
    iat: u64,
    exp: u64,
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
            Credentials::Account(account) => {
                let form = assertion(account, &account.token_url)?;
                let kind = "application/x-www-form-urlencoded";
                api.send(post(account.token_url.clone(), kind, form)).await?
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

fn assertion(account: &Account, url: &Url) -> Result<String, ToolError> {
    let header = Header {
        kid: account.key_id.clone(),
        ..Header::new(Algorithm::RS256)
    };
    let now = jsonwebtoken::get_current_timestamp();
    let claims = Claims {
        iss: &account.email,
        scope: SCOPE,
        aud: url.as_str(),
        iat: now,
        exp: now + SECONDS,
    };
    let signed = jsonwebtoken::encode(&header, &claims, &account.key).map_err(|error| {
        tracing::error!(%error, "a request for a token cannot be signed");
        internal()
    })?;
    Ok(Serializer::new(String::new())
        .append_pair("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer")
        .append_pair("assertion", &signed)
        .finish())
}
