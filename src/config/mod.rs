//! Configuration, read once at start: flags > environment > `.env` > `gavel.toml` > defaults.
//!
//! [`Config`] and the sections in [`settings`] are the table of all settings: typed structs whose fields are the
//! settings. [`read`] merges the given values over the defaults. [`auth`], [`model`] and [`settings`] build what
//! follows from several settings. All errors are collected, so that a failed start reports every one.
//!
//! The core deliberately reads no process environment, file or clock. [`Config::load`] does, and passes [`Sources`] to
//! [`Config::resolve`].
//!
//! Decisions documented only here:
//! - A variable that is set and empty counts as not set, because compose files set missing variables to the empty
//!   string.
//! - Only `.env`, `gavel.toml` and the directory `agents` are read from the working directory without being named, and the
//!   first two only if the user trusts the directory ([`load`]). An `mcp.json` starts programs and a constitution steers
//!   every chat, so these are named or built in. An agent does nothing until a caller runs it.
//! - A relative path in `gavel.toml` is relative to that file; elsewhere it is relative to the working directory.
//! - Requesting a real model by name or by address without credentials is an error. The demo model is the default only
//!   when no setting refers to a real one.

mod auth;
mod load;
mod model;
mod read;
mod secret;
mod settings;
mod values;

use std::fmt::{self, Write};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

pub use gavel_reading::Setting;
use gavel_reading::{ByText, ReadError, settings};
use secrecy::{ExposeSecret, SecretString};

use self::read::Read;
use self::settings::{AuthSettings, Gemini, JwtSettings, Otel, PLACES, Records, SECONDS, SIGNING, Vertex, path};
use crate::adapters::store::ContentMode;
use crate::domain::settings::{SessionRules, TaskLimits, ThreadSettings};

pub use crate::adapters::demo::NAME as DEMO_MODEL;
pub use auth::{Auth, Jwt, JwtKeys, KNOWN_ROLES};
pub use load::Dotenv;
pub use load::Flags;
pub use model::{ModelConfig, Provider};
pub use read::Origin;
pub use read::Sources;
pub use secret::masked_url;
pub use settings::Otlp;
pub use settings::{
    Approvals, Audit, Console, DEFAULT_MODEL, GitHub, Log, LogFormat, ModelTimeouts, Planning, Policy, PriceSettings,
    RateLimit, Runs,
};
pub use values::ApiKey;

/// The key of the configuration file itself, which cannot be set in that file.
pub const CONFIG_FILE: &str = "config";

/// All settings, in the order they are shown.
pub static SETTINGS: LazyLock<Vec<Setting>> = LazyLock::new(|| {
    [
        Config::rows(),
        Policy::rows(),
        Runs::rows(),
        ThreadSettings::rows(),
        Approvals::rows(),
        Console::rows(),
        Planning::rows(),
        SessionRules::rows(),
        TaskLimits::rows(),
        Gemini::rows(),
        Vertex::rows(),
        ModelTimeouts::rows(),
        PriceSettings::rows(),
        GitHub::rows(),
        AuthSettings::rows(),
        JwtSettings::rows(),
        RateLimit::rows(),
        Records::rows(),
        Audit::rows(),
        Log::rows(),
        Otel::rows(),
    ]
    .concat()
});

/// The setting with this key.
pub fn find(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}

settings! {
    /// The validated configuration of gavel.
    #[derive(Clone, Debug)]
    pub struct Config = "" {
        /// The configuration file.
        config: Option<PathBuf> = path("the path of a TOML file"), variables(&["GAVEL_CONFIG"]),
            flag("--config", "PATH"), absent("gavel.toml, if there is one");
        /// Where the HTTP API is served; port 0 takes a free one.
        listen: SocketAddr = ByText {
            allowed: "an address and a port, such as 127.0.0.1:8080, [::1]:8080 or localhost:8080",
            read: values::listen,
        }, flag("--listen", "ADDR:PORT"), default("127.0.0.1:8080");
        /// System prompt, tool allowlist and limits of the chat surface.
        constitution: Option<PathBuf> = path("the path of a Markdown file"), readable(),
            flag("--constitution", "PATH"), absent("built in");
        /// Directory of agent definitions.
        agents: Option<PathBuf> = path("the path of a directory"), readable(), flag("--agents", "PATH"),
            absent("agents, if it exists, else built in");
        /// The MCP servers whose tools are used.
        mcp_config: Option<PathBuf> = path("the path of an mcp.json file"), readable(), flag("--mcp-config", "PATH"),
            absent("built in");
        /// Where the accepted definitions of tools are kept; only written when a server has pin: true.
        mcp_pins: PathBuf = path("the path of a file, which need not exist"), path(), flag("--mcp-pins", "PATH"),
            default("gavel-pins.json");
        /// Where records are kept; a missing SQLite file is created.
        database_url: SecretString = ByText {
            allowed: "sqlite://PATH or postgres://USER:PASSWORD@HOST/DATABASE",
            read: values::database_url,
        }, variables(&["DATABASE_URL"]), flag("--database", "URL"), default("sqlite://gavel.db"), url();
        /// HTTP worker threads.
        workers: Option<NonZeroUsize> = ByText {
            allowed: "a whole number from 1 to 512",
            read: |text| text.parse().ok().filter(|workers: &NonZeroUsize| workers.get() <= 512),
        }, absent("one for each core");
        /// Requests in progress at once in one process; further requests are answered REFUSAL:OVERLOADED. One tenant
        /// may use at most seven eighths of them, one user three quarters.
        max_in_flight: usize = PLACES, default("1024");
        /// How long a shutdown waits for work in progress.
        drain_seconds: Duration = SECONDS, default("30");
        /// Signs the identity tokens that MCP servers over HTTP ask for.
        identity_secret: Option<SecretString> = SIGNING, secret();
    } with values: Read<'_> {
        /// Rules for tool calls.
        policy: Policy = Policy::read(values);
        /// Runs of agents.
        runs: Runs = Runs::read(values);
        /// Approval requests.
        approvals: Approvals = Approvals::read(values);
        /// Login sessions of the console.
        console: Console = Console::read(values);
        /// Planning sessions.
        planning: Planning = Planning::read(values);
        /// The model.
        model: ModelConfig = model::read(values, listen);
        /// What models cost.
        prices: PriceSettings = PriceSettings::read(values);
        /// GitHub.
        github: GitHub = GitHub::read(values);
        /// How callers authenticate.
        auth: Auth = auth::read(values, listen);
        /// Request rate limit of each user.
        rate_limit: RateLimit = RateLimit::read(values);
        /// What records keep of message content, and how long they are kept; `None`: forever.
        records: (ContentMode, Option<Duration>) = settings::read_records(values);
        /// The keys of the audit chain.
        audit: Audit = Audit::read(values);
        /// What is logged.
        log: Log = Log::read(values);
        /// The collector that receives traces; absent: traces are not sent.
        traces: Option<Otlp> = settings::read_traces(values);
        /// Variables that `mcp.json` can name besides those of the process.
        dotenv: Dotenv = Some(values.dotenv());
    }
}

/// A configuration, with the origin of each value and the warnings about it.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The values.
    pub config: Config,
    /// Every setting with its value (secrets masked) and where that came from, in the order of [`SETTINGS`].
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
    pub fn resolve(sources: Sources<'_>) -> Result<Resolved, Vec<ReadError>> {
        let read = Read::new(sources)?;
        let config = Self::read(&read);
        if let Some(config) = &config
            && values::is_clear_text_possible(config.database_url.expose_secret())
        {
            read.warn(
                "database_url names a PostgreSQL server on another machine, and its sslmode allows an unencrypted \
                 connection; add sslmode=require or verify-full to it",
            );
        }
        read.finish(config)
    }
}

/// All settings as a Markdown table: what `gavel config --reference` prints.
pub fn reference() -> String {
    let mut page = String::from(
        "| gavel.toml | environment | flag | default | allowed | what for |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    let code = |text: &str| format!("`{text}`");
    for setting in SETTINGS.iter() {
        let Setting {
            key, allowed, about, ..
        } = setting;
        let variables: Vec<_> = setting.environment.iter().map(|name| code(name)).collect();
        let file = if setting.in_file() { ", `…_FILE`" } else { "" };
        let flag = setting.flag.map(|(flag, _)| code(flag)).unwrap_or_default();
        let default = setting.default.map_or_else(|| setting.absent.to_owned(), code);
        // Writing to a String cannot fail.
        let _ = writeln!(
            page,
            "| `{key}` | {}{file} | {flag} | {default} | {allowed} | {about} |",
            variables.join(" or ")
        );
    }
    page
}

/// All configuration errors, reported together when the start fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ReadError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            1 => f.write_str("the configuration has an error:")?,
            n => write!(f, "the configuration has {n} errors:")?,
        }
        for error in &self.0 {
            write!(f, "\n  {error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// A file that a setting names is unreadable or invalid.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct FileError(pub String);

impl FileError {
    /// With every error, one a line, below `what`, such as `the policy is invalid`.
    pub(crate) fn new(what: &str, errors: &[impl fmt::Display]) -> Self {
        let lines: String = errors.iter().map(|error| format!("\n{error}")).collect();
        Self(format!("{what}:{lines}"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_settings_share_a_name() {
        let mut names = BTreeSet::new();
        for setting in SETTINGS.iter() {
            let flag = setting.flag.map(|(flag, _)| flag);
            let all = [setting.key]
                .into_iter()
                .chain(setting.environment.iter().map(String::as_str));
            for name in all.chain(flag) {
                assert!(names.insert(name), "{name}");
            }
        }
    }

    #[test]
    fn no_section_is_also_a_setting() {
        for setting in SETTINGS.iter() {
            let inner = format!("{}.", setting.key);
            assert!(SETTINGS.iter().all(|other| !other.key.starts_with(&inner)), "{inner}");
        }
    }
}
