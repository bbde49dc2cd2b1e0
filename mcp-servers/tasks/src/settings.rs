//! What the options mean together; a combination that would be unsafe or senseless is refused.

use std::path::Path;

use anyhow::{Context, bail, ensure};

use crate::args::Args;
use crate::identity::{Identity, UserId, Verifier};
use crate::secret::Secret;
use crate::store::Location;

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
        let database = Location::parse(&database(&args)?)?;
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

/// Where tasks are kept when nothing is said.
const DEFAULT_DATABASE: &str = "sqlite://tasks.db";

/// An empty variable is not given: `mcp.json` hands on both, whichever is set.
fn database(args: &Args) -> anyhow::Result<String> {
    let url = args.database.as_deref().filter(|url| !url.is_empty());
    let file = args.database_file.as_deref().filter(|path| !path.is_empty());
    match (url, file) {
        (Some(_), Some(_)) => bail!(
            "the tasks database is given twice; keep one of TASKS_DATABASE_URL (--database) and \
             TASKS_DATABASE_URL_FILE (--database-file)"
        ),
        (Some(url), None) => Ok(url.to_owned()),
        (None, Some(path)) => secret_file("the URL of the tasks database", Path::new(path)),
        (None, None) => Ok(DEFAULT_DATABASE.to_owned()),
    }
}

/// What a file holds, without the newline at its end.
fn secret_file(what: &str, path: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {what}, {}", path.display()))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
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
        (None, Some(path)) => Secret::new(secret_file("the identity secret", path)?),
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
