//! Command line options. All are text here, since an empty variable counts as unset: `mcp.json` passes on every
//! variable.

/// Options of the web server.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Args {
    /// The only hosts that are requested [default: all]
    ///
    /// Separated by commas: example.com is this host, *.example.com are its subdomains.
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

Every setting is read from the environment too. RUST_LOG sets what is logged to standard error (default: \
info,rmcp=warn).";
}
