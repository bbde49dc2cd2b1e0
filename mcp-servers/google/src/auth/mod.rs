//! Access tokens: each for one user, kept in memory until shortly before it expires, never stored.

mod grant;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gavel_mcp_base::{Moment, Secret, ServiceAccount, ToolError, UserId};
use reqwest::header::HeaderValue;
use tokio::time::Instant;
use url::Url;

pub(crate) use grant::{GrantFault, Granted, ask, request};

use crate::address;
use crate::error::{
    Code, account_changed, missing_scope, not_connected, reconnect_required, store_unavailable, unavailable,
};
use crate::google::http::Http;
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
                grant::refresh(client, &token)
            }
            Owner::Delegated(account, mailbox) => account.form(&self.url, &self.scopes.join(" "), Some(mailbox))?,
        };
        let granted = match ask(&self.http, &self.url, form, deadline).await {
            Ok(granted) => granted,
            Err(fault) => return Err(self.refused(owner, fault).await),
        };
        let header = granted.header().ok_or_else(unavailable)?;
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

/// A header with a token, excluded from debug output.
fn bearer(token: &str) -> Option<HeaderValue> {
    let mut header = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
    header.set_sensitive(true);
    Some(header)
}

impl Granted {
    fn header(&self) -> Option<HeaderValue> {
        bearer(self.access_token.expose())
    }
}
