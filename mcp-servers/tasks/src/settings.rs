//! Combines the options; rejects combinations that are unsafe or meaningless.

use anyhow::{Context, bail, ensure};
use gavel_mcp_base::{Secret, UserId, settings};
use gavel_mcp_store::Location;

use crate::args::Args;
use crate::identity::{Identity, Verifier};

/// Consistent options.
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
        let database = Location::parse(WHAT, &database(&args)?)?;
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

/// The database if none is configured.
const DEFAULT_DATABASE: &str = "sqlite://tasks.db";

/// Its name in errors.
const WHAT: &str = "the tasks database";

/// A shorter key can be guessed offline from one token (RFC 7518, section 3.2).
const MIN_SECRET_BYTES: usize = 32;

fn database(args: &Args) -> anyhow::Result<String> {
    let names = (
        "TASKS_DATABASE_URL (--database)",
        "TASKS_DATABASE_URL_FILE (--database-file)",
    );
    let given = settings::either(WHAT, names, args.database.as_deref(), args.database_file.as_deref())?;
    Ok(given.unwrap_or_else(|| DEFAULT_DATABASE.to_owned()))
}

fn stdio(args: &Args) -> anyhow::Result<Wire> {
    ensure!(
        args.insecure_user.is_none(),
        "--insecure-user is for HTTP; over standard input and output use --user NAME"
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
    match (&args.insecure_user, identity_secret(args)?) {
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
            MIN_SECRET_BYTES
        ),
    }
}

fn identity_secret(args: &Args) -> anyhow::Result<Option<Secret>> {
    let secret = match (&args.identity_secret, &args.identity_secret_file) {
        (Some(_), Some(_)) => bail!(
            "the identity secret is given twice; keep one of GAVEL_IDENTITY_SECRET and \
             GAVEL_IDENTITY_SECRET_FILE"
        ),
        (Some(secret), None) => secret.clone(),
        (None, Some(path)) => Secret::new(settings::file("the identity secret", path)?),
        (None, None) => return Ok(None),
    };
    ensure!(
        secret.bytes().len() >= MIN_SECRET_BYTES,
        "the identity secret has {} bytes; at least {} are needed (openssl rand -hex 32 makes one)",
        secret.bytes().len(),
        MIN_SECRET_BYTES
    );
    Ok(Some(secret))
}

fn user(option: &str, name: &str) -> anyhow::Result<UserId> {
    UserId::parse(name)
        .with_context(|| format!("{option} has to be a name of 1 to 512 characters without control characters"))
}
