//! Configuration, read once at start: flags > environment > `.env` > `gavel.toml` > defaults (DESIGN.md section 10).
//!
//! [`settings`] is the list of all settings with their names, defaults and what is allowed. [`sources`] lays
//! what was given over the defaults, [`read`] takes one value at a time out of it, and one file a section
//! ([`auth`], [`model`], …) makes types of them that cannot be wrong. Every mistake is collected, so that a
//! start that is refused names all of them.
//!
//! Absent on purpose: the core reads no process environment, file or clock. [`Config::load`] does, and hands
//! [`Sources`] to [`Config::resolve`].
//!
//! Decisions written nowhere else:
//! - A variable that is set and empty counts as not set, as compose files leave them.
//! - Only `.env`, `gavel.toml` and the folder `agents` are taken from the working directory without being named. An `mcp.json`
//!   starts programs and a constitution steers every chat, so these are named or built in; an agent does nothing until
//!   somebody runs it.
//! - A relative path in `gavel.toml` is relative to that file; elsewhere to the working directory.
//! - A real model that is asked for by name, or by address, without credentials is an error; the demo model is
//!   the default only when nothing points to a real one.

mod audit;
mod auth;
mod dotenv;
mod error;
mod file;
mod flags;
mod load;
mod logs;
mod model;
mod origin;
mod read;
mod records;
mod reference;
mod secret;
pub mod settings;
mod sources;
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
pub use model::{DEFAULT_MODEL, GoogleEnvironment, ModelConfig, ModelTimeouts, Provider};
pub use origin::Origin;
pub use records::Content;
pub use reference::reference;
pub use secret::masked_url;
pub use sources::Sources;

/// Settings that are read and checked, and that nothing is built from yet.
const NOT_USED_YET: [&str; 1] = ["github.token"];

/// Everything gavel is built from.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// `None`: the constitution that is built in.
    pub constitution: Option<PathBuf>,
    /// Folder of agent definitions; `None`: `agents` in the working directory if it is there, else those built in.
    pub agents: Option<PathBuf>,
    /// `mcp.json`; `None`: the servers that are built in.
    pub mcp_config: Option<PathBuf>,
    /// Accepted definitions of pinned tools.
    pub mcp_pins: PathBuf,
    /// Rules for tool calls; `None`: none.
    pub policy: Option<PathBuf>,
    /// `sqlite:…` or `postgres:…`; may carry a password.
    pub database_url: SecretString,
    /// Who answers.
    pub model: ModelConfig,
    /// Who may ask.
    pub auth: Auth,
    /// How much a user may ask for.
    pub rate_limit: RateLimit,
    /// Requests worked on at once; more are shed as OVERLOADED.
    pub max_in_flight: usize,
    /// HTTP worker threads; `None`: one for each core.
    pub workers: Option<NonZeroUsize>,
    /// How long a stop waits for what is under way.
    pub drain: Duration,
    /// Runs of agents.
    pub runs: Runs,
    /// Logins to the console.
    pub console: Console,
    /// What the records keep of people's words.
    pub records: Content,
    /// The keys of the audit.
    pub audit: Audit,
    /// Signs the identity tokens that our own MCP servers over HTTP ask for; at least 32 bytes.
    pub identity_secret: Option<SecretString>,
    /// For the GitHub tools.
    pub github_token: Option<SecretString>,
    /// Logs and traces.
    pub logs: Logs,
    /// Variables that `mcp.json` can name beside those of the process.
    pub dotenv: Dotenv,
}

/// Requests of one user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// In the long run.
    pub per_minute: NonZeroU32,
    /// At once.
    pub burst: NonZeroU32,
}

/// Runs of agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runs {
    /// In the background, worked on at once; a process with 0 takes up none.
    pub background: usize,
    /// How long a process may be silent before another one takes its runs up.
    pub lease: Duration,
    /// How long those that are over are kept; `None`: for ever.
    pub kept: Option<Duration>,
    /// Who answers in threads.
    pub agent: String,
    /// What becomes of a message while a run of its thread is going.
    pub while_busy: WhileBusy,
    /// What becomes of a thread's run when a person says no.
    pub on_reject: OnReject,
    /// How long a question to a person stands.
    pub approvals_expire: Duration,
}

/// Logins to the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Console {
    /// How long one lasts.
    pub lasts: Duration,
    /// How long one may rest.
    pub idle: Duration,
}

/// A configuration with what is to be told about it.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The values.
    pub config: Config,
    /// Every setting with its value (secrets masked) and where that came from, in the order of [`settings::SETTINGS`].
    pub origins: Vec<Effective>,
    /// What is odd and does not stop the start.
    pub warnings: Vec<String>,
}

/// One setting as it is in effect.
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
    /// Makes the configuration out of what was given. No I/O but `sources.read_file`, for `NAME_FILE`.
    ///
    /// # Errors
    /// Every mistake, each with key, value (masked if secret), place and what is allowed. A `gavel.toml`
    /// that is no TOML hides the mistakes in other places.
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
                "database_url names a PostgreSQL on another machine, and its sslmode allows words without encryption; \
                 add sslmode=require, or verify-full, to it"
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
        let records = records::read(&mut read);
        let audit = audit::read(&mut read);
        let identity_secret = read.parse("identity_secret", values::signing_secret);
        let github_token = read.secret("github.token");
        let logs = logs::read(&mut read);
        for key in NOT_USED_YET {
            if read.is_given(key) {
                read.warn(format!("{key} is given, and this version does not use it yet"));
            }
        }
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
