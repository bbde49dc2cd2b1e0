//! Combines the options; rejects combinations that are unsafe or meaningless.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use gavel_mcp_base::settings::{self, given};
use gavel_mcp_base::{Secret, ServiceAccount, UserId};
use gavel_mcp_store::Location;
use url::Url;

use crate::address;
use crate::args::Args;
use crate::sealing::Sealer;

/// Consistent settings.
#[derive(Debug, Clone)]
pub struct Settings {
    pub(crate) user: Option<UserId>,
    pub(crate) database: Location,
    pub(crate) credentials: Credentials,
    pub(crate) scopes: Vec<String>,
    pub(crate) places: Places,
    pub(crate) limits: Limits,
    /// Where Google sends users back.
    pub(crate) callback: Option<Url>,
    /// The page for users who must connect.
    pub(crate) connect_page: Option<Url>,
}

impl Settings {
    /// Does Google send users back to a callback route?
    pub fn takes_callbacks(&self) -> bool {
        self.callback().is_some()
    }

    /// The address of the callback route, if there is one.
    pub fn callback(&self) -> Option<&Url> {
        let callback = self.callback.as_ref();
        callback.filter(|_| matches!(self.credentials, Credentials::Client(_)))
    }

    /// The file of its SQLite database; `None` for PostgreSQL.
    pub fn database_file(&self) -> Option<&Path> {
        match &self.database {
            Location::Sqlite(options) => Some(options.get_filename()),
            Location::Postgres(_) => None,
        }
    }
}

/// How access tokens are obtained.
#[derive(Debug, Clone)]
pub(crate) enum Credentials {
    /// Each user has connected an account.
    Client(OAuthClient),
    /// One key acts for all users of a domain.
    ServiceAccount {
        account: ServiceAccount,
        /// The users it acts for; `None`: every user whose id is an address.
        users: Option<HashMap<String, String>>,
    },
}

#[derive(Debug, Clone)]
pub(crate) struct OAuthClient {
    pub(crate) id: String,
    pub(crate) secret: Secret,
    pub(crate) sealer: Sealer,
}

/// Google's addresses.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    pub(crate) gmail: Url,
    pub(crate) calendar: Url,
    pub(crate) token: Url,
    pub(crate) auth: Url,
    pub(crate) revoke: Url,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) recipients: usize,
    pub(crate) message_bytes: usize,
    pub(crate) timeout: Duration,
    pub(crate) settle: Duration,
}

const SCOPES: [&str; 5] = [
    "openid",
    "https://www.googleapis.com/auth/userinfo.email",
    "https://www.googleapis.com/auth/gmail.send",
    "https://www.googleapis.com/auth/gmail.readonly",
    "https://www.googleapis.com/auth/calendar.events",
];

/// The part of a call's time that is reserved after Google's share, for storing the answer.
pub(crate) const RESERVE: Duration = Duration::from_secs(5);

/// Scopes for the user's profile; a service account needs none of them.
pub(crate) const PROFILE: [&str; 3] = ["openid", "email", "https://www.googleapis.com/auth/userinfo.email"];

impl TryFrom<Args> for Settings {
    type Error = anyhow::Error;

    fn try_from(args: Args) -> anyhow::Result<Self> {
        let credentials = credentials(&args)?;
        let timeout = seconds("GOOGLE_TIMEOUT_SECONDS", &args.timeout_seconds, 25, 1..=600)?;
        let settle = seconds("GOOGLE_SETTLE_SECONDS", &args.settle_seconds, 120, 1..=86_400)?;
        // While a call may still run, a message that is not in the mailbox may still appear.
        ensure!(
            settle > timeout + RESERVE,
            "GOOGLE_SETTLE_SECONDS ({}) must be more than GOOGLE_TIMEOUT_SECONDS and {} s: a call may take that long, and an e-mail \
             that is still on its way must not count as not sent",
            settle.as_secs(),
            RESERVE.as_secs()
        );
        Ok(Self {
            user: settings::user("--user", &args.user)?,
            database: Location::configured("google", &args.database, &args.database_file)?,
            scopes: scopes(&args.scopes, &credentials)?,
            callback: optional("GOOGLE_CALLBACK_URL", &args.callback_url)?,
            connect_page: optional("GOOGLE_CONNECT_URL", &args.connect_url)?,
            credentials,
            places: Places {
                gmail: place("GOOGLE_GMAIL_URL", &args.gmail_url, "https://gmail.googleapis.com")?,
                calendar: place(
                    "GOOGLE_CALENDAR_URL",
                    &args.calendar_url,
                    "https://www.googleapis.com/calendar/v3",
                )?,
                token: place(
                    "GOOGLE_TOKEN_URL",
                    &args.token_url,
                    "https://oauth2.googleapis.com/token",
                )?,
                auth: place(
                    "GOOGLE_AUTH_URL",
                    &args.auth_url,
                    "https://accounts.google.com/o/oauth2/v2/auth",
                )?,
                revoke: place(
                    "GOOGLE_REVOKE_URL",
                    &args.revoke_url,
                    "https://oauth2.googleapis.com/revoke",
                )?,
            },
            limits: Limits {
                recipients: settings::number("GOOGLE_MAX_RECIPIENTS", &args.max_recipients, 50, 1..=2000)?,
                // Gmail itself accepts 35 MiB.
                message_bytes: settings::number(
                    "GOOGLE_MAX_MESSAGE_BYTES",
                    &args.max_message_bytes,
                    5 << 20,
                    1024..=35 << 20,
                )?,
                timeout,
                settle,
            },
        })
    }
}

fn credentials(args: &Args) -> anyhow::Result<Credentials> {
    let account = settings::path(&args.service_account_file);
    match (given(&args.client_id), account) {
        (Some(_), Some(_)) => bail!(
            "GOOGLE_CLIENT_ID and GOOGLE_SERVICE_ACCOUNT_FILE exclude each other: either users connect their own accounts, \
             or a service account acts for them"
        ),
        (Some(id), None) => client(id, args).map(Credentials::Client),
        (None, Some(path)) => {
            let users = settings::path(&args.service_account_users_file);
            Ok(Credentials::ServiceAccount {
                account: ServiceAccount::read("GOOGLE_SERVICE_ACCOUNT_FILE", path)?,
                users: users.map(users_file).transpose()?,
            })
        }
        (None, None) => bail!(
            "no credentials: set GOOGLE_CLIENT_ID, GOOGLE_CLIENT_SECRET and GOOGLE_TOKEN_KEY (users connect their own \
             accounts), or GOOGLE_SERVICE_ACCOUNT_FILE (a service account with domain-wide delegation)"
        ),
    }
}

fn client(id: &str, args: &Args) -> anyhow::Result<OAuthClient> {
    ensure!(
        settings::path(&args.service_account_users_file).is_none(),
        "GOOGLE_SERVICE_ACCOUNT_USERS_FILE is for a service account, but GOOGLE_CLIENT_ID is set"
    );
    let (value, path) = (&args.client_secret, &args.client_secret_file);
    let secret = settings::secret("the secret of the OAuth client", "GOOGLE_CLIENT_SECRET", value, path)?
        .context("GOOGLE_CLIENT_ID is set, so GOOGLE_CLIENT_SECRET (or GOOGLE_CLIENT_SECRET_FILE) must be set too")?;
    let keys = settings::secret(
        "the key of the tokens",
        "GOOGLE_TOKEN_KEY",
        &args.token_key,
        &args.token_key_file,
    )?
    .context(
        "GOOGLE_CLIENT_ID is set, so GOOGLE_TOKEN_KEY (or GOOGLE_TOKEN_KEY_FILE) must be set too: refresh tokens are \
             not stored unsealed (openssl rand -base64 32 makes a key)",
    )?;
    Ok(OAuthClient {
        id: id.to_owned(),
        secret,
        sealer: Sealer::parse(keys.expose()).context("GOOGLE_TOKEN_KEY")?,
    })
}

fn users_file(path: &Path) -> anyhow::Result<HashMap<String, String>> {
    const WHAT: &str = "GOOGLE_SERVICE_ACCOUNT_USERS_FILE";
    let text = settings::file(WHAT, path)?;
    let users: HashMap<String, String> = serde_json::from_str(&text)
        .with_context(|| format!("{WHAT} must be a JSON object of users' ids and e-mail addresses"))?;
    for (user, mailbox) in &users {
        ensure!(
            address::is_bare(mailbox),
            "{WHAT}: `{}` is mapped to something that is not an e-mail address",
            user.escape_debug()
        );
    }
    Ok(users)
}

fn scopes(text: &Option<String>, credentials: &Credentials) -> anyhow::Result<Vec<String>> {
    let scopes: Vec<String> = match given(text) {
        Some(text) => text.split_ascii_whitespace().map(str::to_owned).collect(),
        None => SCOPES.map(str::to_owned).to_vec(),
    };
    Ok(match credentials {
        Credentials::Client(_) => scopes,
        Credentials::ServiceAccount { .. } => {
            let useful = scopes.into_iter().filter(|scope| !PROFILE.contains(&scope.as_str()));
            useful.collect()
        }
    })
}

fn place(name: &str, text: &Option<String>, default: &str) -> anyhow::Result<Url> {
    settings::address(name, given(text).unwrap_or(default), default)
}

/// An optional address for users.
fn optional(name: &str, text: &Option<String>) -> anyhow::Result<Option<Url>> {
    match given(text) {
        Some(_) => place(name, text, "https://gavel.example/page").map(Some),
        None => Ok(None),
    }
}

fn seconds(name: &str, text: &Option<String>, unset: u64, allowed: RangeInclusive<u64>) -> anyhow::Result<Duration> {
    settings::number(name, text, unset, allowed).map(Duration::from_secs)
}
