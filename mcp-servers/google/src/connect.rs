//! Connects users' Google accounts, for a command line with a loopback listener and for a callback route.
//!
//! [`Connector::begin`] returns the address to send the user to. Google sends the user back with `state` and `code`,
//! which [`Connector::finish`] exchanges. An authorization can be finished once, within ten minutes, by the user who
//! began it. Otherwise an attacker's link could connect another user's mailbox to the attacker's account.
//!
//! A callback route cannot identify the user ([`Connector::finish_at_callback`]), so the authorization names the user.
//! That is safe only while an operator, who may act for all users, is the only one to begin authorizations that return
//! there.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gavel_mcp_base::{Moment, Secret, UserId};
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use url::Url;
use url::form_urlencoded::Serializer;
use uuid::Uuid;

use crate::auth::{GrantFault, ask_for_token};
use crate::google::{Http, connections};
use crate::rights::not_granted;
use crate::sealing::{Kind, SealError, random};
use crate::settings::{Credentials, OAuthClient, Places, Settings};
use crate::store::{Authorization, Connection, Store};
use gavel_mcp_base::settings::is_loopback;

/// How long a user may take to consent.
const AUTHORIZATION_LIFE: Duration = Duration::from_secs(10 * 60);
const PATIENCE: Duration = Duration::from_secs(20);
/// How long after the user's return an authorization may take to become a connection; after that it has failed.
pub const SETTLED_WITHIN: Duration = Duration::from_secs(25);

/// Connects and disconnects accounts.
#[derive(Debug)]
pub struct Connector {
    client: OAuthClient,
    scopes: Vec<String>,
    places: Places,
    callback: Option<Url>,
    store: Store,
    http: Http,
}

/// An authorization in progress.
#[derive(Debug, Clone)]
pub struct Begun {
    /// The address to open in the user's browser.
    pub url: String,
    /// The value that Google will send back; a listener compares it.
    pub state: String,
}

/// A connected account. It contains no secret.
#[derive(Debug, Clone)]
pub struct Account {
    /// The user's id in gavel.
    pub user: String,
    /// Its address at Google, if known.
    pub address: Option<String>,
    /// The scopes that the user consented to.
    pub scopes: Vec<String>,
    /// The requested scopes to which the user did not consent.
    pub missing: Vec<String>,
    /// When it was connected.
    pub connected_at: Moment,
    /// Google no longer accepts the connection; the user must connect again.
    pub reconnect_required: bool,
}

impl Account {
    /// The missing scopes as text, in their short form.
    pub fn lacks(&self) -> Option<String> {
        let short = |scope: &String| {
            let short = scope.strip_prefix("https://www.googleapis.com/auth/");
            short.unwrap_or(scope).to_owned()
        };
        let missing: Vec<_> = self.missing.iter().map(short).collect();
        (!missing.is_empty()).then(|| missing.join(", "))
    }
}

/// The result of disconnecting an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disconnected {
    /// There was no account.
    None,
    /// The connection is deleted, and Google has revoked the consent.
    TakenBack,
    /// The connection is deleted here. The consent may remain at Google, where only the user can revoke it.
    Forgotten,
}

/// Why an account is not connected. The messages are for the user, and contain no secret.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// With a service account there is nothing to connect.
    #[error("this server uses a service account; users do not connect accounts")]
    ServiceAccount,
    /// The user's id is invalid.
    #[error("a user's id is a text of 1 to 512 characters without control characters")]
    InvalidUser,
    /// The redirect URI would reveal the code to others.
    #[error("the redirect URI must begin with https://, or with http:// for a loopback address")]
    InvalidRedirect,
    /// Never begun, already finished, begun by another user, or expired.
    #[error("this authorization was begun by another user, is already finished, or has expired; begin again")]
    UnknownState,
    /// There is no callback route.
    #[error("no callback is configured (GOOGLE_CALLBACK_URL)")]
    NoCallback,
    /// Google refused.
    #[error("Google refused the authorization ({0}); begin again")]
    Refused(String),
    /// Google gave no refresh token.
    #[error(
        "Google gave no lasting permission (no refresh token); remove this application at myaccount.google.com/permissions and begin again"
    )]
    NoRefreshToken,
    /// Google does not answer.
    #[error("Google cannot be reached now; begin again later")]
    Unavailable,
    /// Sealing failed; see the source.
    #[error("the connection cannot be sealed")]
    Sealing(#[source] anyhow::Error),
    /// The database failed; see the source.
    #[error("the server's database cannot be reached")]
    Store(#[from] sqlx::Error),
}

impl From<SealError> for ConnectError {
    fn from(error: SealError) -> Self {
        Self::Sealing(error.into())
    }
}

impl Connector {
    /// Opens the database that the server uses.
    ///
    /// # Errors
    /// The database cannot be opened, or the settings use a service account.
    pub async fn open(settings: &Settings) -> anyhow::Result<Self> {
        let Credentials::Client(client) = &settings.credentials else {
            return Err(ConnectError::ServiceAccount.into());
        };
        Ok(Self {
            client: client.clone(),
            scopes: settings.scopes.clone(),
            places: settings.places.clone(),
            callback: settings.callback.clone(),
            http: connections()?,
            store: Store::open(&settings.database).await?,
        })
    }

    /// Begins an authorization and replaces an earlier one of this user. `user` must be the authenticated user, never a
    /// value from a request.
    pub async fn begin(&self, user: &str, redirect_uri: &str) -> Result<Begun, ConnectError> {
        let user = user_id(user)?;
        let redirect = Url::parse(redirect_uri).map_err(|_| ConnectError::InvalidRedirect)?;
        if redirect.scheme() != "https" && !(redirect.scheme() == "http" && is_loopback(&redirect)) {
            return Err(ConnectError::InvalidRedirect);
        }
        let state = URL_SAFE_NO_PAD.encode(random::<32>()?);
        let verifier = Secret::new(URL_SAFE_NO_PAD.encode(random::<32>()?));
        self.store
            .begin(&Authorization {
                state: digest(&state),
                verifier: self.client.sealer.seal(Kind::Verifier, &user, &verifier)?,
                redirect_uri: redirect_uri.to_owned(),
                expires_at: Moment(Moment::now().0 + AUTHORIZATION_LIFE.as_micros() as i64),
                user,
            })
            .await?;
        let mut url = self.places.auth.clone();
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.client.id)
            .append_pair("redirect_uri", redirect_uri)
            .append_pair("scope", &self.scopes.join(" "))
            .append_pair("state", &state)
            .append_pair("code_challenge", &digest(verifier.expose()))
            .append_pair("code_challenge_method", "S256")
            // Without these two, Google sends no refresh token, or only the first time.
            .append_pair("access_type", "offline")
            .append_pair("prompt", "consent");
        Ok(Begun { url: url.into(), state })
    }

    /// Does the authorization still wait for its user? If not, it was finished, declined, refused or replaced; its
    /// result is known [`SETTLED_WITHIN`] later.
    pub async fn waits(&self, user: &str, state: &str) -> Result<bool, ConnectError> {
        Ok(self.store.waits(&user_id(user)?, &digest(state)).await?)
    }

    /// Exchanges the code from Google, and stores the connection in place of the user's earlier one. `user` is the
    /// returning user, as the caller identified them: from the browser's session, or at the terminal.
    pub async fn finish(&self, user: &str, state: &str, code: &str) -> Result<Account, ConnectError> {
        let user = user_id(user)?;
        let taken = self.store.take(&digest(state), Some(&user), None).await?;
        self.exchange(taken, code).await
    }

    /// Like [`Self::finish`], for a callback route, which cannot identify the user: the authorization names the user.
    /// It must return to the configured callback.
    pub async fn finish_at_callback(&self, state: &str, code: &str) -> Result<Account, ConnectError> {
        let callback = self.callback.as_ref().ok_or(ConnectError::NoCallback)?;
        if !is_state(state) {
            return Err(ConnectError::UnknownState);
        }
        let taken = self.store.take(&digest(state), None, Some(callback.as_str())).await?;
        self.exchange(taken, code).await
    }

    /// The user declined: the authorization can no longer be finished.
    pub async fn declined_at_callback(&self, state: &str) -> Result<(), ConnectError> {
        let callback = self.callback.as_ref().ok_or(ConnectError::NoCallback)?;
        if is_state(state) {
            self.store.take(&digest(state), None, Some(callback.as_str())).await?;
        }
        Ok(())
    }

    async fn exchange(&self, taken: Option<Authorization>, code: &str) -> Result<Account, ConnectError> {
        let begun = taken
            .filter(|begun| begun.expires_at > Moment::now())
            .ok_or(ConnectError::UnknownState)?;
        let user = begun.user;
        let verifier = self.client.sealer.open(Kind::Verifier, &user, &begun.verifier)?.secret;
        let form = Serializer::new(String::new())
            .append_pair("grant_type", "authorization_code")
            .append_pair("code", code)
            .append_pair("redirect_uri", &begun.redirect_uri)
            .append_pair("client_id", &self.client.id)
            .append_pair("client_secret", self.client.secret.expose())
            .append_pair("code_verifier", verifier.expose())
            .finish();
        let granted = ask_for_token(&self.http, &self.places.token, form, Instant::now() + PATIENCE)
            .await
            .map_err(|fault| match fault {
                GrantFault::Unavailable => ConnectError::Unavailable,
                GrantFault::Refused(code) => ConnectError::Refused(code),
            })?;
        let token = granted.refresh_token.ok_or(ConnectError::NoRefreshToken)?;
        let connection = Connection {
            generation: Uuid::now_v7().to_string(),
            refresh_token: self.client.sealer.seal(Kind::RefreshToken, &user, &token)?,
            scopes: granted.scope.unwrap_or_else(|| self.scopes.join(" ")),
            account: granted.account,
            connected_at: Moment::now(),
            refused_at: None,
            user,
        };
        self.store.connect(&connection).await?;
        tracing::info!("a Google account was connected");
        Ok(account(connection, &self.scopes))
    }

    /// The address of the callback route, if one is configured.
    pub fn callback(&self) -> Option<&str> {
        self.callback.as_ref().map(Url::as_str)
    }

    /// Deletes a user's connection, then revokes the consent at Google if Google answers. The deletion comes first: the
    /// connection is unusable whatever Google answers.
    pub async fn disconnect(&self, user: &str) -> Result<Disconnected, ConnectError> {
        let user = user_id(user)?;
        let Some(connection) = self.store.disconnect(&user).await? else {
            return Ok(Disconnected::None);
        };
        let sealed = &connection.refresh_token;
        let taken_back = match self.client.sealer.open(Kind::RefreshToken, &user, sealed) {
            Ok(opened) => self.revoke(&opened.secret).await,
            Err(error) => {
                tracing::warn!(%error, "a consent was not revoked at Google");
                false
            }
        };
        Ok(match taken_back {
            true => Disconnected::TakenBack,
            false => Disconnected::Forgotten,
        })
    }

    /// Returns whether Google revoked the consent.
    async fn revoke(&self, token: &Secret) -> bool {
        let form = Serializer::new(String::new())
            .append_pair("token", token.expose())
            .finish();
        let request = crate::auth::token_request(&self.places.revoke, form);
        match self.http.send(request, Instant::now() + PATIENCE).await {
            // 400: it was already revoked.
            Ok(reply) if reply.status.is_success() || reply.status == 400 => true,
            Ok(reply) => {
                tracing::warn!(status = reply.status.as_u16(), "a consent was not revoked at Google");
                false
            }
            Err(lost) => {
                tracing::warn!(?lost, "a consent was not revoked at Google");
                false
            }
        }
    }

    /// All connected accounts, sorted by user id.
    pub async fn connected(&self) -> Result<Vec<Account>, ConnectError> {
        let connections = self.store.connections().await?;
        let reported = |connection| account(connection, &self.scopes);
        Ok(connections.into_iter().map(reported).collect())
    }

    /// Closes the database.
    pub async fn close(self) {
        self.store.close().await;
    }
}

fn user_id(user: &str) -> Result<UserId, ConnectError> {
    UserId::parse(user).ok_or(ConnectError::InvalidUser)
}

/// Has it the form of our states: 32 bytes in base64? Any client can send others, which are not worth a database query.
fn is_state(text: &str) -> bool {
    text.len() == 43
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// Base64url of SHA-256, as PKCE's S256 requires (RFC 7636, section 4.2).
fn digest(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(text))
}

fn account(connection: Connection, asked: &[String]) -> Account {
    Account {
        missing: not_granted(asked, &connection.scopes),
        user: connection.user.as_str().to_owned(),
        address: connection.account,
        scopes: connection.scopes.split_ascii_whitespace().map(str::to_owned).collect(),
        connected_at: connection.connected_at,
        reconnect_required: connection.refused_at.is_some(),
    }
}
