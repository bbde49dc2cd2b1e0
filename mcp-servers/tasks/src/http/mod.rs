//! MCP over streamable HTTP: stateless, one JSON answer per POST.

mod body;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use body::Timed;
use gavel_mcp_base::Server;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::args::Args;
use crate::identity::Identity;
use crate::server::Tasks;
use crate::settings::{HttpSettings, Settings, Wire};
use crate::store::Store;
use crate::tools;

const MAX_REQUEST_BYTES: usize = 256 * 1024;
/// Further connections wait until one of these ends.
const MAX_CONNECTIONS: usize = 1024;
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// A server that listens, and answers once [`HttpServer::serve`] runs.
#[derive(Debug)]
pub struct HttpServer {
    listener: TcpListener,
    address: SocketAddr,
    store: Store,
    server: Server<Tasks>,
    allowed_hosts: Vec<String>,
    places: Arc<Semaphore>,
}

impl HttpServer {
    /// Opens the database and the listener. `args.http` has the address; port 0 uses a free port.
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
            "--insecure-user serves every client, so it listens only on loopback addresses, \
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
            server: tools::server(store.clone(), identity),
            store,
            allowed_hosts,
            places: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
        })
    }

    /// The address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is cancelled. Then it accepts no more connections, lets running calls finish for up to ten
    /// seconds, and closes the database.
    pub async fn serve(self, stop: CancellationToken) -> anyhow::Result<()> {
        let Self {
            listener,
            address,
            store,
            server,
            allowed_hosts,
            places,
        } = self;
        let pruning = store.keep_pruned(stop.child_token());
        let cut = CancellationToken::new();
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_max_request_body_bytes(MAX_REQUEST_BYTES)
            .with_cancellation_token(cut.clone());
        let config = allow(config, &allowed_hosts);
        let connections = Connections {
            routes: Arc::new(Routes {
                mcp: Mcp::new(move || Ok(server.clone()), Arc::default(), config),
                store: store.clone(),
            }),
            graceful: GracefulShutdown::new(),
            tasks: TaskTracker::new(),
            cut,
        };
        tracing::info!("serving MCP at http://{address}/mcp");
        let accept = async || {
            let place = places.clone().acquire_owned().await?;
            let (stream, _) = listener.accept().await?;
            anyhow::Ok((stream, place))
        };
        while let Some(accepted) = stop.run_until_cancelled(accept()).await {
            match accepted {
                Ok((stream, place)) => connections.open(stream, place),
                Err(error) => {
                    // Most likely out of file descriptors: give connections time to end.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        drop(listener);
        tracing::info!("stopping");
        connections.drain().await;
        pruning.stop().await;
        store.close().await;
        Ok(())
    }
}

/// The open connections.
struct Connections {
    routes: Arc<Routes>,
    graceful: GracefulShutdown,
    tasks: TaskTracker,
    cut: CancellationToken,
}

impl Connections {
    /// Serves a connection, which keeps its slot until it ends.
    fn open(&self, stream: TcpStream, place: OwnedSemaphorePermit) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY could not be set");
        }
        let routes = self.routes.clone();
        let service = service_fn(move |request| {
            let routes = routes.clone();
            async move { Ok::<_, Infallible>(routes.answer(request).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service);
        let connection = self.graceful.watch(connection);
        let cut = self.cut.clone();
        self.tasks.spawn(async move {
            if let Some(Err(error)) = cut.run_until_cancelled(connection).await {
                tracing::debug!(%error, "a connection ended early");
            }
            drop(place);
        });
    }

    /// Lets running calls finish for a while, then ends the remaining ones.
    async fn drain(self) {
        let drained = tokio::time::timeout(DRAIN_TIMEOUT, self.graceful.shutdown()).await;
        if drained.is_err() {
            tracing::warn!("some calls were still running and are cut off");
        }
        self.cut.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Promise: bounded faults. A client beyond the connection limit waits, and is served when a slot
    /// is free.
    #[tokio::test]
    async fn a_connection_beyond_the_last_place_waits_for_one() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut server = HttpServer::bind(Args {
            http: Some("127.0.0.1:0".to_owned()),
            database: Some(format!("sqlite://{}/tasks.db", directory.path().display())),
            insecure_user: Some("anna".to_owned()),
            ..Args::default()
        })
        .await
        .expect("it starts");
        server.places = Arc::new(Semaphore::new(1));
        let (address, stop) = (server.address(), CancellationToken::new());
        let served = TaskTracker::new().spawn(server.serve(stop.clone()));
        let first = TcpStream::connect(address).await.expect("connected");
        let mut second = TcpStream::connect(address).await.expect("in the queue");
        let request = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        second.write_all(request).await.expect("written");
        let mut answer = String::new();
        let waited = tokio::time::timeout(Duration::from_millis(300), second.read_to_string(&mut answer)).await;
        assert!(waited.is_err(), "{answer}");
        drop(first);
        second.read_to_string(&mut answer).await.expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        stop.cancel();
        served.await.expect("no panic").expect("it ends well");
    }
}

// The host names under which the server may be reached. The check prevents web pages from reaching a local server
// through its user's browser (DNS rebinding).

const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Allows `hosts`, loopback names if there are none, every name for `*`. A browser's `Origin` must be one of them too.
fn allow(config: StreamableHttpServerConfig, hosts: &[String]) -> StreamableHttpServerConfig {
    if hosts.iter().any(|host| host == "*") {
        return config.disable_allowed_hosts();
    }
    let hosts: Vec<String> = if hosts.is_empty() {
        LOOPBACK.map(str::to_owned).to_vec()
    } else {
        hosts.to_vec()
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

#[cfg(test)]
mod hosts_tests {
    use super::origins;

    #[test]
    fn an_origin_keeps_the_port_of_its_host_or_allows_any() {
        assert_eq!(
            origins("tasks.internal"),
            ["http://tasks.internal:*", "https://tasks.internal:*"]
        );
        assert_eq!(origins("localhost:80"), ["http://localhost:80", "https://localhost:80"]);
        assert_eq!(origins("::1"), ["http://[::1]:*", "https://[::1]:*"]);
    }
}

type Mcp = StreamableHttpService<Server<Tasks>, NeverSessionManager>;
type Body = BoxBody<Bytes, Infallible>;

const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);

struct Routes {
    mcp: Mcp,
    store: Store,
}

impl Routes {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        match request.uri().path() {
            "/mcp" => self.mcp.handle(request.map(Timed::new)).await,
            "/healthz" => self.health().await,
            _ => json(StatusCode::NOT_FOUND, r#"{"error":"not found; MCP is at /mcp"}"#),
        }
    }

    async fn health(&self) -> Response<Body> {
        match tokio::time::timeout(HEALTH_TIMEOUT, self.store.ping()).await {
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
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
