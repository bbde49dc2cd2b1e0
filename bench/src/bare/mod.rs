//! The bare server: only the raw I/O of one decision with one tool call (two pooled model calls, one pooled MCP call,
//! two rows durable before the reply). It has no allowlist, schema, limit, retry, trace or error handling, so it shows
//! the cost of the machine itself.

mod pool;
mod rows;
mod turn;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::loopback::{Loopback, listen};
use crate::serve::{Answer, reply, serve};
use turn::Bare;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(long)]
    port: u16,
    #[arg(long)]
    model_port: u16,
    #[arg(long)]
    mcp_port: u16,
    /// The SQLite file
    #[arg(long)]
    database: PathBuf,
    /// A file with the system prompt, so that as many bytes are sent as gavel sends
    #[arg(long)]
    prompt: PathBuf,
}

#[tokio::main]
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let (listener, _) = listen(args.port)?;
    let prompt =
        std::fs::read_to_string(&args.prompt).with_context(|| format!("{} cannot be read", args.prompt.display()))?;
    let rows = rows::open(&args.database)?;
    let bare = Bare::start(
        Loopback::port(args.model_port),
        Loopback::port(args.mcp_port),
        &prompt,
        rows,
    )
    .await?;
    let bare = Arc::new(bare);
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let serving = serve(listener, stop.clone(), move |request| {
        answer(Arc::clone(&bare), request)
    });
    tokio::select! {
        () = serving => {}
        _ = terminate.recv() => stop.cancel(),
    }
    Ok(())
}

async fn answer(bare: Arc<Bare>, request: Request<Incoming>) -> Answer {
    let decided = async {
        let body = request.into_body().collect().await?.to_bytes();
        bare.decide(&body).await
    };
    match decided.await {
        Ok(body) => reply(StatusCode::OK, "application/json", body),
        Err(error) => reply(StatusCode::BAD_GATEWAY, "text/plain", format!("{error:#}")),
    }
}
