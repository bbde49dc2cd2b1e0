//! Access tokens: each for one user, kept in memory until shortly before it expires, never stored.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gavel_mcp_base::http::bearer;
use gavel_mcp_base::{Moment, Secret, ServiceAccount, ToolError, UserId};
use reqwest::Request;
use reqwest::header::HeaderValue;
use serde::Deserialize;
use tokio::time::Instant;
use url::Url;
use url::form_urlencoded::Serializer;

use crate::address;
use crate::error::{
    Code, account_changed, missing_scope, not_connected, reconnect_required, store_unavailable, unavailable,
};
use crate::google::{Http, Lost, Reply, Retries, is_label};
use crate::rights::{As, Right};
use crate::sealing::Kind;
use crate::settings::{Credentials, OAuthClient};
use crate::store::{Connection, Store};

/// A token that expires sooner is not used.
const MARGIN: Duration = Duration::from_secs(60);
/// Beyond this many users, expired tokens are dropped.
const MANY: usize = 10_000;

/// The permission to act as one user, until it expires.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    /// `Bearer …`, marked sensitive.
    pub(crate) header: HeaderValue,
    /// Identifies the mailbox: its address, or the connection if the address is unknown.
    pub(crate) mailbox: String,
    scopes: Arc<str>,
    /// The connection that it belongs to.
    generation: String,
    expires: Instant,
}

impl Access {
    pub(crate) fn has(&self, right: Right) -> bool {
        right.granted_by(&self.scopes)
    }
}

/// Gets access tokens.
#[derive(Debug)]
pub(crate) struct Tokens {
    http: Http,
    store: Store,
    url: Url,
    credentials: Credentials,
    scopes: Vec<String>,
    slots: Mutex<HashMap<UserId, Arc<Slot>>>,
}

/// One user's token. A call that waits for the lock finds the token that another call fetched.
type Slot = tokio::sync::Mutex<Option<Access>>;

impl Tokens {
    pub(crate) fn new(http: Http, store: Store, url: Url, credentials: Credentials, scopes: Vec<String>) -> Self {
        Self {
            http,
            store,
            url,
            credentials,
            scopes,
            slots: Mutex::default(),
        }
    }

    /// A token of this user for the right. The connection is read each time, so that a cached token is not used after a
    /// disconnect elsewhere.
    pub(crate) async fn access(&self, who: As<'_>, right: Right) -> Result<Access, ToolError> {
        self.access_but(who, right, None).await
    }

    /// A token other than `used`, which Google rejected.
    pub(crate) async fn renew(&self, who: As<'_>, right: Right, used: &Access) -> Result<Access, ToolError> {
        tracing::info!("Google rejected an access token; requesting another one");
        self.access_but(who, right, Some(used)).await
    }

    async fn access_but(&self, who: As<'_>, right: Right, used: Option<&Access>) -> Result<Access, ToolError> {
        let owner = self.owner(who.user).await?;
        let mailbox = owner.mailbox();
        if let Some(meant) = who.mailbox.filter(|meant| *meant != mailbox) {
            return Err(account_changed(meant));
        }
        if !right.granted_by(&owner.scopes(&self.scopes)) {
            return Err(missing_scope(right.name()));
        }
        let slot = self.slot(who.user);
        let mut kept = slot.lock().await;
        if let Some(access) = &*kept
            && access.generation == owner.generation()
            && access.expires > Instant::now() + MARGIN
            && used.is_none_or(|used| used.header != access.header)
        {
            return Ok(access.clone());
        }
        *kept = None;
        let access = self.fetch(&owner, who.deadline).await?;
        if !access.has(right) {
            return Err(missing_scope(right.name()));
        }
        *kept = Some(access.clone());
        Ok(access)
    }

    fn slot(&self, user: &UserId) -> Arc<Slot> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.len() >= MANY {
            // A slot with another holder is in use.
            slots.retain(|_, slot| {
                let expired = |access: &Access| access.expires <= Instant::now() + MARGIN;
                Arc::strong_count(slot) > 1 || slot.try_lock().is_ok_and(|kept| !kept.as_ref().is_none_or(expired))
            });
        }
        slots.entry(user.clone()).or_default().clone()
    }

    /// The owner of the token.
    async fn owner(&self, user: &UserId) -> Result<Owner<'_>, ToolError> {
        match &self.credentials {
            Credentials::Client(client) => {
                let connection = self.store.connection(user).await.map_err(|error| {
                    tracing::error!(%error, "a connection cannot be read");
                    store_unavailable()
                })?;
                let connection = connection.ok_or_else(not_connected)?;
                if connection.refused_at.is_some() {
                    return Err(reconnect_required());
                }
                Ok(Owner::Connected(client, Box::new(connection)))
            }
            Credentials::ServiceAccount { account, users } => {
                let mailbox = match users {
                    Some(users) => users.get(user.as_str()).cloned(),
                    None => Some(user.as_str().to_owned()).filter(|user| address::is_bare(user)),
                };
                Ok(Owner::Delegated(account, mailbox.ok_or_else(no_mailbox)?))
            }
        }
    }

    async fn fetch(&self, owner: &Owner<'_>, deadline: Instant) -> Result<Access, ToolError> {
        let form = match owner {
            Owner::Connected(client, connection) => {
                let token = self.refresh_token(client, connection).await?;
                refresh(client, &token)
            }
            Owner::Delegated(account, mailbox) => account.form(&self.url, &self.scopes.join(" "), Some(mailbox))?,
        };
        let granted = match ask_for_token(&self.http, &self.url, form, deadline).await {
            Ok(granted) => granted,
            Err(fault) => return Err(self.refused(owner, fault).await),
        };
        let header = bearer(&granted.access_token).map_err(|_| unavailable())?;
        Ok(Access {
            header,
            mailbox: owner.mailbox(),
            scopes: granted
                .scope
                .unwrap_or_else(|| owner.scopes(&self.scopes))
                .as_str()
                .into(),
            generation: owner.generation().to_owned(),
            expires: Instant::now() + granted.lifetime,
        })
    }

    /// The decrypted refresh token. A token sealed with an outdated key is resealed.
    async fn refresh_token(&self, client: &OAuthClient, connection: &Connection) -> Result<Secret, ToolError> {
        let opened = client
            .sealer
            .open(Kind::RefreshToken, &connection.user, &connection.refresh_token)
            .map_err(|error| {
                tracing::error!(%error, "a refresh token cannot be opened");
                ToolError::new(
                    Code::Misconfigured,
                    "The user's connection cannot be decrypted with this server's keys. The operator must correct the keys, or the user must \
                     connect again; nothing was done.",
                )
            })?;
        if opened.outdated {
            let resealed = client.sealer.seal(Kind::RefreshToken, &connection.user, &opened.secret);
            match resealed {
                Ok(sealed) => {
                    if let Err(error) = self.store.reseal(connection, &sealed).await {
                        tracing::warn!(%error, "a refresh token stays sealed with an outdated key for now");
                    }
                }
                Err(error) => tracing::warn!(%error, "a refresh token stays sealed with an outdated key for now"),
            }
        }
        Ok(opened.secret)
    }

    async fn refused(&self, owner: &Owner<'_>, fault: GrantFault) -> ToolError {
        let code = match fault {
            GrantFault::Unavailable => return unavailable(),
            GrantFault::Refused(code) => code,
        };
        tracing::warn!(%code, "Google gives no access token");
        match (owner, code.as_str()) {
            (Owner::Connected(_, connection), "invalid_grant") => {
                if let Err(error) = self.store.refused(connection, Moment::now()).await {
                    tracing::warn!(%error, "the end of a connection could not be stored");
                }
                reconnect_required()
            }
            (Owner::Delegated(..), "invalid_grant") => no_mailbox(),
            (Owner::Delegated(..), "unauthorized_client" | "access_denied" | "invalid_scope") => {
                missing_scope(&self.scopes.join(" "))
            }
            _ => ToolError::new(
                Code::Misconfigured,
                "Google does not accept the operator's credentials. The operator must correct them; nothing was done.",
            )
            .with("reason", code),
        }
    }
}

/// The owner of a token.
enum Owner<'a> {
    Connected(&'a OAuthClient, Box<Connection>),
    Delegated(&'a ServiceAccount, String),
}

impl Owner<'_> {
    fn scopes(&self, asked: &[String]) -> String {
        match self {
            Self::Connected(_, connection) => connection.scopes.clone(),
            Self::Delegated(..) => asked.join(" "),
        }
    }

    fn generation(&self) -> &str {
        match self {
            Self::Connected(_, connection) => &connection.generation,
            Self::Delegated(_, mailbox) => mailbox,
        }
    }

    fn mailbox(&self) -> String {
        match self {
            Self::Connected(_, connection) => connection.account.as_ref().unwrap_or(&connection.generation).clone(),
            Self::Delegated(_, mailbox) => mailbox.clone(),
        }
    }
}

fn no_mailbox() -> ToolError {
    ToolError::new(
        Code::NotConnected,
        "Google gives the service account no access to a mailbox of this user; nothing was done.",
    )
}

// The token endpoint (RFC 6749): exchanges a grant for an access token.

/// Repeating the request does no harm.
const ATTEMPTS: u32 = 2;
/// A token endpoint that does not answer must not use up the call's time limit.
const PATIENCE: Duration = Duration::from_secs(10);
/// In seconds: the lifetime of a token without one, and the longest lifetime that is accepted.
const ASSUMED_TOKEN: u64 = 300;
const LONGEST_TOKEN: u64 = 86_400;

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

fn refresh(client: &OAuthClient, token: &Secret) -> String {
    Serializer::new(String::new())
        .append_pair("grant_type", "refresh_token")
        .append_pair("client_id", &client.id)
        .append_pair("client_secret", client.secret.expose())
        .append_pair("refresh_token", token.expose())
        .finish()
}

/// Requests a token; once more if the endpoint does not answer.
pub(crate) async fn ask_for_token(
    http: &Http,
    url: &Url,
    form: String,
    deadline: Instant,
) -> Result<Granted, GrantFault> {
    let mut retries = Retries::new(ATTEMPTS, deadline);
    loop {
        let patience = deadline.min(Instant::now() + PATIENCE);
        let reply = http.send(token_request(url, form.clone()), patience).await;
        match &reply {
            Ok(reply) if reply.status.is_success() => return read_token(reply).ok_or(GrantFault::Unavailable),
            Ok(reply) if reply.status.is_client_error() && reply.status != 429 && reply.status != 408 => {
                // Without a code it comes from an intermediary, and says nothing about the grant.
                return Err(error_code(reply).map_or(GrantFault::Unavailable, GrantFault::Refused));
            }
            Ok(_) | Err(Lost::NotSent | Lost::Unknown | Lost::TooLarge) => {}
        }
        if !retries.again(reply.as_ref().ok()).await {
            return Err(GrantFault::Unavailable);
        }
    }
}

/// A POST request with a form.
pub(crate) fn token_request(url: &Url, form: String) -> Request {
    gavel_mcp_base::http::post(url.clone(), "application/x-www-form-urlencoded", form)
}

fn read_token(reply: &Reply) -> Option<Granted> {
    let answer: Answer = reply.json()?;
    Some(Granted {
        access_token: Secret::new(answer.access_token),
        lifetime: Duration::from_secs(answer.expires_in.unwrap_or(ASSUMED_TOKEN).min(LONGEST_TOKEN)),
        refresh_token: answer.refresh_token.map(Secret::new),
        scope: answer.scope,
        account: answer.id_token.as_deref().and_then(account_of),
    })
}

fn error_code(reply: &Reply) -> Option<String> {
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
fn account_of(id_token: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Claims {
        email: Option<String>,
    }
    let payload = URL_SAFE_NO_PAD.decode(id_token.split('.').nth(1)?).ok()?;
    serde_json::from_slice::<Claims>(&payload).ok()?.email
}
