//! A service that answers requests, until it is stopped.

use anyhow::Context;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;

use anyhow::anyhow;

use super::parts::listen;
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

impl App {
    /// Listens and serves.
    ///
    /// # Errors
    /// gavel cannot listen on the address, or the issuer's keys cannot be set up.
    pub fn serve(&self) -> anyhow::Result<Serving> {
        let listener = listen(self.config.listen).with_context(|| {
            let address = self.config.listen;
            format!("cannot listen on {address}; choose an address that is free with --listen or GAVEL_LISTEN")
        })?;
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
        let listener = listen((Ipv4Addr::LOCALHOST, 0).into()).context("cannot listen on a loopback port")?;
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
