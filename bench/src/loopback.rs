//! Addresses on this machine. Nothing here listens on or connects to another machine.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, ensure};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// An address that is known to be on the loopback interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loopback(SocketAddr);

impl Loopback {
    /// Rejects every address that is not on this machine.
    pub(crate) fn new(address: SocketAddr) -> anyhow::Result<Self> {
        ensure!(
            address.ip().is_loopback(),
            "{address} is not a loopback address; only loopback servers are measured or called"
        );
        Ok(Self(address))
    }

    pub(crate) fn port(port: u16) -> Self {
        Self(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }

    pub(crate) fn address(self) -> SocketAddr {
        self.0
    }

    pub(crate) fn url(self) -> String {
        format!("http://{}", self.0)
    }

    /// Connects without Nagle's delay, which would add 40 ms to responses in two pieces.
    pub(crate) async fn connect(self) -> std::io::Result<TcpStream> {
        let stream = TcpStream::connect(self.0).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// Listens on `port` (0: any free one) with a backlog large enough for a thousand concurrent clients.
pub(crate) fn listen(port: u16) -> anyhow::Result<(TcpListener, Loopback)> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket
        .bind(Loopback::port(port).address())
        .with_context(|| format!("127.0.0.1:{port} cannot be listened on"))?;
    let listener = socket.listen(4096)?;
    let at = Loopback::new(listener.local_addr()?)?;
    Ok((listener, at))
}

/// A port that was free a moment ago, for a child that needs a fixed port.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_leaves_the_machine_is_refused() {
        for outside in ["192.0.2.1:80", "0.0.0.0:80", "[2001:db8::1]:80"] {
            assert!(Loopback::new(outside.parse().unwrap()).is_err(), "{outside}");
        }
        for inside in ["127.0.0.1:80", "127.8.0.1:80", "[::1]:80"] {
            assert!(Loopback::new(inside.parse().unwrap()).is_ok(), "{inside}");
        }
    }
}
