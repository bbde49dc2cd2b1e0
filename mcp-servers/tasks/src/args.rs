//! Options of the command line, and what they mean together.

use std::path::PathBuf;

use anyhow::{Context, bail, ensure};

use crate::identity::{Identity, UserId, Verifier};
use crate::secret::Secret;
use crate::store::Location;

/// Options of the task server.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Serve MCP over streamable HTTP at this address (path /mcp) instead of standard input and output
    ///
    /// An address with a port, such as 127.0.0.1:8090. Port 0 takes a free one; the log names it.
    /// Needs an identity secret, or --insecure-user.
    #[arg(long, value_name = "ADDR")]
    pub http: Option<String>,

    /// Where tasks are kept: sqlite://PATH or postgres://USER:PASSWORD@HOST/DATABASE
    ///
    /// A SQLite file and its directories are created when missing. sqlite://tasks.db is a path
    /// relative to the current directory, sqlite:///var/lib/tasks.db an absolute one.
    #[arg(
        long,
        value_name = "URL",
        env = "TASKS_DATABASE_URL",
        hide_env_values = true,
        default_value = "sqlite://tasks.db"
    )]
    pub database: String,

    /// The user whose tasks these are when the client names none (stdio only)
    ///
    /// For desktop clients, which know nothing of _meta["gavel/user_id"].
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,

    /// The secret that signs identity tokens, at least 32 bytes (HTTP only)
    ///
    /// Prefer the environment or a file: others can see a command line.
    #[arg(long, value_name = "SECRET", env = "GAVEL_IDENTITY_SECRET", hide_env_values = true)]
    pub identity_secret: Option<Secret>,

    /// A file that holds the identity secret
    #[arg(long, value_name = "PATH", env = "GAVEL_IDENTITY_SECRET_FILE")]
    pub identity_secret_file: Option<PathBuf>,

    /// The audience that an identity token has to name
    #[arg(long, value_name = "NAME", default_value = "tasks")]
    pub audience: String,

    /// Host names under which HTTP clients may reach the server (repeatable, or separated by commas)
    ///
    /// Default: localhost, 127.0.0.1 and ::1. A name without a port allows every port; '*' turns the
    /// check off. It keeps web pages from reaching the server through a user's browser.
    #[arg(
        long = "allowed-host",
        value_name = "HOST",
        env = "TASKS_ALLOWED_HOSTS",
        value_delimiter = ','
    )]
    pub allowed_hosts: Vec<String>,

    /// Serve HTTP to one user without any identity check (loopback addresses only)
    #[arg(long, value_name = "NAME")]
    pub insecure_user: Option<String>,
}

impl Args {
    /// Examples for the end of a help text.
    pub const EXAMPLES: &'static str = "\
Examples:
  One person, from a desktop client (standard input and output):
    gavel-mcp-tasks --user me --database sqlite:///home/me/tasks.db

  Many users, over HTTP; each call carries a signed identity token:
    GAVEL_IDENTITY_SECRET_FILE=/run/secrets/identity \\
      gavel-mcp-tasks --http 0.0.0.0:8090 --allowed-host tasks.internal \\
      --database postgres://tasks@db/tasks

  A try on one's own machine, without identity:
    gavel-mcp-tasks --http 127.0.0.1:8090 --insecure-user me

RUST_LOG sets what is logged to standard error (default: info,rmcp=warn).";
}

impl Default for Args {
    /// What the command line gives when it says nothing and the environment is empty.
    fn default() -> Self {
        Self {
            http: None,
            database: "sqlite://tasks.db".to_owned(),
            user: None,
            identity_secret: None,
            identity_secret_file: None,
            audience: "tasks".to_owned(),
            allowed_hosts: Vec::new(),
            insecure_user: None,
        }
    }
}

/// Options that agree with each other.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) database: Location,
    pub(crate) wire: Wire,
}

#[derive(Debug)]
pub(crate) enum Wire {
    Stdio { user: Option<UserId> },
    Http(HttpSettings),
}

#[derive(Debug)]
pub(crate) struct HttpSettings {
    pub(crate) address: String,
    pub(crate) identity: Identity,
    pub(crate) allowed_hosts: Vec<String>,
}

impl TryFrom<Args> for Settings {
    type Error = anyhow::Error;

    fn try_from(args: Args) -> anyhow::Result<Self> {
        let database = Location::parse(&args.database)?;
        let wire = match &args.http {
            None => stdio(&args)?,
            Some(address) => Wire::Http(HttpSettings {
                address: address.clone(),
                identity: http_identity(&args)?,
                allowed_hosts: args.allowed_hosts,
            }),
        };
        Ok(Self { database, wire })
    }
}

fn stdio(args: &Args) -> anyhow::Result<Wire> {
    ensure!(
        args.insecure_user.is_none(),
        "--insecure-user is for HTTP; over standard input and output say --user NAME"
    );
    let user = args.user.as_deref().map(|name| user("--user", name)).transpose()?;
    Ok(Wire::Stdio { user })
}

fn http_identity(args: &Args) -> anyhow::Result<Identity> {
    ensure!(
        args.user.is_none(),
        "--user is for standard input and output; over HTTP the user comes from a signed identity \
         token (--identity-secret), or for one user on this machine from --insecure-user NAME"
    );
    match (&args.insecure_user, secret(args)?) {
        (Some(_), Some(_)) => bail!(
            "an identity secret and --insecure-user exclude each other: with the secret, users come \
             from signed tokens alone"
        ),
        (Some(name), None) => Ok(Identity::Single(user("--insecure-user", name)?)),
        (None, Some(secret)) => {
            ensure!(!args.audience.trim().is_empty(), "--audience must not be empty");
            Ok(Identity::Signed(Box::new(Verifier::new(&secret, &args.audience))))
        }
        (None, None) => bail!(
            "over HTTP the server has to know its callers: set GAVEL_IDENTITY_SECRET (or \
             GAVEL_IDENTITY_SECRET_FILE) to at least {} bytes, or serve one user on this machine \
             alone with --insecure-user NAME",
            Secret::MIN_BYTES
        ),
    }
}

fn secret(args: &Args) -> anyhow::Result<Option<Secret>> {
    let secret = match (&args.identity_secret, &args.identity_secret_file) {
        (Some(_), Some(_)) => bail!(
            "the identity secret is given twice; keep one of GAVEL_IDENTITY_SECRET and \
             GAVEL_IDENTITY_SECRET_FILE"
        ),
        (Some(secret), None) => secret.clone(),
        (None, Some(path)) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("cannot read the identity secret {}", path.display()))?;
            Secret::new(text.trim_end_matches(['\r', '\n']))
        }
        (None, None) => return Ok(None),
    };
    ensure!(
        secret.bytes().len() >= Secret::MIN_BYTES,
        "the identity secret has {} bytes; at least {} are needed (openssl rand -hex 32 makes one)",
        secret.bytes().len(),
        Secret::MIN_BYTES
    );
    Ok(Some(secret))
}

fn user(option: &str, name: &str) -> anyhow::Result<UserId> {
    UserId::parse(name)
        .with_context(|| format!("{option} has to be a name of 1 to 512 characters without control characters"))
}
