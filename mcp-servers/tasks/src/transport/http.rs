//! MCP over streamable HTTP: stateless, one JSON answer to one POST.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::args::{Args, HttpSettings, Settings, Wire};
use crate::identity::Identity;
use crate::server::TaskServer;
use crate::store::Store;

const MAX_REQUEST_BYTES: usize = 256 * 1024;
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

type Mcp = StreamableHttpService<TaskServer, NeverSessionManager>;
type Body = BoxBody<Bytes, Infallible>;

/// A server that listens, and answers once [`HttpServer::serve`] runs.
#[derive(Debug)]
pub struct HttpServer {
    listener: TcpListener,
    address: SocketAddr,
    store: Store,
    server: TaskServer,
    allowed_hosts: Vec<String>,
}

impl HttpServer {
    /// Opens the database and the listener. `args.http` names the address; port 0 takes a free one.
    pub async fn bind(args: Args) -> anyhow::Result<Self> {
        Self::bind_with(Settings::try_from(args)?).await
    }

    pub(crate) async fn bind_with(settings: Settings) -> anyhow::Result<Self> {
        let Wire::Http(HttpSettings {
            address,
            identity,
            allowed_hosts,
        }) = settings.wire
        else {
            anyhow::bail!("no address to listen on was given (--http ADDR)");
        };
        let addresses: Vec<_> = tokio::net::lookup_host(&address)
            .await
            .with_context(|| format!("`{address}` is not an address such as 127.0.0.1:8090"))?
            .collect();
        ensure!(
            !matches!(identity, Identity::Single(_)) || addresses.iter().all(|address| address.ip().is_loopback()),
            "--insecure-user serves whoever connects, so it listens on loopback addresses alone, \
             not on {address}"
        );
        let listener = TcpListener::bind(&addresses[..])
            .await
            .with_context(|| format!("cannot listen on {address}"))?;
        let address = listener.local_addr()?;
        let store = Store::open(&settings.database).await?;
        Ok(Self {
            listener,
            address,
            server: TaskServer::new(store.clone(), identity),
            store,
            allowed_hosts,
        })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is cancelled; then takes no more connections, lets running calls finish
    /// for up to ten seconds, and closes the database.
    pub async fn serve(self, stop: CancellationToken) -> anyhow::Result<()> {
        let Self {
            listener,
            address,
            store,
            server,
            allowed_hosts,
        } = self;
        let pruning = store.keep_pruned(stop.child_token());
        let cut = CancellationToken::new();
        let routes = Arc::new(Routes {
            mcp: Mcp::new(
                move || Ok(server.clone()),
                Arc::default(),
                mcp_config(&allowed_hosts, cut.clone()),
            ),
            store: store.clone(),
        });
        let connections = GracefulShutdown::new();
        tracing::info!("serving MCP at http://{address}/mcp");
        while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
            match accepted {
                Ok((stream, _)) => connect(stream, &connections, routes.clone(), cut.clone()),
                Err(error) => {
                    // Out of file descriptors, most likely: give connections time to end.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        drop(listener);
        tracing::info!("stopping");
        if tokio::time::timeout(DRAIN_TIMEOUT, connections.shutdown())
            .await
            .is_err()
        {
            tracing::warn!("some calls were still running and are cut off");
        }
        cut.cancel();
        pruning.stop().await;
        store.close().await;
        Ok(())
    }
}

fn mcp_config(allowed_hosts: &[String], cut: CancellationToken) -> StreamableHttpServerConfig {
    const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(MAX_REQUEST_BYTES)
        .with_cancellation_token(cut);
    if allowed_hosts.iter().any(|host| host == "*") {
        return config.disable_allowed_hosts();
    }
    let hosts: Vec<String> = if allowed_hosts.is_empty() {
        LOOPBACK.map(str::to_owned).to_vec()
    } else {
        allowed_hosts.to_vec()
    };
    config
        .with_allowed_origins(hosts.iter().flat_map(|host| origins(host)))
        .with_allowed_hosts(hosts)
        .enforce_origin_validation()
}

/// The web origins that belong to an allowed host.
fn origins(host: &str) -> Vec<String> {
    let bare_v6 = host.contains("::") && !host.starts_with('[');
    let host = if bare_v6 { format!("[{host}]") } else { host.to_owned() };
    let has_port = host
        .rsplit_once(':')
        .is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()));
    let port = if has_port { "" } else { ":*" };
    ["http", "https"]
        .map(|scheme| format!("{scheme}://{host}{port}"))
        .to_vec()
}

fn connect(stream: TcpStream, connections: &GracefulShutdown, routes: Arc<Routes>, cut: CancellationToken) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
    let service = service_fn(move |request| {
        let routes = routes.clone();
        async move { Ok::<_, Infallible>(routes.answer(request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    let connection = connections.watch(connection);
    tokio::spawn(async move {
        if let Some(Err(error)) = cut.run_until_cancelled(connection).await {
            tracing::debug!(%error, "a connection ended early");
        }
    });
}

struct Routes {
    mcp: Mcp,
    store: Store,
}

impl Routes {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        match request.uri().path() {
            "/mcp" => self.mcp.handle(request).await,
            "/healthz" => self.health().await,
            _ => json(StatusCode::NOT_FOUND, r#"{"error":"not found; MCP is at /mcp"}"#),
        }
    }

    async fn health(&self) -> Response<Body> {
        match tokio::time::timeout(Duration::from_secs(2), self.store.ping()).await {
            Ok(Ok(())) => json(StatusCode::OK, r#"{"status":"ok"}"#),
            _ => json(
                StatusCode::SERVICE_UNAVAILABLE,
                r#"{"status":"the database does not answer"}"#,
            ),
        }
    }
}

fn json(status: StatusCode, body: &'static str) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from_static(body.as_bytes())).boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(
        CONTENT_TYPE,
        hyper::header::HeaderValue::from_static("application/json"),
    );
    response
}
