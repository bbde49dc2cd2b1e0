//! The `gavel` binary.
use clap::Parser;
#[derive(Parser)]
enum Verb {
    Serve,
    McpServer {
        #[command(subcommand)]
        s: S,
    },
}
#[derive(clap::Subcommand)]
enum S {
    Tasks(gavel_mcp_tasks::Args),
}
#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    match Verb::parse() {
        Verb::McpServer { s: S::Tasks(a) } => gavel_mcp_tasks::run(a).await,
        Verb::Serve => {
            let c = gavel::config::Config::load(&Default::default())
                .map_err(|e| anyhow::anyhow!("{e:?}"))?
                .config;
            let app = gavel::app::App::build(c).await?;
            let serving = app.serve()?;
            let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
            term.recv().await;
            app.shutdown(Some(serving)).await;
            Ok(())
        }
    }
}
