//! The ways to a server over HTTP: in plain on this machine, or, where the environment says so (`tls`), over TLS, as to a
//! server elsewhere.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The folder with the servers' certificate and key; without it they speak in plain.
pub(crate) const FOLDER: &str = "GAVEL_TEST_TLS";
/// The one protocol that they speak then.
pub(crate) const PROTOCOL: &str = "GAVEL_TEST_ALPN";

/// A connection to a client.
pub(crate) type Stream = Box<dyn Duplex>;

pub(crate) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

/// What the servers of this process do behind TLS, if they do.
fn tls() -> Option<&'static TlsAcceptor> {
    static TLS: OnceLock<Option<TlsAcceptor>> = OnceLock::new();
    let set_up = || {
        let folder = std::env::var(FOLDER).ok()?;
        let folder = Path::new(&folder);
        let certificate = CertificateDer::from_pem_file(folder.join("certificate.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(folder.join("key.pem")).unwrap();
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        // A client that does not offer it is turned away, so what passes has passed over this protocol.
        config.alpn_protocols = vec![std::env::var(PROTOCOL).unwrap().into_bytes()];
        Some(TlsAcceptor::from(Arc::new(config)))
    };
    TLS.get_or_init(set_up).as_ref()
}

/// Are the servers of this process behind TLS?
pub(crate) fn is_tls() -> bool {
    tls().is_some()
}

/// Do they speak HTTP/2?
pub(crate) fn is_http_2() -> bool {
    is_tls() && std::env::var(PROTOCOL).unwrap() == "h2"
}

/// The URL of a server on this port.
pub(crate) fn url(port: u16) -> String {
    let scheme = if is_tls() { "https" } else { "http" };
    format!("{scheme}://127.0.0.1:{port}/mcp")
}

/// What a server has of a client that has connected; nothing of one that did not keep to it.
pub(crate) async fn accept(stream: TcpStream) -> Option<Stream> {
    let _ = stream.set_nodelay(true);
    match tls() {
        Some(tls) => Some(Box::new(tls.accept(stream).await.ok()?)),
        None => Some(Box::new(stream)),
    }
}
