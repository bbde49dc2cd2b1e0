//! The listener: HTTP/1.1 and cleartext HTTP/2 on one port, bounded in time.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::time::Duration;

use actix_http::error::DispatchError;
use actix_http::{HttpService, KeepAlive, Protocol};
use actix_service::{IntoServiceFactory, ServiceFactoryExt, map_config};
use actix_web::dev::{AppConfig, Server, fn_service};
use actix_web::rt::net::TcpStream;
use actix_web::{App, web};

use super::connection::Guarded;
use super::{Edge, State, meters, routes};

/// How the server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// Threads that serve; absent: one for each core.
    pub workers: Option<NonZeroUsize>,
    /// How long a stop waits for what is under way, in whole seconds.
    pub drain: Duration,
}

/// How long a closing connection may linger.
const DISCONNECT: Duration = Duration::from_secs(1);

/// What a connection of HTTP/2 with prior knowledge begins with (RFC 9113 section 3.4).
const PREFACE: &[u8; 12] = b"PRI * HTTP/2";

/// Builds the server on a bound listener; it runs when the returned future is awaited, and stops by
/// its handle. Signals are the caller's.
///
/// actix's own `HttpServer` would wait for a connection's first byte without end, so the service is
/// put together here.
///
/// # Errors
/// The listener cannot be used.
pub fn server(edge: Edge, listener: TcpListener, settings: ServerSettings) -> io::Result<Server> {
    meters::describe();
    let (head, quiet) = (edge.limits.head_time, edge.limits.quiet_time);
    let state = web::Data::new(State::new(edge));
    let mut builder = Server::build()
        .disable_signals()
        .shutdown_timeout(settings.drain.as_secs().max(1));
    if let Some(workers) = settings.workers {
        builder = builder.workers(workers.get());
    }
    let stopping = builder.graceful_shutdown_signal();
    let local = listener.local_addr()?;
    let service = move || {
        let (state, stopping) = (state.clone(), stopping.clone());
        let app = App::new().configure(move |config| routes::configure(config, &state));
        let app = app
            .into_factory()
            .map_err(|error: actix_web::Error| error.error_response());
        let http = HttpService::build()
            .keep_alive(KeepAlive::Timeout(quiet))
            .client_request_timeout(head)
            .client_disconnect_timeout(DISCONNECT)
            // A client that has closed its side has left; waiting on would keep it from being noticed.
            .h1_allow_half_closed(false)
            .local_addr(local)
            .graceful_shutdown_signal(move || {
                let stopping = stopping.clone();
                async move { stopping.notified().await }
            })
            .on_connect_ext(|io: &Guarded<TcpStream>, data| {
                data.insert(io.activity());
            })
            .finish(map_config(app, |_| AppConfig::default()));
        fn_service(move |io: TcpStream| accept(io, head, quiet)).and_then(http)
    };
    Ok(builder.listen("gavel", listener, service)?.run())
}

async fn accept(
    io: TcpStream,
    head: Duration,
    quiet: Duration,
) -> Result<(Guarded<TcpStream>, Protocol, Option<SocketAddr>), DispatchError> {
    // Without it the last small part of an answer waits for the peer's delayed acknowledgement.
    io.set_nodelay(true)?;
    let mut first = [0; PREFACE.len()];
    let seen = tokio::time::timeout(head, io.peek(&mut first))
        .await
        .map_err(io::Error::from)??;
    let protocol = if first[..seen] == *PREFACE {
        Protocol::Http2
    } else {
        Protocol::Http1
    };
    let peer = io.peer_addr().ok();
    Ok((Guarded::new(io, quiet), protocol, peer))
}
