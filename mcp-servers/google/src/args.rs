//! Command line options. Numbers and addresses are text here, since an empty variable counts as unset: `mcp.json`
//! passes on every variable.

use std::ffi::OsString;

use gavel_mcp_base::Secret;

/// Options of the Google server.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Args {
    /// The user if the client names none
    ///
    /// For desktop clients, which do not support _meta["gavel/user_id"].
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,

    /// The database for connections and idempotency keys: sqlite://PATH or postgres://USER:PASSWORD@HOST/DATABASE
    ///
    /// A missing SQLite file and its directories are created. The default is sqlite://google.db, in the current
    /// directory.
    #[arg(long, value_name = "URL", env = "GOOGLE_DATABASE_URL", hide_env_values = true)]
    pub database: Option<String>,

    /// A file with the URL of the database, which may contain a password
    #[arg(long, value_name = "PATH", env = "GOOGLE_DATABASE_URL_FILE")]
    pub database_file: Option<OsString>,

    /// The id of your OAuth client, from the Google Cloud console
    #[arg(long, value_name = "ID", env = "GOOGLE_CLIENT_ID")]
    pub client_id: Option<String>,

    /// The secret of your OAuth client
    ///
    /// Prefer the environment or a file: other users of the machine can see a command line.
    #[arg(long, value_name = "SECRET", env = "GOOGLE_CLIENT_SECRET", hide_env_values = true)]
    pub client_secret: Option<Secret>,

    /// A file with the secret of your OAuth client
    #[arg(long, value_name = "PATH", env = "GOOGLE_CLIENT_SECRET_FILE")]
    pub client_secret_file: Option<OsString>,

    /// The key that seals refresh tokens: 32 bytes in base64 or hex (openssl rand -base64 32 makes one)
    ///
    /// Several keys, separated by commas or white space: the first seals, all open. To change the key, put a new one
    /// first; remove the old one after every user's token has been used once.
    #[arg(long, value_name = "KEYS", env = "GOOGLE_TOKEN_KEY", hide_env_values = true)]
    pub token_key: Option<Secret>,

    /// A file with the keys
    #[arg(long, value_name = "PATH", env = "GOOGLE_TOKEN_KEY_FILE")]
    pub token_key_file: Option<OsString>,

    /// The key file of a service account with domain-wide delegation, instead of an OAuth client
    ///
    /// It acts as the user: a user's id must then be an e-mail address of your domain, or be mapped to one.
    #[arg(long, value_name = "PATH", env = "GOOGLE_SERVICE_ACCOUNT_FILE")]
    pub service_account_file: Option<OsString>,

    /// A JSON file that maps users' ids to e-mail addresses: {"anna": "anna@example.com"}
    ///
    /// With it, the service account acts only for the users in this file.
    #[arg(long, value_name = "PATH", env = "GOOGLE_SERVICE_ACCOUNT_USERS_FILE")]
    pub service_account_users_file: Option<OsString>,

    /// Scopes to request, separated by spaces [default: gmail.send, gmail.readonly, calendar.events and the account's
    /// address]
    ///
    /// Without a scope that can read the mailbox, replies are not possible, and an e-mail whose sending is uncertain
    /// stays in doubt.
    #[arg(long, value_name = "SCOPES", env = "GOOGLE_SCOPES")]
    pub scopes: Option<String>,

    /// The most recipients or attendees of one call [default: 50]
    #[arg(long, value_name = "N", env = "GOOGLE_MAX_RECIPIENTS")]
    pub max_recipients: Option<String>,

    /// The longest e-mail in bytes, as sent [default: 5242880]
    #[arg(long, value_name = "BYTES", env = "GOOGLE_MAX_MESSAGE_BYTES")]
    pub max_message_bytes: Option<String>,

    /// How long one call may take [default: 25]
    #[arg(long, value_name = "SECONDS", env = "GOOGLE_TIMEOUT_SECONDS")]
    pub timeout_seconds: Option<String>,

    /// How long after an attempt an e-mail that is not in the mailbox counts as not sent [default: 120]
    #[arg(long, value_name = "SECONDS", env = "GOOGLE_SETTLE_SECONDS")]
    pub settle_seconds: Option<String>,

    /// The base URL of the Gmail API [default: https://gmail.googleapis.com]
    #[arg(long, value_name = "URL", env = "GOOGLE_GMAIL_URL")]
    pub gmail_url: Option<String>,

    /// The base URL of the Calendar API [default: https://www.googleapis.com/calendar/v3]
    #[arg(long, value_name = "URL", env = "GOOGLE_CALENDAR_URL")]
    pub calendar_url: Option<String>,

    /// The token endpoint [default: https://oauth2.googleapis.com/token]
    #[arg(long, value_name = "URL", env = "GOOGLE_TOKEN_URL")]
    pub token_url: Option<String>,

    /// The page where users consent [default: https://accounts.google.com/o/oauth2/v2/auth]
    #[arg(long, value_name = "URL", env = "GOOGLE_AUTH_URL")]
    pub auth_url: Option<String>,

    /// Where Google sends users back after the consent: the route /oauth/google/callback of `gavel serve`, as browsers
    /// reach it, such as https://gavel.example/oauth/google/callback
    ///
    /// Without it, `gavel google connect` listens on this machine.
    #[arg(long, value_name = "URL", env = "GOOGLE_CALLBACK_URL")]
    pub callback_url: Option<String>,

    /// A page of yours for users who must connect their account
    ///
    /// Without it, the error says that the operator runs `gavel google connect`.
    #[arg(long, value_name = "URL", env = "GOOGLE_CONNECT_URL")]
    pub connect_url: Option<String>,

    /// The endpoint that revokes a consent [default: https://oauth2.googleapis.com/revoke]
    #[arg(long, value_name = "URL", env = "GOOGLE_REVOKE_URL")]
    pub revoke_url: Option<String>,
}

impl Args {
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
