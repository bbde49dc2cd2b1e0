//! Combines the options; rejects combinations that are unsafe or meaningless.

use anyhow::{bail, ensure};
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
        let database = Location::configured("tasks", &args.database, &args.database_file)?;
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

/// A shorter key can be guessed offline from one token (RFC 7518, section 3.2).
const MIN_SECRET_BYTES: usize = 32;

fn stdio(args: &Args) -> anyhow::Result<Wire> {
    ensure!(
        args.insecure_user.is_none(),
        "--insecure-user is for HTTP; over standard input and output use --user NAME"
    );
    let user = settings::user("--user", &args.user)?;
    Ok(Wire::Stdio { user })
}

fn http_identity(args: &Args) -> anyhow::Result<Identity> {
    ensure!(
        args.user.is_none(),
        "--user is for standard input and output; over HTTP the user comes from a signed identity \
         token (--identity-secret), or for one user on this machine from --insecure-user NAME"
    );
    match (
        settings::user("--insecure-user", &args.insecure_user)?,
        identity_secret(args)?,
    ) {
        (Some(_), Some(_)) => bail!(
            "an identity secret and --insecure-user exclude each other: with the secret, users come \
             from signed tokens alone"
        ),
        (Some(user), None) => Ok(Identity::Single(user)),
        (None, Some(secret)) => {
            let audience = settings::given(&args.audience).unwrap_or("tasks");
            Ok(Identity::Signed(Box::new(Verifier::new(&secret, audience))))
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
    let (value, path) = (&args.identity_secret, &args.identity_secret_file);
    let Some(secret) = settings::secret("the identity secret", "GAVEL_IDENTITY_SECRET", value, path)? else {
        return Ok(None);
    };
    ensure!(
        secret.bytes().len() >= MIN_SECRET_BYTES,
        "the identity secret has {} bytes; at least {} are needed (openssl rand -hex 32 makes one)",
        secret.bytes().len(),
        MIN_SECRET_BYTES
    );
    Ok(Some(secret))
}
