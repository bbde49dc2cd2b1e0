//! A server that has tools only, and its process.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, Implementation, ListToolsResult, PaginatedRequestParams,
    ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, ServerInitializeError};
use rmcp::transport::stdio_pipes;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use crate::{Answer, Fault, Tool};

/// What a server says of itself; [`about!`](crate::about) takes most of it from the crate.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// The name of the program.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Its name for people.
    pub title: &'static str,
    /// One sentence.
    pub description: &'static str,
    /// How a model uses the tools together.
    pub instructions: &'static str,
}

/// What the server in this crate says of itself: its title, and how a model uses the tools together.
#[macro_export]
macro_rules! about {
    ($title:expr, $instructions:expr) => {
        $crate::About {
            name: env!("CARGO_PKG_NAME"),
            version: env!("CARGO_PKG_VERSION"),
            title: $title,
            description: env!("CARGO_PKG_DESCRIPTION"),
            instructions: $instructions,
        }
    };
}

/// An MCP server for the tools of the service `S`; clones share it.
#[derive(Debug)]
pub struct Server<S>(Arc<Shared<S>>);

#[derive(Debug)]
struct Shared<S> {
    about: About,
    service: Arc<S>,
    tools: Vec<Tool<S>>,
}

impl<S> Clone for Server<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: Send + Sync + 'static> Server<S> {
    /// A server with these tools, which it lists in this order.
    pub fn new(about: About, service: impl Into<Arc<S>>, tools: Vec<Tool<S>>) -> Self {
        let service = service.into();
        Self(Arc::new(Shared { about, service, tools }))
    }

    fn tool(&self, name: &str) -> Option<&Tool<S>> {
        self.0.tools.iter().find(|tool| tool.name() == name)
    }

    /// Serves MCP over standard input and output until the client disconnects, or the process receives SIGTERM or
    /// SIGINT.
    pub async fn run(self) -> anyhow::Result<()> {
        until_signalled(|stop| self.serve(stop)).await
    }

    /// Serves until the client closes the pipe or `stop` is cancelled. Running calls then end with an error that does
    /// not say whether they took effect.
    pub async fn serve(self, stop: CancellationToken) -> anyhow::Result<()> {
        tracing::info!("serving MCP over standard input and output");
        let running = match self.serve_with_ct(stdio_pipes(), stop).await {
            Ok(running) => running,
            Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => return Ok(()),
            Err(error) => return Err(error).context("the client did not start with a valid MCP initialization"),
        };
        let reason = running.waiting().await.context("the server failed")?;
        tracing::info!(?reason, "stopped");
        Ok(())
    }
}

/// Serves; SIGTERM and SIGINT cancel the token given to `serve`.
pub async fn until_signalled<Serving>(serve: impl FnOnce(CancellationToken) -> Serving) -> anyhow::Result<()>
where
    Serving: Future<Output = anyhow::Result<()>>,
{
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = CancellationToken::new();
    let mut serving = std::pin::pin!(serve(stop.clone()));
    tokio::select! {
        served = &mut serving => return served,
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    stop.cancel();
    serving.await
}

/// Runs a server that is a program of its own to its end. Standard output belongs to the protocol; logs go to standard
/// error, as `RUST_LOG` sets.
pub fn run_process(serve: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
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

/// The program of the server in the library `$server`, with its `Args` and its `run`.
#[macro_export]
macro_rules! program {
    ($server:ident) => {
        #[derive(Debug, clap::Parser)]
        #[command(name = env!("CARGO_PKG_NAME"), version, about, after_long_help = $server::Args::EXAMPLES)]
        struct Program {
            #[command(flatten)]
            args: $server::Args,
        }

        fn main() -> anyhow::Result<()> {
            $crate::run_process($server::run(<Program as clap::Parser>::parse().args))
        }
    };
}

impl<S: Send + Sync + 'static> ServerHandler for Server<S> {
    fn get_info(&self) -> ServerConfig {
        let about = self.0.about;
        let mut server = Implementation::new(about.name, about.version);
        server.title = Some(about.title.to_owned());
        server.description = Some(about.description.to_owned());
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(server)
            .with_instructions(about.instructions)
    }

    fn get_tool(&self, name: &str) -> Option<rmcp::model::Tool> {
        self.tool(name).map(Tool::listed)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(
            self.0.tools.iter().map(Tool::listed).collect(),
        ))
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = self.tool(&call.name) else {
            return Err(ErrorData::invalid_params("unknown tool", None));
        };
        let dropped = CancellationToken::new();
        let _dropped = dropped.clone().drop_guard();
        let (service, meta) = (self.0.service.clone(), context.meta.0.0.clone());
        let done = tokio::select! {
            biased;
            () = context.ct.cancelled() => {
                return Err(ErrorData::internal_error("the call was cancelled", None));
            }
            done = tool.carry_out(service, call.arguments, meta, dropped) => done,
        };
        let answer = match done {
            Ok(answer) => answer,
            Err(Fault::Refused(error)) => Answer::from(error),
            Err(Fault::Unsettled(why)) => return Err(ErrorData::internal_error(why, None)),
        };
        Ok(tool.result(answer).into())
    }
}

/// The reason of a call whose outcome is unknown.
pub fn unsettled() -> Fault {
    let why = "it is unknown whether this call took effect; sent again with the same idempotency key, it takes effect only once";
    Fault::Unsettled(why.to_owned())
}
