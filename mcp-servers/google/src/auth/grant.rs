//! The token endpoint (RFC 6749): exchanges a grant for an access token.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gavel_mcp_base::Secret;
use reqwest::Request;
use serde::Deserialize;
use tokio::time::Instant;
use url::Url;
use url::form_urlencoded::Serializer;

use crate::google::http::{Http, Lost, Reply, pause};
use crate::google::refusal::is_label;
use crate::settings::OAuthClient;

/// Repeating the request does no harm.
const ATTEMPTS: u32 = 2;
/// A token endpoint that does not answer must not use up the call's time limit.
const PATIENCE: Duration = Duration::from_secs(10);
/// In seconds: the lifetime of a token without one, and the longest lifetime that is accepted.
const ASSUMED: u64 = 300;
const LONGEST: u64 = 86_400;

/// The endpoint's answer.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) access_token: Secret,
    pub(crate) lifetime: Duration,
    pub(crate) refresh_token: Option<Secret>,
    pub(crate) scope: Option<String>,
    /// The address of the account, if the identity token contains it.
    pub(crate) account: Option<String>,
}

/// Why there is no token.
#[derive(Debug)]
pub(crate) enum GrantFault {
    /// The endpoint does not answer, or its answer cannot be parsed.
    Unavailable,
    /// The endpoint refused, with this code of RFC 6749.
    Refused(String),
}

#[derive(Deserialize)]
struct Answer {
    access_token: String,
    expires_in: Option<u64>,
    refresh_token: Option<String>,
    scope: Option<String>,
    id_token: Option<String>,
}

pub(super) fn refresh(client: &OAuthClient, token: &Secret) -> String {
    Serializer::new(String::new())
        .append_pair("grant_type", "refresh_token")
        .append_pair("client_id", &client.id)
        .append_pair("client_secret", client.secret.expose())
        .append_pair("refresh_token", token.expose())
        .finish()
}

/// Requests a token; once more if the endpoint does not answer.
pub(crate) async fn ask(http: &Http, url: &Url, form: String, deadline: Instant) -> Result<Granted, GrantFault> {
    let mut attempt = 1;
    loop {
        let patience = deadline.min(Instant::now() + PATIENCE);
        let reply = http.send(request(url, form.clone()), patience).await;
        let wait = pause(attempt, reply.as_ref().ok());
        match reply {
            Ok(reply) if reply.status.is_success() => return read(&reply).ok_or(GrantFault::Unavailable),
            Ok(reply) if reply.status.is_client_error() && reply.status != 429 && reply.status != 408 => {
                // Without a code it comes from an intermediary, and says nothing about the grant.
                return Err(code(&reply).map_or(GrantFault::Unavailable, GrantFault::Refused));
            }
            Ok(_) | Err(Lost::NotSent | Lost::Unknown | Lost::TooLarge) => {}
        }
        if attempt == ATTEMPTS || Instant::now() + wait >= deadline {
            return Err(GrantFault::Unavailable);
        }
        tokio::time::sleep(wait).await;
        attempt += 1;
    }
}

/// A POST request with a form.
pub(crate) fn request(url: &Url, form: String) -> Request {
    gavel_mcp_base::http::post(url.clone(), "application/x-www-form-urlencoded", form)
}

fn read(reply: &Reply) -> Option<Granted> {
    let answer: Answer = reply.json()?;
    Some(Granted {
        access_token: Secret::new(answer.access_token),
        lifetime: Duration::from_secs(answer.expires_in.unwrap_or(ASSUMED).min(LONGEST)),
        refresh_token: answer.refresh_token.map(Secret::new),
        scope: answer.scope,
        account: answer.id_token.as_deref().and_then(account),
    })
}

fn code(reply: &Reply) -> Option<String> {
    #[derive(Deserialize)]
    struct Refused {
        error: String,
    }
    let refused = serde_json::from_slice::<Refused>(&reply.body).ok();
    let code = refused.map(|refused| refused.error).filter(|code| is_label(code));
    if code.is_none() {
        tracing::warn!(
            status = reply.status.as_u16(),
            "a refusal of the token endpoint cannot be read"
        );
    }
    code
}

/// The address in an identity token. The token came from Google over TLS, so verifying its signature is unnecessary
/// (OpenID Connect Core, section 3.1.3.7).
fn account(id_token: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Claims {
        email: Option<String>,
    }
    let payload = URL_SAFE_NO_PAD.decode(id_token.split('.').nth(1)?).ok()?;
    serde_json::from_slice::<Claims>(&payload).ok()?.email
}
