//! A service that answers requests, until it is stopped.

use anyhow::Context;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::PoisonError;

use anyhow::anyhow;

use super::parts::{bind, listen};
use super::{App, LAST_WORDS, edge};
use crate::http::caller::ServiceKey;
use crate::http::{self, ServerSettings};

/// The HTTP server of an [`App`].
pub struct Serving {
    /// The address it listens on, with the actual port if port 0 was configured.
    pub address: SocketAddr,
    pub(super) handle: actix_web::dev::ServerHandle,
    pub(super) task: tokio::task::JoinHandle<std::io::Result<()>>,
    /// Whether a stop waits until clients have read their responses.
    pub(super) graceful: bool,
}

impl Serving {
    /// Resolves when the server has ended without a shutdown; then there is nothing left to stop.
    pub async fn ended(&mut self) -> anyhow::Error {
        match (&mut self.task).await {
            Ok(Ok(())) => anyhow!("the HTTP server ended unexpectedly"),
            Ok(Err(error)) => anyhow::Error::from(error).context("the HTTP server ended with an error"),
            Err(error) => anyhow::Error::from(error).context("the HTTP server task failed"),
        }
    }
}

pub(super) fn cannot_listen(address: SocketAddr) -> String {
    format!("cannot listen on {address}; choose an address that is free with --listen or GAVEL_LISTEN")
}

/// Where programs of the same machine reach a service on this address.
#[must_use]
pub fn reachable(address: SocketAddr) -> String {
    let local = [
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    ];
    match local.contains(&address.ip()) {
        true => format!("localhost:{}", address.port()),
        false => address.to_string(),
    }
}

impl App {
    /// Listens on the address that was taken at the start, and serves.
    ///
    /// # Errors
    /// gavel cannot listen there, or serves already; the issuer's keys cannot be set up.
    pub fn serve(&self) -> anyhow::Result<Serving> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner).take();
        let socket = socket.context("this service has no address, or serves already")?;
        let listener = listen(socket).with_context(|| cannot_listen(self.config.listen))?;
        let address = listener.local_addr()?;
        let settings = ServerSettings {
            workers: self.config.workers,
            drain: LAST_WORDS,
        };
        let server = http::server(edge::edge(self)?, listener, settings)?;
        Ok(self.serving(server, address, true))
    }

    /// Serves the API alone, on a free loopback port, to one key.
    ///
    /// # Errors
    /// gavel cannot listen there.
    pub(super) fn serve_key(&self, key: ServiceKey) -> anyhow::Result<Serving> {
        let listener = bind((Ipv4Addr::LOCALHOST, 0).into()).and_then(listen);
        let listener = listener.context("cannot listen on a loopback port")?;
        let address = listener.local_addr()?;
        let settings = ServerSettings {
            workers: Some(NonZeroUsize::MIN),
            drain: LAST_WORDS,
        };
        let server = http::server(edge::edge_of_command(self, key), listener, settings)?;
        Ok(self.serving(server, address, false))
    }

    pub(super) fn serving(&self, server: actix_web::dev::Server, address: SocketAddr, graceful: bool) -> Serving {
        Serving {
            address,
            handle: server.handle(),
            task: self.background.spawn(server),
            graceful,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_to_paste_can_be_reached() {
        for (address, expected) in [
            ("0.0.0.0:80", "localhost:80"),
            ("10.0.0.1:80", "10.0.0.1:80"),
            ("[::1]:80", "[::1]:80"),
        ] {
            assert_eq!(reachable(address.parse().unwrap()), expected);
        }
    }
}
