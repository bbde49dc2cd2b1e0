//! Options of the command line. Numbers and addresses are texts here, since an empty variable is not given: `mcp.json`
//! hands on every one.

use std::ffi::OsString;

use gavel_mcp_base::Secret;

/// Options of the Google server.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Args {
    /// The user whose account it is when the client names none
    ///
    /// For desktop clients, which know nothing of _meta["gavel/user_id"].
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,

    /// Where connections and idempotency keys are kept: sqlite://PATH or postgres://USER:PASSWORD@HOST/DATABASE
    ///
    /// A SQLite file and its directories are created when missing. The default is sqlite://google.db, in the current directory.
    #[arg(long, value_name = "URL", env = "GOOGLE_DATABASE_URL", hide_env_values = true)]
    pub database: Option<String>,

    /// A file that holds the URL of the database, which may carry a password
    #[arg(long, value_name = "PATH", env = "GOOGLE_DATABASE_URL_FILE")]
    pub database_file: Option<OsString>,

    /// The id of your OAuth client, from the Google Cloud console
    #[arg(long, value_name = "ID", env = "GOOGLE_CLIENT_ID")]
    pub client_id: Option<String>,

    /// The secret of your OAuth client
    ///
    /// Prefer the environment or a file: others can see a command line.
    #[arg(long, value_name = "SECRET", env = "GOOGLE_CLIENT_SECRET", hide_env_values = true)]
    pub client_secret: Option<Secret>,

    /// A file that holds the secret of your OAuth client
    #[arg(long, value_name = "PATH", env = "GOOGLE_CLIENT_SECRET_FILE")]
    pub client_secret_file: Option<OsString>,

    /// The key that refresh tokens are sealed with: 32 bytes in base64 or hex (openssl rand -base64 32 makes one)
    ///
    /// Several, separated by commas or white space: the first seals, all open. So a key is changed by putting a new one in
    /// front; the old one can go when everybody has been served once.
    #[arg(long, value_name = "KEYS", env = "GOOGLE_TOKEN_KEY", hide_env_values = true)]
    pub token_key: Option<Secret>,

    /// A file that holds the keys
    #[arg(long, value_name = "PATH", env = "GOOGLE_TOKEN_KEY_FILE")]
    pub token_key_file: Option<OsString>,

    /// The key file of a service account with domain-wide delegation, in place of an OAuth client
    ///
    /// It acts as the user: a user's id has to be an e-mail address of your domain then, or be mapped to one.
    #[arg(long, value_name = "PATH", env = "GOOGLE_SERVICE_ACCOUNT_FILE")]
    pub service_account_file: Option<OsString>,

    /// A JSON file that maps users' ids to e-mail addresses: {"anna": "anna@example.com"}
    ///
    /// With it the service account acts for the users in it and for nobody else.
    #[arg(long, value_name = "PATH", env = "GOOGLE_SERVICE_ACCOUNT_USERS_FILE")]
    pub service_account_users_file: Option<OsString>,

    /// Scopes to ask for, separated by spaces [default: gmail.send, gmail.readonly, calendar.events and the account's address]
    ///
    /// Without a scope that may read the mailbox there are no replies, and an e-mail of which it is not known whether it was
    /// sent stays in doubt.
    #[arg(long, value_name = "SCOPES", env = "GOOGLE_SCOPES")]
    pub scopes: Option<String>,

    /// The most recipients or attendees of one call [default: 50]
    #[arg(long, value_name = "N", env = "GOOGLE_MAX_RECIPIENTS")]
    pub max_recipients: Option<String>,

    /// The longest e-mail in bytes, as it is sent [default: 5242880]
    #[arg(long, value_name = "BYTES", env = "GOOGLE_MAX_MESSAGE_BYTES")]
    pub max_message_bytes: Option<String>,

    /// How long one call may take [default: 25]
    #[arg(long, value_name = "SECONDS", env = "GOOGLE_TIMEOUT_SECONDS")]
    pub timeout_seconds: Option<String>,

    /// How long after an attempt an e-mail that is not in the mailbox counts as not sent [default: 120]
    #[arg(long, value_name = "SECONDS", env = "GOOGLE_SETTLE_SECONDS")]
    pub settle_seconds: Option<String>,

    /// Where Gmail's API is [default: https://gmail.googleapis.com]
    #[arg(long, value_name = "URL", env = "GOOGLE_GMAIL_URL")]
    pub gmail_url: Option<String>,

    /// Where Calendar's API is [default: https://www.googleapis.com/calendar/v3]
    #[arg(long, value_name = "URL", env = "GOOGLE_CALENDAR_URL")]
    pub calendar_url: Option<String>,

    /// Where tokens are got [default: https://oauth2.googleapis.com/token]
    #[arg(long, value_name = "URL", env = "GOOGLE_TOKEN_URL")]
    pub token_url: Option<String>,

    /// Where people consent [default: https://accounts.google.com/o/oauth2/v2/auth]
    #[arg(long, value_name = "URL", env = "GOOGLE_AUTH_URL")]
    pub auth_url: Option<String>,

    /// Where Google sends people back to who connect their account: the route /oauth/google/callback of `gavel serve`, as
    /// browsers reach it, such as https://gavel.example/oauth/google/callback
    ///
    /// Without it `gavel google connect` listens itself, on this machine.
    #[arg(long, value_name = "URL", env = "GOOGLE_CALLBACK_URL")]
    pub callback_url: Option<String>,

    /// Where users are sent who have to connect their account: a page of yours that says how
    ///
    /// Without it they are told that the operator runs `gavel google connect`.
    #[arg(long, value_name = "URL", env = "GOOGLE_CONNECT_URL")]
    pub connect_url: Option<String>,

    /// Where a consent is taken back [default: https://oauth2.googleapis.com/revoke]
    #[arg(long, value_name = "URL", env = "GOOGLE_REVOKE_URL")]
    pub revoke_url: Option<String>,
}

impl Args {
    /// The settings of a server that is started with these variables and without options: `gavel google` and the callback
    /// route read them where the server gets them.
    pub fn from_variables(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        Self {
            user: None,
            database: variable("GOOGLE_DATABASE_URL"),
            database_file: variable("GOOGLE_DATABASE_URL_FILE").map(OsString::from),
            client_id: variable("GOOGLE_CLIENT_ID"),
            client_secret: variable("GOOGLE_CLIENT_SECRET").map(Secret::new),
            client_secret_file: variable("GOOGLE_CLIENT_SECRET_FILE").map(OsString::from),
            token_key: variable("GOOGLE_TOKEN_KEY").map(Secret::new),
            token_key_file: variable("GOOGLE_TOKEN_KEY_FILE").map(OsString::from),
            service_account_file: variable("GOOGLE_SERVICE_ACCOUNT_FILE").map(OsString::from),
            service_account_users_file: variable("GOOGLE_SERVICE_ACCOUNT_USERS_FILE").map(OsString::from),
            scopes: variable("GOOGLE_SCOPES"),
            max_recipients: variable("GOOGLE_MAX_RECIPIENTS"),
            max_message_bytes: variable("GOOGLE_MAX_MESSAGE_BYTES"),
            timeout_seconds: variable("GOOGLE_TIMEOUT_SECONDS"),
            settle_seconds: variable("GOOGLE_SETTLE_SECONDS"),
            gmail_url: variable("GOOGLE_GMAIL_URL"),
            calendar_url: variable("GOOGLE_CALENDAR_URL"),
            token_url: variable("GOOGLE_TOKEN_URL"),
            auth_url: variable("GOOGLE_AUTH_URL"),
            callback_url: variable("GOOGLE_CALLBACK_URL"),
            connect_url: variable("GOOGLE_CONNECT_URL"),
            revoke_url: variable("GOOGLE_REVOKE_URL"),
        }
    }

    /// Examples for the end of a help text.
    pub const EXAMPLES: &'static str = "\
Examples:
  Users who connect their own accounts (OAuth):
    export GOOGLE_CLIENT_ID=….apps.googleusercontent.com
    export GOOGLE_CLIENT_SECRET_FILE=/run/secrets/google_client_secret
    export GOOGLE_TOKEN_KEY_FILE=/run/secrets/google_token_key   # openssl rand -base64 32
    gavel-mcp-google --database sqlite:///var/lib/google.db

  A whole Workspace domain, by a service account with domain-wide delegation:
    GOOGLE_SERVICE_ACCOUNT_FILE=/run/secrets/account.json gavel-mcp-google

Every setting is read from the environment too; secrets also from NAME_FILE. The client names the user in \
_meta[\"gavel/user_id\"]. RUST_LOG sets what is logged to standard error (default: info,rmcp=warn).";
}
