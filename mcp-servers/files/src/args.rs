//! Command line options.

use std::path::PathBuf;

/// Options of the files server.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The directory to serve; nothing outside it can be read
    #[arg(long, value_name = "DIR")]
    pub root: PathBuf,

    /// How many seconds one call may take
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub time_limit: u64,
}

impl Args {
    /// Examples for the end of a help text.
    pub const EXAMPLES: &'static str = "\
Example:
  A repository, to a client that starts servers itself (standard input and output):
    gavel-mcp-files --root /home/me/project

RUST_LOG sets what is logged to standard error (default: info,rmcp=warn).";
}
