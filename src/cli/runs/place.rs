//! Where runs are: in the database of this configuration, or at a gavel elsewhere.

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

/// The options that say where.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli) struct Where {
    /// Ask a gavel that runs elsewhere, with the key in GAVEL_API_KEY, instead of using this configuration
    #[arg(long, value_name = "URL")]
    pub(in crate::cli) server: Option<String>,
    /// The user whose runs, threads and questions they are, or for whom something is begun. Without it: everybody's here (a new run is
    /// for `local`); with --server those of the key's user, or of `local` where the server asks for no key
    #[arg(long, value_parser = operator::user, value_name = "NAME")]
    pub(in crate::cli) user: Option<UserId>,
    /// Whose records, without --server
    #[arg(long, default_value = "default", value_parser = operator::tenant, value_name = "NAME", conflicts_with = "server")]
    tenant: TenantId,
    /// In commands that are told: who a call is for is whose answer it is.
    #[arg(skip)]
    for_owners: bool,
}

/// One of the two.
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
    /// `config` is absent where a gavel elsewhere is asked.
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

    /// Whose records were looked at, for who finds nothing there; a gavel elsewhere knows the tenant by the key.
    pub(in crate::cli) fn whose_words(&self) -> String {
        let user = self.user.as_ref().map(|user| format!("the user {user}"));
        let tenant = self.server.is_none().then(|| format!("the tenant {}", self.tenant));
        match (user, tenant) {
            (Some(user), Some(tenant)) => format!(" of {user} of {tenant}"),
            (Some(one), None) | (None, Some(one)) => format!(" of {one}"),
            (None, None) => String::new(),
        }
    }

    /// These options for commands that answer: where another gavel has the database, only answers through it are taken.
    pub(in crate::cli) async fn answering(&self, place: &Place) -> anyhow::Result<Self> {
        let Place::Here(here) = place else {
            return Ok(self.clone());
        };
        if !place.is_in_use().await? {
            return Ok(self.clone());
        }
        Ok(Self {
            // By the configuration that both have.
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

    /// The same options, for a command that is to be pasted.
    pub(in crate::cli) fn repeated(&self) -> String {
        let mut text = String::new();
        // A gavel elsewhere knows the tenant by the key.
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
    /// Does another gavel have the database of this configuration just now?
    pub(in crate::cli) async fn is_in_use(&self) -> anyhow::Result<bool> {
        let Self::Here(here) = self else { return Ok(false) };
        let record = ReadOnly::open(here.config.database_url.expose_secret()).await;
        let record = record.context("the record cannot be read")?;
        let in_use = record.is_in_use().await;
        record.close().await;
        Ok(in_use?)
    }
}

/// Fit for a POSIX shell.
fn quoted(value: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@=+,%".contains(c);
    if !value.is_empty() && value.chars().all(is_plain) {
        value.to_owned()
    } else {
        format!("'{}'", value.replace('\'', r"'\''"))
    }
}

/// What `--timeout` takes.
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
