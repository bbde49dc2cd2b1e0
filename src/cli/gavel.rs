//! The gavel that a command talks to: with `--server` a remote one, else a service that the command starts for itself.

use std::ops::Deref;

use anyhow::Context;

pub(super) use crate::app::Work;
use crate::app::{OwnService, reachable};
use crate::cli::client::Client;
use crate::cli::exit::Exit;
use crate::cli::interrupt::{Stopped, unless_stopped};
use crate::config::{Auth, Config};
use crate::domain::ids::{DEFAULT_TENANT, IdError, ProjectId, TenantId, UserId};

/// The options for the place.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Where {
    /// Use a remote gavel, with the key in GAVEL_API_KEY, instead of this configuration
    #[arg(long, value_name = "URL")]
    pub(super) server: Option<String>,
    /// The user to act for [default: local, or the user of the key]. Without it, lists here show every user's
    #[arg(long, value_parser = user, value_name = "NAME")]
    user: Option<UserId>,
    /// The tenant, without --server
    #[arg(long, default_value = "default", value_parser = tenant, value_name = "NAME", conflicts_with = "server")]
    tenant: TenantId,
    /// For suggested commands: add `--user` with the owner of the call, who must answer it.
    #[arg(skip)]
    for_owners: bool,
}

/// The option of commands that read a tenant's records.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct OfTenant {
    /// The tenant
    #[arg(long, default_value = "default", value_parser = tenant, value_name = "NAME")]
    tenant: TenantId,
}

impl From<OfTenant> for Where {
    fn from(of: OfTenant) -> Self {
        Self::of_tenant(&of.tenant, None)
    }
}

/// A command that talks to a gavel: its own options, and those for the place.
#[derive(Debug, clap::Args)]
pub(super) struct At<C: clap::Args, P: clap::Args = Where> {
    #[command(flatten)]
    pub(super) command: C,
    #[command(flatten)]
    pub(super) place: P,
}

/// A gavel: requests go to its [`Client`].
pub(super) struct Gavel {
    client: Client,
    /// The options that name it.
    pub(super) place: Where,
    /// The service of this process, without `--server`.
    own: Option<OwnService>,
}

impl Deref for Gavel {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// What a command says to a gavel.
pub(super) trait Talk {
    /// What it needs a service of its own for.
    const WORK: Work = Work::Read;

    /// What the command does before a service of its own starts.
    async fn before(&self, _config: &Config) -> anyhow::Result<()> {
        Ok(())
    }

    /// Talks to the gavel.
    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit>;
}

/// Runs a command. At the end the service of this process completes a run in progress, unless the user interrupted the
/// command: then another gavel continues it. `config` is absent if a remote gavel is used.
///
/// # Errors
/// `--server` is not a URL; the service cannot start; those of the command.
pub(super) async fn run<C: Talk>(command: &C, place: Where, config: Option<Config>) -> anyhow::Result<Exit> {
    let gavel = Gavel::open(command, place, config).await?;
    let done = command.talk(&gavel).await;
    // Ends its connections.
    drop(gavel.client);
    if let Some(own) = gavel.own {
        let detach = match &done {
            Ok(exit) => *exit == Exit::Interrupted,
            Err(error) => error.is::<Stopped>(),
        };
        // A second signal ends it at once; then the leases expire.
        unless_stopped(own.close(detach)).await?;
    }
    done
}

impl Gavel {
    async fn open<C: Talk>(command: &C, place: Where, config: Option<Config>) -> anyhow::Result<Self> {
        let user = place.user.clone();
        if let Some(server) = &place.server {
            return Ok(Self {
                client: Client::new(server, user)?,
                place,
                own: None,
            });
        }
        let config = config.context("there is no configuration")?;
        command.before(&config).await?;
        let own = OwnService::start(config, C::WORK, place.tenant.clone(), user.as_ref()).await?;
        Ok(Self {
            client: Client::of_own(&own, user)?,
            place,
            own: Some(own),
        })
    }

    /// A command with the same options for the place, to paste: `runs watch` becomes `gavel runs watch --user ann`.
    pub(super) fn command(&self, name: &str) -> String {
        format!("gavel {name}{}", self.place.repeated())
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

    /// The options for commands that answer: if another gavel uses the database that this one only reads, answers must
    /// go through it.
    ///
    /// # Errors
    /// The database cannot be read.
    pub(super) async fn answering(&self) -> anyhow::Result<Where> {
        let Some(own) = &self.own else {
            return Ok(self.place.clone());
        };
        let Some(other) = own.running_process().await? else {
            return Ok(self.place.clone());
        };
        let config = &own.app().config;
        let here = || format!("http://{}", reachable(config.listen));
        Ok(Where {
            server: Some(other.url.unwrap_or_else(here)),
            for_owners: self.place.user.is_none() && names_users(&config.auth),
            ..self.place.clone()
        })
    }
}

impl Where {
    /// A tenant of this configuration, or a remote gavel, for commands that act for no user or name it in the request.
    pub(super) fn of_tenant(tenant: &TenantId, server: Option<&String>) -> Self {
        Self {
            server: server.cloned(),
            user: None,
            tenant: tenant.clone(),
            for_owners: false,
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
            (None, None) => {
                " for the key in GAVEL_API_KEY (without a key: for the user local); --user NAME for another user"
                    .to_owned()
            }
        }
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

/// Whether callers name the user that they act for. A key of one user, or a token, says it already.
fn names_users(auth: &Auth) -> bool {
    match auth {
        Auth::None => true,
        Auth::ApiKeys(keys) => keys.iter().all(|key| key.user.is_none()),
        Auth::Jwt(_) => false,
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
    use secrecy::ExposeSecret;

    use super::*;
    use crate::config::Sources;

    #[test]
    fn a_command_to_paste_keeps_its_options_whatever_they_hold() {
        let tenant = TenantId::parse("default").unwrap();
        let place = Where {
            user: Some(UserId::parse("ann's; rm -rf").unwrap()),
            ..Where::of_tenant(&tenant, Some(&"http://localhost:8080".to_owned()))
        };
        assert_eq!(
            place.repeated(),
            r" --server http://localhost:8080 --user 'ann'\''s; rm -rf'"
        );
    }

    /// Other users of the machine can reach its port, so every request needs the key, and only the API is served.
    #[tokio::test(flavor = "multi_thread")]
    async fn the_service_of_a_command_answers_its_key_alone() {
        // Another test may already have installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let directory = tempfile::tempdir().unwrap();
        let servers = directory.path().join("mcp.json");
        std::fs::write(&servers, r#"{"mcpServers": {}}"#).unwrap();
        let own = |name: &str, value: String| (name.to_owned(), value);
        let environment = [
            own(
                "DATABASE_URL",
                format!("sqlite:{}", directory.path().join("g.db").display()),
            ),
            own("GAVEL_MCP_CONFIG", servers.display().to_string()),
        ];
        let sources = Sources {
            flags: Default::default(),
            environment: environment.into(),
            dotenv: Default::default(),
            file: None,
            read_file: &|path| std::fs::read_to_string(path),
        };
        let config = Config::resolve(sources).unwrap().config;
        let tenant = TenantId::parse("default").unwrap();
        let service = OwnService::start(config, Work::Act, tenant, None).await.unwrap();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let key = service.key().expose_secret();
        let threads = "/api/agent/threads";
        for (path, key, status) in [
            (threads, Some(key), 200),
            (threads, None, 401),
            (threads, Some("gavel-another"), 401),
            ("/v1/decisions", None, 401),
            ("/livez", None, 401),
            ("/metrics", None, 401),
            ("/console/login", None, 401),
            ("/docs", None, 401),
            ("/", None, 401),
            ("/metrics", Some(key), 404),
        ] {
            let mut request = http.get(format!("{}{path}", service.url()));
            if let Some(key) = key {
                request = request.bearer_auth(key);
            }
            let answer = request.send().await.unwrap();
            assert_eq!(answer.status(), status, "{path}, with a key: {}", key.is_some());
        }
        drop(http);
        service.close(false).await;
    }
}
