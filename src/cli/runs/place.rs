//! Where runs are: in the configured database, or at a remote gavel.

use std::time::Duration;

use anyhow::Context;
use secrecy::ExposeSecret;

use crate::adapters::store::ReadOnly;
use crate::cli::client::Client;
use crate::cli::operator;
use crate::cli::serve::reachable;
use crate::config::{Auth, Config};
use crate::domain::ids::{DEFAULT_TENANT, TenantId, UserId};
use crate::surfaces::agents::MOST_TIME;

/// The options for the place.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli) struct Where {
    /// Use a remote gavel, with the key in GAVEL_API_KEY, instead of this configuration
    #[arg(long, value_name = "URL")]
    pub(in crate::cli) server: Option<String>,
    /// The user whose runs, threads and approval requests are used, and for whom runs begin. Without it: every user's
    /// here (a new run is for `local`); with --server, those of the key's user, or of `local` if the server requires no
    /// key
    #[arg(long, value_parser = operator::user, value_name = "NAME")]
    pub(in crate::cli) user: Option<UserId>,
    /// The tenant, without --server
    #[arg(long, default_value = "default", value_parser = operator::tenant, value_name = "NAME", conflicts_with = "server")]
    tenant: TenantId,
    /// For suggested commands: add `--user` with the owner of the call, who must answer it.
    #[arg(skip)]
    for_owners: bool,
}

/// The configured database, or a remote gavel.
pub(in crate::cli) enum Place {
    Here(Box<Here>),
    There(There),
}

pub(in crate::cli) struct Here {
    pub(super) config: Config,
    pub(super) tenant: TenantId,
    pub(super) user: Option<UserId>,
}

pub(in crate::cli) struct There {
    pub(super) client: Client,
    pub(super) user: Option<UserId>,
}

impl Where {
    /// `config` is absent if a remote gavel is used.
    pub(in crate::cli) fn with(&self, config: Option<Config>) -> anyhow::Result<Place> {
        let user = self.user.clone();
        Ok(match &self.server {
            Some(server) => Place::There(There {
                client: Client::new(server)?,
                user,
            }),
            None => Place::Here(Box::new(Here {
                config: config.context("there is no configuration")?,
                tenant: self.tenant.clone(),
                user,
            })),
        })
    }

    /// The user and tenant that were read, for a message that nothing was found; a remote gavel derives the tenant from
    /// the key.
    pub(in crate::cli) fn whose_words(&self) -> String {
        let user = self.user.as_ref().map(|user| format!("the user {user}"));
        let tenant = self.server.is_none().then(|| format!("the tenant {}", self.tenant));
        match (user, tenant) {
            (Some(user), Some(tenant)) => format!(" of {user} of {tenant}"),
            (Some(one), None) | (None, Some(one)) => format!(" of {one}"),
            (None, None) => String::new(),
        }
    }

    /// These options for commands that answer: if another gavel uses the database, answers must go through it.
    pub(in crate::cli) async fn answering(&self, place: &Place) -> anyhow::Result<Self> {
        let Place::Here(here) = place else {
            return Ok(self.clone());
        };
        if !place.is_in_use().await? {
            return Ok(self.clone());
        }
        Ok(Self {
            // Its address, from the configuration that both share.
            server: Some(format!("http://{}", reachable(here.config.listen))),
            for_owners: self.user.is_none() && !matches!(here.config.auth, Auth::Jwt(_)),
            ..self.clone()
        })
    }

    /// These options for a command about a call of `user`.
    pub(in crate::cli) fn for_call_of(&self, user: Option<&str>) -> Self {
        let owner = user.and_then(|user| UserId::parse(user).ok());
        Self {
            user: self.user.clone().or(owner.filter(|_| self.for_owners)),
            ..self.clone()
        }
    }

    /// The same options, for a command to paste.
    pub(in crate::cli) fn repeated(&self) -> String {
        let mut text = String::new();
        // A remote gavel derives the tenant from the key.
        let is_default = self.server.is_some() || self.tenant.as_str() == DEFAULT_TENANT;
        let tenant = (!is_default).then_some(self.tenant.as_str());
        for (name, value) in [
            ("--server", self.server.as_deref()),
            ("--user", self.user.as_ref().map(UserId::as_str)),
            ("--tenant", tenant),
        ] {
            if let Some(value) = value {
                text.push_str(&format!(" {name} {}", quoted(value)));
            }
        }
        text
    }
}

impl Place {
    /// Does another gavel use the configured database now?
    pub(in crate::cli) async fn is_in_use(&self) -> anyhow::Result<bool> {
        let Self::Here(here) = self else { return Ok(false) };
        let record = ReadOnly::open(here.config.database_url.expose_secret()).await;
        let record = record.context("the database cannot be read")?;
        let in_use = record.is_in_use().await;
        record.close().await;
        Ok(in_use?)
    }
}

/// Quoted for a POSIX shell.
fn quoted(value: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@=+,%".contains(c);
    if !value.is_empty() && value.chars().all(is_plain) {
        value.to_owned()
    } else {
        format!("'{}'", value.replace('\'', r"'\''"))
    }
}

/// Parses `--timeout`.
pub(in crate::cli) fn timeout(text: &str) -> Result<Duration, String> {
    let most = MOST_TIME.as_secs();
    let seconds = text.parse().ok().filter(|seconds| (1..=most).contains(seconds));
    let seconds = seconds.ok_or_else(|| format!("give whole seconds from 1 to {most}"))?;
    Ok(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_to_paste_keeps_its_options_whatever_they_hold() {
        let place = Where {
            server: Some("http://localhost:8080".to_owned()),
            user: Some(UserId::parse("ann's; rm -rf").unwrap()),
            tenant: TenantId::parse("default").unwrap(),
            for_owners: false,
        };
        assert_eq!(
            place.repeated(),
            r" --server http://localhost:8080 --user 'ann'\''s; rm -rf'"
        );
    }
}
