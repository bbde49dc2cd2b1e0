//! Configuration, read once at start: flags > environment > `.env` > `gavel.toml` > defaults.
//!
//! [`settings`] lists all settings with their names, defaults and allowed values. [`sources`] merges the given values
//! over the defaults, and [`read`] reads single values from the result. One file per section ([`auth`], [`model`], …)
//! builds validated types from them. All errors are collected, so that a failed start reports every one.
//!
//! The core deliberately reads no process environment, file or clock. [`Config::load`] does, and passes [`Sources`] to
//! [`Config::resolve`].
//!
//! Decisions documented only here:
//! - A variable that is set and empty counts as not set, because compose files set missing variables to the empty
//!   string.
//! - Only `.env`, `gavel.toml` and the directory `agents` are read from the working directory without being named, and the
//!   first two only if the user trusts the directory ([`trust`]). An `mcp.json` starts programs and a constitution steers
//!   every chat, so these are named or built in. An agent does nothing until a caller runs it.
//! - A relative path in `gavel.toml` is relative to that file; elsewhere it is relative to the working directory.
//! - Requesting a real model by name or by address without credentials is an error. The demo model is the default only
//!   when no setting refers to a real one.

mod audit;
mod auth;
mod dotenv;
mod error;
mod file;
mod flags;
mod given;
mod load;
mod logs;
mod model;
mod origin;
mod planning;
mod read;
mod records;
mod reference;
mod secret;
pub mod settings;
mod sources;
mod trust;
mod values;

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};

use crate::domain::thread::{OnReject, WhileBusy};

pub use audit::Audit;
pub use auth::{ApiKey, Auth, Jwt, JwtKeys, KNOWN_ROLES};
pub use dotenv::Dotenv;
pub use error::{ConfigError, ConfigErrors, FileError};
pub use flags::Flags;
pub use logs::{LogFormat, Logs, Otlp};
pub use model::{GoogleEnvironment, ModelConfig, ModelTimeouts, Provider};
pub use origin::Origin;
pub use planning::Planning;
pub use records::Content;
pub use reference::reference;
pub use secret::masked_url;
pub use settings::DEFAULT_MODEL;
pub use sources::Sources;

/// The validated configuration of gavel.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address the HTTP server listens on; port 0 picks a free port.
    pub listen: SocketAddr,
    /// `None`: the built-in constitution.
    pub constitution: Option<PathBuf>,
    /// Directory of agent definitions; `None`: `agents` in the working directory if it exists, else the built-in ones.
    pub agents: Option<PathBuf>,
    /// Path of `mcp.json`; `None`: the built-in servers.
    pub mcp_config: Option<PathBuf>,
    /// File with the accepted definitions of pinned tools.
    pub mcp_pins: PathBuf,
    /// Rules for tool calls; `None`: no rules.
    pub policy: Option<PathBuf>,
    /// `sqlite:…` or `postgres:…`; may contain a password.
    pub database_url: SecretString,
    /// The model.
    pub model: ModelConfig,
    /// How callers authenticate.
    pub auth: Auth,
    /// Request rate limit of each user.
    pub rate_limit: RateLimit,
    /// Most requests in progress at once; further requests are refused as OVERLOADED.
    pub max_in_flight: usize,
    /// HTTP worker threads; `None`: one per core.
    pub workers: Option<NonZeroUsize>,
    /// How long a shutdown waits for work in progress.
    pub drain: Duration,
    /// Runs of agents.
    pub runs: Runs,
    /// Login sessions of the console.
    pub console: Console,
    /// Planning sessions.
    pub planning: Planning,
    /// What records keep of message content.
    pub records: Content,
    /// The keys of the audit chain.
    pub audit: Audit,
    /// Signs the identity tokens that bundled MCP servers over HTTP require; at least 32 bytes.
    pub identity_secret: Option<SecretString>,
    /// What `GITHUB_TOKEN` is in `mcp.json`: the token of the bundled GitHub server.
    pub github_token: Option<SecretString>,
    /// Logs and traces.
    pub logs: Logs,
    /// Variables that `mcp.json` can name besides those of the process.
    pub dotenv: Dotenv,
}

/// Request rate limit of one user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Sustained rate, requests per minute.
    pub per_minute: NonZeroU32,
    /// Most requests at once.
    pub burst: NonZeroU32,
}

/// Runs of agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runs {
    /// Most background runs in progress at once; a process with 0 starts none.
    pub background: usize,
    /// How long a process may go without renewing its leases before another process takes over its runs.
    pub lease: Duration,
    /// How long ended runs are kept; `None`: forever.
    pub kept: Option<Duration>,
    /// The agent that answers in threads.
    pub agent: String,
    /// What happens to a message while a run of its thread is in progress.
    pub while_busy: WhileBusy,
    /// What happens to the run of a thread when an approver rejects an action.
    pub on_reject: OnReject,
    /// How long an approval request remains open.
    pub approvals_expire: Duration,
}

/// Login sessions of the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Console {
    /// Longest duration of a session.
    pub lasts: Duration,
    /// Longest idle time of a session.
    pub idle: Duration,
}

/// A configuration, with the origin of each value and the warnings about it.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The values.
    pub config: Config,
    /// Every setting with its value (secrets masked) and where that came from, in the order of [`settings::SETTINGS`].
    pub origins: Vec<Effective>,
    /// Suspicious settings that do not prevent the start.
    pub warnings: Vec<String>,
}

/// The effective value of one setting.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Effective {
    /// The key in `gavel.toml`.
    pub key: &'static str,
    /// The environment variable.
    pub environment: &'static str,
    /// As text, masked if it is secret; absent when it is not set.
    pub value: Option<String>,
    /// Where it came from.
    pub origin: Origin,
}

impl Config {
    /// Builds the configuration from the sources. No I/O except `sources.read_file`, for `NAME_FILE`.
    ///
    /// # Errors
    /// All errors, each with key, value (masked if secret), place and what is allowed. If `gavel.toml` is not valid
    /// TOML, only that error is reported.
    // Longer than a screen: a table, with one line for each setting.
    pub fn resolve(sources: Sources<'_>) -> Result<Resolved, Vec<ConfigError>> {
        let mut read = sources.lay()?;
        let listen = read.parse("listen", values::listen);
        let constitution = read.path("constitution");
        let agents = read.path("agents");
        let mcp_config = read.path("mcp_config");
        let mcp_pins = read.place("mcp_pins");
        let policy = read.path("policy.file");
        let database_url = read.parse("database_url", values::database_url);
        if let Some(url) = &database_url
            && values::is_clear_text_possible(url.expose_secret())
        {
            read.warn(
                "database_url names a PostgreSQL server on another machine, and its sslmode allows an unencrypted \
                 connection; add sslmode=require or verify-full to it"
                    .to_owned(),
            );
        }
        let model = model::read(&mut read, listen);
        let auth = auth::read(&mut read, listen);
        let per_minute = read.parse("rate_limit.per_minute", values::count);
        let burst = read.parse("rate_limit.burst", values::count);
        let max_in_flight = read.parse("max_in_flight", values::places);
        let workers = read.parse("workers", values::workers);
        let drain = read.parse("drain_seconds", values::seconds);
        let background = read.parse("runs.background", values::places);
        let lease = read.parse("runs.lease_seconds", values::seconds);
        let kept = read.parse("runs.keep_days", values::days);
        let runs_agent = read.parse("runs.agent", |text| {
            (!text.trim().is_empty()).then(|| text.trim().to_owned())
        });
        let while_busy = read.parse("runs.while_busy", values::while_busy);
        let on_reject = read.parse("runs.on_reject", values::on_reject);
        let approvals_expire = read.parse("approvals.expire_hours", values::hours);
        let session_lasts = read.parse("console.session_hours", values::hours);
        let session_idle = read.parse("console.idle_hours", values::hours);
        let planning = planning::read(&mut read);
        let records = records::read(&mut read);
        let audit = audit::read(&mut read);
        let identity_secret = read.parse("identity_secret", values::signing_secret);
        let github_token = read.secret("github.token");
        let logs = logs::read(&mut read);
        let dotenv = read.dotenv();
        let config = || {
            Some(Self {
                listen: listen?,
                constitution,
                agents,
                mcp_config,
                mcp_pins: mcp_pins?,
                policy,
                database_url: database_url?,
                model: model?,
                auth: auth?,
                rate_limit: RateLimit {
                    per_minute: per_minute?,
                    burst: burst?,
                },
                max_in_flight: max_in_flight?,
                workers,
                drain: drain?,
                runs: Runs {
                    background: background?,
                    lease: lease?,
                    kept,
                    agent: runs_agent?,
                    while_busy: while_busy?,
                    on_reject: on_reject?,
                    approvals_expire: approvals_expire?,
                },
                console: Console {
                    lasts: session_lasts?,
                    idle: session_idle?,
                },
                planning: planning?,
                records: records?,
                audit,
                identity_secret,
                github_token,
                logs: logs?,
                dotenv,
            })
        };
        read.finish(config())
    }
}
