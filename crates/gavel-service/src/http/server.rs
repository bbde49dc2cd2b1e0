//! The listener: HTTP/1.1, limited in time and in connections.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use actix_http::error::DispatchError;
use actix_http::{HttpService, KeepAlive};
use actix_service::{IntoServiceFactory, ServiceFactoryExt, map_config};
use actix_web::dev::{AppConfig, Server, fn_service};
use actix_web::rt::net::TcpStream;
use actix_web::{App, web};
use tokio::io::AsyncWriteExt;

use super::connections::Connections;
use super::connections::Guarded;
use super::{Edge, State, routes};
use crate::domain::budget::{Budget, Pool};
use crate::http::error::Code;
use crate::ports::metrics::HTTP_PROBLEMS;

/// Settings of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// Worker threads; absent: one per core.
    pub workers: Option<NonZeroUsize>,
    /// How long a shutdown waits for requests in progress, in whole seconds.
    pub drain: Duration,
}

/// Longest time that a closing connection may linger.
const DISCONNECT: Duration = Duration::from_secs(1);

/// The first bytes of an HTTP/2 connection with prior knowledge (RFC 9113 section 3.4).
const HTTP_2: &[u8; 12] = b"PRI * HTTP/2";

/// The response to such a connection, readable for a person who inspects the bytes.
const HTTP_1_1_ALONE: &[u8] = b"HTTP/1.1 505 HTTP Version Not Supported\r\n\
    content-type: text/plain; charset=utf-8\r\ncontent-length: 77\r\nconnection: close\r\n\r\n\
    This port speaks HTTP/1.1 and not HTTP/2. Set the client or the proxy to 1.1.";

/// Unsent bytes of a response from which on no more of its body is requested. A client that does not read a stream
/// holds no more than this and one chunk.
const UNSENT: usize = 4 << 10;

/// Builds the server on a bound listener. It runs when the returned future is awaited, and stops through its handle.
/// The caller handles signals.
///
/// actix's own `HttpServer` waits for a connection's first byte without limit, so the service is composed here.
///
/// # Errors
/// The listener is unusable.
pub fn server(edge: Edge, listener: TcpListener, settings: ServerSettings) -> io::Result<Server> {
    for code in Code::ALL {
        HTTP_PROBLEMS.with([code.as_str().into()]).increment(0);
    }
    let (head, quiet) = (edge.limits.head_time, edge.limits.quiet_time);
    let most = edge.limits.connections;
    let connections = Connections::new(most);
    let state = web::Data::new(State::new(edge));
    let workers = settings.workers.or_else(|| available_parallelism().ok());
    let workers = workers.map_or(1, NonZeroUsize::get);
    let builder = Server::build()
        .disable_signals()
        .shutdown_timeout(settings.drain.as_secs().max(1))
        .workers(workers)
        // The table bounds them; the listener never waits.
        .max_concurrent_connections(2 * most);
    let stopping = builder.graceful_shutdown_signal();
    let local = listener.local_addr()?;
    let heads = Budget::new(Pool::Heads, Pool::Heads.limits(0));
    let service = move || {
        let (state, stopping, heads) = (state.clone(), stopping.clone(), Arc::clone(&heads));
        let connections = Arc::clone(&connections);
        let app = App::new().configure(move |config| routes::configure(config, &state));
        let app = app
            .into_factory()
            .map_err(|error: actix_web::Error| error.error_response());
        let http = HttpService::build()
            .keep_alive(KeepAlive::Timeout(quiet))
            .client_request_timeout(head)
            .client_disconnect_timeout(DISCONNECT)
            // A client that has closed its side counts as gone; half-closed connections would hide that.
            .h1_allow_half_closed(false)
            .h1_write_buffer_size(UNSENT)
            .local_addr(local)
            .graceful_shutdown_signal(move || {
                let stopping = stopping.clone();
                async move { stopping.notified().await }
            })
            .on_connect_ext(|io: &Guarded<TcpStream>, data| {
                data.insert(io.activity());
            })
            .h1(map_config(app, |_| AppConfig::default()));
        fn_service(move |io: TcpStream| accept(io, head, quiet, Arc::clone(&heads), Arc::clone(&connections)))
            .and_then(http)
    };
    Ok(builder.listen("gavel", listener, service)?.run())
}

async fn accept(
    io: TcpStream,
    head: Duration,
    quiet: Duration,
    heads: Arc<Budget>,
    connections: Arc<Connections>,
) -> Result<(Guarded<TcpStream>, Option<SocketAddr>), DispatchError> {
    // Without it the last small part of a response waits for the peer's delayed acknowledgement.
    io.set_nodelay(true)?;
    let peer = io.peer_addr().ok();
    let place = connections.enter(peer);
    let mut first = [0; HTTP_2.len()];
    let seen = tokio::select! {
        seen = tokio::time::timeout(head, io.peek(&mut first)) => seen.map_err(io::Error::from)??,
        () = place.0.closed() => return Err(io::Error::from(io::ErrorKind::ConnectionAborted).into()),
    };
    if first[..seen] == *HTTP_2 {
        tokio::time::timeout(DISCONNECT, refuse_http_2(io))
            .await
            .map_err(io::Error::from)??;
        return Err(io::Error::from(io::ErrorKind::Unsupported).into());
    }
    Ok((Guarded::new(io, quiet, heads, place), peer))
}

/// Responds, and then reads what the client still sends: closing with unread bytes sends a reset, which could arrive
/// before the response.
async fn refuse_http_2(mut io: TcpStream) -> io::Result<()> {
    io.write_all(HTTP_1_1_ALONE).await?;
    io.shutdown().await?;
    tokio::io::copy(&mut io, &mut tokio::io::sink()).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_http_2_is_as_long_as_it_says() {
        let text = std::str::from_utf8(HTTP_1_1_ALONE).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(
            head.contains(&format!("content-length: {}\r\n", body.len())),
            "{}",
            body.len()
        );
    }
}
