//! Configuration, read once at start: flags > environment > `.env` > `gavel.toml` > defaults.
//!
//! [`settings`] is the table of all settings: typed structs whose fields are the settings. [`read`] merges the given
//! values over the defaults. [`auth`], [`model`], [`records`] and [`traces`] build what follows from several settings.
//! All errors are collected, so that a failed start reports every one.
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

mod auth;
mod dotenv;
mod flags;
mod load;
mod model;
mod origin;
mod planning;
mod read;
mod records;
mod secret;
pub mod settings;
mod traces;
mod trust;
mod values;

use std::fmt::{self, Write};

use gavel_reading::ReadError;
use secrecy::ExposeSecret;

use self::read::Read;
use self::settings::{SETTINGS, Setting};

pub use auth::{ApiKey, Auth, Jwt, JwtKeys, KNOWN_ROLES};
pub use dotenv::Dotenv;
pub use flags::Flags;
pub use model::{GoogleEnvironment, ModelConfig, Provider};
pub use origin::Origin;
pub use read::Sources;
pub use records::Content;
pub use secret::masked_url;
pub use settings::{
    Approvals, Audit, Config, Console, DEFAULT_MODEL, GitHub, Log, LogFormat, ModelTimeouts, Planning, Policy,
    RateLimit, Runs,
};
pub use traces::Otlp;

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
#[must_use]
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
