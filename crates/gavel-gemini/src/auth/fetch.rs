//! Fetches an access token.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use jsonwebtoken::{Algorithm, EncodingKey, Header};
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::{Client, Request};
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use url::Url;
use url::form_urlencoded::Serializer;

use super::credentials::{AuthorizedUser, Credentials, ServiceAccount, signing_key};
use crate::call::Failure;
use crate::client::{self, Waiting};
use crate::config::Timeouts;
use crate::config::{ConfigError, invalid};
use crate::domain::journal::FaultKind;
use crate::reply::label;
use crate::retry::Retry;
use crate::wire;
use gavel_upstream::upstream::is_loopback;

const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
const METADATA_PATH: &str = "computeMetadata/v1/instance/service-accounts/default/token";
const MAX_TOKEN_BODY: usize = 64 * 1024;

/// An access token, ready to be set on a request.
#[derive(Clone, Debug)]
pub(super) struct Token {
    /// `Bearer …`, marked sensitive.
    pub(super) header: HeaderValue,
    pub(super) expires: Instant,
    pub(super) lifetime: Duration,
}

/// Fetches tokens for one set of credentials.
#[derive(Debug)]
pub(super) struct Fetcher {
    credentials: Credentials,
    key: Option<EncodingKeyBox>,
    url: Url,
    client: Client,
    timeouts: Timeouts,
}

/// Hides the private key in debug output.
struct EncodingKeyBox(EncodingKey);

impl std::fmt::Debug for EncodingKeyBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EncodingKey")
    }
}

impl Fetcher {
    pub(super) fn new(credentials: Credentials, timeouts: &Timeouts) -> Result<Self, ConfigError> {
        let (setting, place, key) = match &credentials {
            Credentials::ServiceAccount(account) => (
                "token_uri",
                account.token_uri.clone(),
                Some(EncodingKeyBox(signing_key(account)?)),
            ),
            Credentials::AuthorizedUser(user) => ("token_uri", user.token_uri.clone(), None),
            Credentials::Metadata { base_url, .. } => (
                "metadata server",
                format!("{}/{METADATA_PATH}", base_url.trim_end_matches('/')),
                None,
            ),
        };
        let url = Url::parse(&place).map_err(|error| invalid(setting, error.to_string()))?;
        let direct = matches!(credentials, Credentials::Metadata { .. }) || is_loopback(&url);
        let client = client::build(timeouts, url.scheme() == "http", direct)?;
        Ok(Self {
            credentials,
            key,
            url,
            client,
            timeouts: Timeouts {
                first_byte: timeouts.token,
                idle: timeouts.token,
                ..*timeouts
            },
        })
    }

    /// One request to the token endpoint.
    pub(super) async fn fetch(&self, deadline: Instant) -> Result<Token, Failure> {
        let begun = Instant::now();
        let request = self.request()?;
        let waiting = Waiting {
            timeouts: &self.timeouts,
            deadline: begun
                .checked_add(self.timeouts.token)
                .map_or(deadline, |limit| limit.min(deadline)),
            begun,
        };
        let reported = |failure: Failure| Failure {
            detail: format!("no access token: {}", failure.detail),
            ..failure
        };
        let response = waiting.send(&self.client, request).await.map_err(reported)?;
        let status = response.status();
        let mut held = client::held(("", ""));
        let body = waiting
            .body(response, MAX_TOKEN_BODY, &mut held)
            .await
            .map_err(reported)?;
        if !status.is_success() {
            return Err(reported(refusal(status.as_u16(), &body)));
        }
        #[derive(Deserialize)]
        struct Granted {
            access_token: String,
            #[serde(default)]
            expires_in: Option<wire::Count>,
        }
        let granted: Granted = wire::read(&body).map_err(|error| reported(Failure::unavailable(error)))?;
        let mut header = HeaderValue::from_str(&format!("Bearer {}", granted.access_token))
            .map_err(|_| reported(Failure::unavailable("the token is not a valid header value")))?;
        header.set_sensitive(true);
        // The default lifetime is 300 s, the maximum one day.
        let lifetime = Duration::from_secs(granted.expires_in.map_or(300, |seconds| seconds.0.min(86_400)));
        Ok(Token {
            header,
            expires: begun + lifetime,
            lifetime,
        })
    }

    fn request(&self) -> Result<Request, Failure> {
        let mut form = Serializer::new(String::new());
        match &self.credentials {
            Credentials::Metadata { .. } => {
                let mut request = Request::new(reqwest::Method::GET, self.url.clone());
                request
                    .headers_mut()
                    .insert("Metadata-Flavor", HeaderValue::from_static("Google"));
                return Ok(request);
            }
            Credentials::ServiceAccount(account) => {
                form.append_pair("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer");
                form.append_pair("assertion", &self.assertion(account)?);
            }
            Credentials::AuthorizedUser(AuthorizedUser {
                client_id,
                client_secret,
                refresh_token,
                ..
            }) => {
                form.append_pair("grant_type", "refresh_token");
                form.append_pair("client_id", client_id);
                form.append_pair("client_secret", client_secret.expose_secret());
                form.append_pair("refresh_token", refresh_token.expose_secret());
            }
        }
        let mut request = Request::new(reqwest::Method::POST, self.url.clone());
        let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
        request.headers_mut().insert(CONTENT_TYPE, kind);
        *request.body_mut() = Some(form.finish().into());
        Ok(request)
    }

    /// The signed claim to exchange for a token (RFC 7523).
    fn assertion(&self, account: &ServiceAccount) -> Result<String, Failure> {
        #[derive(Serialize)]
        struct Claims<'a> {
            iss: &'a str,
            scope: &'a str,
            aud: &'a str,
            iat: u64,
            exp: u64,
        }
        let key = self
            .key
            .as_ref()
            .ok_or_else(|| Failure::unavailable("no signing key"))?;
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let header = Header {
            kid: account.private_key_id.clone(),
            ..Header::new(Algorithm::RS256)
        };
        let claims = Claims {
            iss: &account.client_email,
            scope: SCOPE,
            aud: &account.token_uri,
            iat: now,
            exp: now + 3600,
        };
        jsonwebtoken::encode(&header, &claims, &key.0)
            .map_err(|error| Failure::unavailable(format!("the claim could not be signed: {error}")))
    }
}

/// `{"error":"invalid_grant","error_description":…}`: only the code is reported, because the description may name a
/// person.
fn refusal(status: u16, body: &[u8]) -> Failure {
    #[derive(Deserialize)]
    struct Refused {
        error: Option<String>,
    }
    let code = wire::read::<Refused>(body)
        .ok()
        .and_then(|refused| refused.error)
        .map(|code| label(&code));
    let may_pass = matches!(status, 408 | 429 | 500..);
    Failure {
        kind: if may_pass {
            FaultKind::Unavailable
        } else {
            FaultKind::Credentials
        },
        retry: if may_pass { Retry::Backoff } else { Retry::No },
        ..Failure::unavailable(format!("the token endpoint answered {status} {}", code.unwrap_or_default()).trim_end())
    }
}
