//! Command line options. Numbers and addresses are text here, since an empty variable counts as unset: `mcp.json`
//! passes on every variable.

use std::ffi::OsString;

use gavel_mcp_base::Secret;

/// Options of the GitHub server.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Args {
    /// A personal access token, or a token of an installation
    ///
    /// Prefer the environment or a file: other users of the machine can see a command line.
    #[arg(long, value_name = "TOKEN", env = "GITHUB_TOKEN", hide_env_values = true)]
    pub token: Option<Secret>,

    /// A file with the token
    #[arg(long, value_name = "PATH", env = "GITHUB_TOKEN_FILE")]
    pub token_file: Option<OsString>,

    /// The id of a GitHub App, instead of a token
    #[arg(long, value_name = "ID", env = "GITHUB_APP_ID")]
    pub app_id: Option<String>,

    /// The private key of the App, in PEM form
    #[arg(long, value_name = "PEM", env = "GITHUB_APP_PRIVATE_KEY", hide_env_values = true)]
    pub app_private_key: Option<Secret>,

    /// A file with the private key of the App
    #[arg(long, value_name = "PATH", env = "GITHUB_APP_PRIVATE_KEY_FILE")]
    pub app_private_key_file: Option<OsString>,

    /// The id of the App's installation
    #[arg(long, value_name = "ID", env = "GITHUB_APP_INSTALLATION_ID")]
    pub app_installation_id: Option<String>,

    /// The base URL of the REST API [default: that of GITHUB_URL]
    #[arg(long, value_name = "URL", env = "GITHUB_API_URL")]
    pub api_url: Option<String>,

    /// GitHub's address in a browser [default: https://github.com]
    ///
    /// For GitHub Enterprise: https://github.example.com, whose API is https://github.example.com/api/v3.
    #[arg(long, value_name = "URL", env = "GITHUB_URL")]
    pub url: Option<String>,

    /// The socket of the container engine, for configureGitClientInContainer
    ///
    /// The same as that of the Docker server: unix:///var/run/docker.sock. Without it the tool is not offered.
    #[arg(long, value_name = "SOCKET", env = "DOCKER_HOST")]
    pub docker_host: Option<String>,

    /// The author of commits in containers [default: gavel]
    #[arg(long, value_name = "NAME", env = "GITHUB_COMMIT_NAME")]
    pub commit_name: Option<String>,

    /// The author's e-mail address [default: gavel@gavel.invalid]
    #[arg(long, value_name = "ADDRESS", env = "GITHUB_COMMIT_EMAIL")]
    pub commit_email: Option<String>,

    /// How long one call may take [default: 30]
    #[arg(long, value_name = "SECONDS", env = "GITHUB_TIMEOUT_SECONDS")]
    pub timeout_seconds: Option<String>,
}

impl Args {
    /// Examples for the end of a help text.
    pub const EXAMPLES: &'static str = "\
Examples:
  With a fine-grained personal access token:
    export GITHUB_TOKEN_FILE=/run/secrets/github_token
    gavel-mcp-github

  As a GitHub App:
    export GITHUB_APP_ID=123456 GITHUB_APP_INSTALLATION_ID=7890123
    export GITHUB_APP_PRIVATE_KEY_FILE=/run/secrets/github_app.pem
    gavel-mcp-github

Every setting is read from the environment too; secrets also from NAME_FILE. RUST_LOG sets what is logged to standard \
error (default: info,rmcp=warn).";
}
