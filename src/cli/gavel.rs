//! The gavel that a command talks to: with `--server` a remote one, else a service that the command starts for itself.

use std::ops::Deref;

use anyhow::Context;

use super::client::Client;
use super::exit::Exit;
use super::interrupt::unless_stopped;
use super::serve::reachable;
use crate::app::{OwnService, Work, is_in_use};
use crate::config::{Auth, Config};
use crate::domain::ids::{DEFAULT_TENANT, IdError, ProjectId, TenantId, UserId};

/// The options for the place.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Where {
    /// Use a remote gavel, with the key in GAVEL_API_KEY, instead of this configuration
    #[arg(long, value_name = "URL")]
    pub(super) server: Option<String>,
    /// The user whose runs, threads and approval requests are used, and for whom runs begin. Without it: every user's
    /// here (a new run is for `local`); with --server, those of the key's user, or of `local` if the server requires no
    /// key
    #[arg(long, value_parser = user, value_name = "NAME")]
    user: Option<UserId>,
    /// The tenant, without --server
    #[arg(long, default_value = "default", value_parser = tenant, value_name = "NAME", conflicts_with = "server")]
    tenant: TenantId,
    /// For suggested commands: add `--user` with the owner of the call, who must answer it.
    #[arg(skip)]
    for_owners: bool,
}

/// A gavel: requests go to its [`Client`].
pub(super) struct Gavel {
    client: Client,
    /// The service of this process, without `--server`.
    own: Option<OwnService>,
}

impl Deref for Gavel {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Gavel {
    /// Starts a service for this command. `user` is the user for whom it acts; without one, it sees every user's records.
    ///
    /// # Errors
    /// The service cannot start.
    pub(super) async fn start(
        config: Config,
        work: Work,
        tenant: TenantId,
        user: Option<UserId>,
    ) -> anyhow::Result<Self> {
        let own = OwnService::start(config, work, tenant, user.as_ref()).await?;
        Ok(Self {
            client: Client::of_own(&own, user)?,
            own: Some(own),
        })
    }

    /// A remote gavel.
    ///
    /// # Errors
    /// `server` is not a URL; the key cannot be read.
    pub(super) fn at(server: &str, user: Option<UserId>) -> anyhow::Result<Self> {
        Ok(Self {
            client: Client::new(server, user)?,
            own: None,
        })
    }

    /// Talks to the gavel as `talk` does, and then ends the service of this process. That completes a run in progress,
    /// unless the user interrupted the command: then another gavel continues it.
    ///
    /// # Errors
    /// Those of `talk`.
    pub(super) async fn talk(self, talk: impl AsyncFnOnce(&Self) -> anyhow::Result<Exit>) -> anyhow::Result<Exit> {
        let done = talk(&self).await;
        // Ends its connections.
        drop(self.client);
        if let Some(own) = self.own {
            let detach = matches!(done, Ok(Exit::Interrupted));
            // A second signal ends it at once; then the leases expire.
            unless_stopped(own.close(detach)).await?;
        }
        done
    }

    /// Waits until the MCP servers that an agent needs are connected; a remote gavel has connected its own.
    ///
    /// # Errors
    /// There is no such project; the store is unavailable.
    pub(super) async fn connect_servers_of(&self, project: &ProjectId, agent: &str) -> anyhow::Result<()> {
        match &self.own {
            Some(own) => own.connect_servers_of(project, agent).await,
            None => Ok(()),
        }
    }
}

impl Where {
    /// The gavel of these options; `config` is absent if it is a remote one.
    ///
    /// # Errors
    /// As [`Gavel::start`] and [`Gavel::at`].
    pub(super) async fn gavel(&self, config: Option<Config>, work: Work) -> anyhow::Result<Gavel> {
        let user = self.user.clone();
        match &self.server {
            Some(server) => Gavel::at(server, user),
            None => {
                let config = config.context("there is no configuration")?;
                Gavel::start(config, work, self.tenant.clone(), user).await
            }
        }
    }

    /// The user and tenant that were read, for a message that nothing was found; a remote gavel derives the tenant from
    /// the key.
    pub(super) fn whose_words(&self) -> String {
        let user = self.user.as_ref().map(|user| format!("the user {user}"));
        let tenant = self.server.is_none().then(|| format!("the tenant {}", self.tenant));
        match (user, tenant) {
            (Some(user), Some(tenant)) => format!(" of {user} of {tenant}"),
            (Some(one), None) | (None, Some(one)) => format!(" of {one}"),
            (None, None) => String::new(),
        }
    }

    /// These options for commands that answer: if another gavel uses the database, answers must go through it.
    ///
    /// # Errors
    /// The database cannot be read.
    pub(super) async fn answering(&self, config: Option<&Config>) -> anyhow::Result<Self> {
        let Some(config) = config else {
            return Ok(self.clone());
        };
        if !is_in_use(config).await? {
            return Ok(self.clone());
        }
        Ok(Self {
            // Its address, from the configuration that both share.
            server: Some(format!("http://{}", reachable(config.listen))),
            for_owners: self.user.is_none() && !matches!(config.auth, Auth::Jwt(_)),
            ..self.clone()
        })
    }

    /// These options for a command about a call of `user`.
    pub(super) fn for_call_of(&self, user: Option<&str>) -> Self {
        let owner = user.and_then(|user| UserId::parse(user).ok());
        Self {
            user: self.user.clone().or(owner.filter(|_| self.for_owners)),
            ..self.clone()
        }
    }

    /// The same options, for a command to paste.
    pub(super) fn repeated(&self) -> String {
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

/// Quoted for a POSIX shell.
fn quoted(value: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@=+,%".contains(c);
    if !value.is_empty() && value.chars().all(is_plain) {
        value.to_owned()
    } else {
        format!("'{}'", value.replace('\'', r"'\''"))
    }
}

/// Parses `--tenant`.
pub(super) fn tenant(name: &str) -> Result<TenantId, IdError> {
    TenantId::parse(name)
}

/// Parses `--user`.
pub(super) fn user(name: &str) -> Result<UserId, IdError> {
    UserId::parse(name)
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
