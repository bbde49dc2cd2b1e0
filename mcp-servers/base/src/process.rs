//! The process of a server that is a program of its own.

use std::time::Duration;

use tracing_subscriber::EnvFilter;

/// Runs a server to its end. Standard output belongs to the protocol; logs go to standard error, as `RUST_LOG` sets.
pub fn run(serve: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,rmcp=warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served = runtime.block_on(serve);
    // A read from a terminal or from a hanging file system cannot be interrupted, so the runtime does not wait for it.
    runtime.shutdown_timeout(Duration::from_millis(200));
    served
}
