//! Google accounts of users. They are connected with the settings that the google server is started with, and stored in
//! the database that it reads.

use anyhow::{Context, bail};
use futures_util::future::BoxFuture;
use gavel_mcp_google::connect::{ConnectError, Connector};
use gavel_mcp_google::{Args, Settings};
use tokio::sync::OnceCell;

use super::servers;
use crate::config::Config;
use crate::http::google::{Callback, Connected, NotConnected};

/// The settings of the google server, as its entry in `mcp.json` starts it. If no entry starts it, it runs elsewhere, and
/// gavel's own environment must contain the same settings.
///
/// # Errors
/// The `mcp.json` or the settings are invalid, or the server is off; the error gives the reason.
pub fn google(config: &Config) -> anyhow::Result<Settings> {
    let args = match servers::bundled(config, NAME)? {
        Some(args) => args,
        None => {
            // The command of a disabled entry is not kept, so only its name identifies it.
            let mut entries = servers::read(config)?.servers.into_iter();
            let entry = entries.find(|server| &*server.name == NAME);
            if let Some(off) = entry.and_then(|entry| entry.off) {
                bail!("the google server is off: {off} (docs/how-to/google.md describes its configuration)");
            }
            servers::options_of::<Args>(NAME, &[], &|name| config.dotenv.variable(name))?
        }
    };
    Settings::try_from(args).context("the settings of the google server are invalid")
}

/// The name of its entry in the built-in `mcp.json`.
const NAME: &str = "google";
/// Implements the callback route. The database is opened at the first callback.
pub(super) struct AtCallback {
    settings: Settings,
    connector: OnceCell<Connector>,
}

impl AtCallback {
    /// Reads the settings once, because the route needs no authentication. Returns `None` if no callback can reach it;
    /// the state of the google server and `gavel google list` show the reason.
    pub(super) fn new(config: &Config) -> Option<Self> {
        let settings = google(config)
            .inspect_err(|error| {
                tracing::debug!(error = format!("{error:#}"), "the Google account callback is disabled")
            })
            .ok()?;
        settings.takes_callbacks().then(|| Self {
            settings,
            connector: OnceCell::new(),
        })
    }

    async fn connector(&self) -> Result<&Connector, NotConnected> {
        self.connector
            .get_or_try_init(|| Connector::open(&self.settings))
            .await
            .map_err(|error: anyhow::Error| {
                tracing::error!(error = format!("{error:#}"), "Google accounts cannot be connected");
                NotConnected::Unavailable
            })
    }
}

impl Callback for AtCallback {
    fn finish<'a>(&'a self, state: &'a str, code: &'a str) -> BoxFuture<'a, Result<Connected, NotConnected>> {
        Box::pin(async move {
            let connected = self.connector().await?.finish_at_callback(state, code).await;
            let account = connected.map_err(not_connected)?;
            Ok(Connected {
                lacks: account.lacks(),
                user: account.user,
                address: account.address,
            })
        })
    }

    fn declined<'a>(&'a self, state: &'a str) -> BoxFuture<'a, Result<(), NotConnected>> {
        Box::pin(async move {
            let connector = self.connector().await?;
            connector.declined_at_callback(state).await.map_err(not_connected)?;
            tracing::info!("consent to a Google account was declined");
            Ok(())
        })
    }
}

fn not_connected(error: ConnectError) -> NotConnected {
    match error {
        ConnectError::UnknownState
        | ConnectError::Refused(_)
        | ConnectError::NoRefreshToken
        | ConnectError::InvalidUser
        | ConnectError::InvalidRedirect => {
            tracing::warn!(%error, "a Google account was not connected");
            NotConnected::Refused(error.to_string())
        }
        ConnectError::Unavailable => {
            tracing::warn!(%error, "a Google account was not connected");
            NotConnected::GoogleUnavailable
        }
        ConnectError::ServiceAccount | ConnectError::NoCallback | ConnectError::Sealing(_) | ConnectError::Store(_) => {
            tracing::error!(
                error = format!("{:#}", anyhow::Error::from(error)),
                "a Google account was not connected"
            );
            NotConnected::Unavailable
        }
    }
}
