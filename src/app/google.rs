//! Google accounts of users. They are connected with the settings that the google server is started with, and stored in
//! the database that it reads.

use anyhow::{Context, bail};
use futures_util::future::BoxFuture;
use gavel_mcp_google::connect::{ConnectError, Connector};
use gavel_mcp_google::{Args, Settings};
use secrecy::ExposeSecret;
use tokio::sync::OnceCell;

use super::servers;
use crate::adapters::mcp::config::TransportConfig;
use crate::config::Config;
use crate::http::google::{Callback, Connected, NotConnected};

/// The settings of the google server of this configuration: the variables that its entry in `mcp.json` passes. If no
/// entry starts it, it runs elsewhere, and gavel's own environment must contain the same settings.
///
/// # Errors
/// The `mcp.json` or the settings are invalid, or the server is off; the error gives the reason.
pub fn google(config: &Config) -> anyhow::Result<Settings> {
    let servers = servers::read(config)?.servers;
    let starts = |transport: &TransportConfig| match transport {
        TransportConfig::Stdio { command, args, .. } => servers::own_arguments(command, args, NAME).is_some(),
        TransportConfig::Http { .. } => false,
    };
    let ours = servers.into_iter().find(|server| match &server.transport {
        Some(transport) => starts(transport),
        // The command of a disabled entry is not kept, so only its name identifies it.
        None => &*server.name == NAME,
    });
    let args = match ours.map(|server| (server.transport, server.off)) {
        Some((Some(TransportConfig::Stdio { env, args, .. }), _)) => {
            if args.len() > servers::OWN_ARGUMENTS {
                bail!(
                    "the google server has options in the `args` of mcp.json; set them in `env` instead, so that this command can read them"
                );
            }
            Args::from_variables(&|name| {
                let found = env.iter().find(|(given, _)| given == name);
                found.map(|(_, value)| value.expose_secret().to_owned())
            })
        }
        Some((_, Some(off))) => {
            bail!("the google server is off: {off} (docs/how-to/google.md describes its configuration)")
        }
        _ => Args::from_variables(&|name| config.dotenv.variable(name)),
    };
    args.and_then(Settings::try_from)
        .context("the settings of the google server are invalid")
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
