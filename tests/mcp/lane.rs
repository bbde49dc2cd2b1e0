//! The transports to a server over HTTP: plain on this machine or, if the environment says so (`tls`), over TLS, as to
//! a remote server.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The directory with the servers' certificate and key; without it they use plain HTTP.
pub(crate) const DIRECTORY: &str = "GAVEL_TEST_TLS";
/// The one protocol that they then support.
pub(crate) const PROTOCOL: &str = "GAVEL_TEST_ALPN";

/// A connection to a client.
pub(crate) type Stream = Box<dyn Duplex>;

pub(crate) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

/// The TLS configuration of this process's servers, if they use TLS.
fn tls() -> Option<&'static TlsAcceptor> {
    static TLS: OnceLock<Option<TlsAcceptor>> = OnceLock::new();
    let set_up = || {
        let directory = std::env::var(DIRECTORY).ok()?;
        let directory = Path::new(&directory);
        let certificate = CertificateDer::from_pem_file(directory.join("certificate.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(directory.join("key.pem")).unwrap();
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        // A client that does not offer it is rejected, so every passing test used this protocol.
        config.alpn_protocols = vec![std::env::var(PROTOCOL).unwrap().into_bytes()];
        Some(TlsAcceptor::from(Arc::new(config)))
    };
    TLS.get_or_init(set_up).as_ref()
}

/// Whether the servers of this process use TLS.
pub(crate) fn is_tls() -> bool {
    tls().is_some()
}

/// Whether they use HTTP/2.
pub(crate) fn is_http_2() -> bool {
    is_tls() && std::env::var(PROTOCOL).unwrap() == "h2"
}

/// The URL of a server on this port.
pub(crate) fn url(port: u16) -> String {
    let scheme = if is_tls() { "https" } else { "http" };
    format!("{scheme}://127.0.0.1:{port}/mcp")
}

/// The server's side of an accepted connection; `None` if the handshake failed.
pub(crate) async fn accept(stream: TcpStream) -> Option<Stream> {
    let _ = stream.set_nodelay(true);
    match tls() {
        Some(tls) => Some(Box::new(tls.accept(stream).await.ok()?)),
        None => Some(Box::new(stream)),
    }
}
