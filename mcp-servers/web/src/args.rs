//! Command line options. All are text here, since an empty variable counts as unset: `mcp.json` passes on every
//! variable.

use std::ffi::OsString;

use gavel_mcp_base::Secret;

/// Options of the web server.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Args {
    /// The only hosts that are requested [default: all]
    ///
    /// Separated by commas: example.com is this host, *.example.com are its subdomains, * is every public host.
    #[arg(long, value_name = "HOSTS", env = "WEB_ALLOW")]
    pub allow: Option<String>,

    /// Hosts that are not requested
    #[arg(long, value_name = "HOSTS", env = "WEB_DENY")]
    pub deny: Option<String>,

    /// Hosts with ports that are requested even if their addresses are private
    ///
    /// Separated by commas, such as intranet.example:443. Every agent with these tools can then read them.
    #[arg(long, value_name = "HOST:PORT", env = "WEB_ALLOW_PRIVATE")]
    pub allow_private: Option<String>,

    /// What a site's robots.txt excludes: respect or ignore [default: respect]
    #[arg(long, value_name = "respect|ignore", env = "WEB_ROBOTS")]
    pub robots: Option<String>,

    /// How long one call may take, 1 to 120 [default: 30]
    #[arg(long, value_name = "SECONDS", env = "WEB_TIMEOUT_SECONDS")]
    pub timeout_seconds: Option<String>,

    /// An API key of the Gemini API, for the search
    ///
    /// Prefer the environment or a file: other users of the machine can see a command line.
    #[arg(long, value_name = "KEY", env = "GEMINI_API_KEY", hide_env_values = true)]
    pub gemini_api_key: Option<Secret>,

    /// A file with the API key
    #[arg(long, value_name = "PATH", env = "GEMINI_API_KEY_FILE")]
    pub gemini_api_key_file: Option<OsString>,

    /// The model that searches [default: gemini-3.8-flash]
    #[arg(long, value_name = "MODEL", env = "GEMINI_MODEL")]
    pub gemini_model: Option<String>,

    /// A gateway in place of the Gemini API
    #[arg(long, value_name = "URL", env = "GEMINI_BASE_URL")]
    pub gemini_base_url: Option<String>,

    /// The project of Vertex AI, which is used even if there is a key of the Gemini API
    #[arg(long, value_name = "ID", env = "VERTEX_AI_PROJECT_ID")]
    pub vertex_ai_project_id: Option<String>,

    /// The location of Vertex AI: global, us, eu or a region
    #[arg(long, value_name = "LOCATION", env = "VERTEX_AI_LOCATION")]
    pub vertex_ai_location: Option<String>,

    /// A gateway in place of Vertex AI
    #[arg(long, value_name = "URL", env = "VERTEX_AI_ENDPOINT")]
    pub vertex_ai_endpoint: Option<String>,

    /// An API key of Vertex AI in express mode, without project and location
    #[arg(long, value_name = "KEY", env = "VERTEX_AI_API_KEY", hide_env_values = true)]
    pub vertex_ai_api_key: Option<Secret>,

    /// A file with the API key of Vertex AI
    #[arg(long, value_name = "PATH", env = "VERTEX_AI_API_KEY_FILE")]
    pub vertex_ai_api_key_file: Option<OsString>,

    /// The file of a service account, for Vertex AI [default: that of the machine]
    #[arg(long, value_name = "PATH", env = "GOOGLE_APPLICATION_CREDENTIALS")]
    pub google_application_credentials: Option<OsString>,

    /// An API key of the Custom Search JSON API, which is used before Gemini
    #[arg(long, value_name = "KEY", env = "GOOGLE_CSE_KEY", hide_env_values = true)]
    pub google_cse_key: Option<Secret>,

    /// A file with the API key of Custom Search
    #[arg(long, value_name = "PATH", env = "GOOGLE_CSE_KEY_FILE")]
    pub google_cse_key_file: Option<OsString>,

    /// The id of the search engine of Custom Search
    #[arg(long, value_name = "ID", env = "GOOGLE_CSE_ID")]
    pub google_cse_id: Option<String>,

    /// A gateway in place of the Custom Search JSON API
    #[arg(long, value_name = "URL", env = "GOOGLE_CSE_URL")]
    pub google_cse_url: Option<String>,
}

impl Args {
    /// Examples for the end of a help text.
    pub const EXAMPLES: &'static str = "\
Examples:
  The public web:
    gavel-mcp-web

  Only the documentation of two projects, and one host of the private network:
    export WEB_ALLOW=docs.example.com,*.example.org
    export WEB_ALLOW_PRIVATE=wiki.internal.example:443
    gavel-mcp-web

  With a search:
    export GEMINI_API_KEY_FILE=/run/secrets/gemini_api_key
    gavel-mcp-web

Every setting is read from the environment too; keys also from NAME_FILE. RUST_LOG sets what is logged to standard \
error (default: info,rmcp=warn).";
}
