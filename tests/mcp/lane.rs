//! The ways to a server over HTTP: in plain on this machine, or over TLS, as to a server elsewhere.
//!
//! The bridge takes other code for either. So the tests of calls run three times: as they are, and in two processes of
//! their own, where every server they start is behind TLS and speaks one protocol, HTTP/1.1 or HTTP/2. They are processes of
//! their own because the certificates that are trusted are a process's (`SSL_CERT_FILE`), as an operator sets them.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use gavel::adapters::mcp::ServerState;
use gavel::ports::tools::Tools;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::raw::RawServer;
use super::support::{bridge, http, until};

/// The folder with the servers' certificate and key; without it they speak in plain.
const FOLDER: &str = "GAVEL_TEST_TLS";
/// The one protocol that they speak then.
const PROTOCOL: &str = "GAVEL_TEST_ALPN";

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

/// Runs tests in a process of its own, whose servers speak `protocol` over TLS; says how many have passed.
fn run(protocol: &str, tests: &[&str], trusts_them: bool) -> u32 {
    let folder = tempfile::tempdir().unwrap();
    let issue = || rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (servers, other) = (issue(), issue());
    let file = |name: &str, pem: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, pem).unwrap();
        path
    };
    file("certificate.pem", servers.cert.pem());
    file("key.pem", servers.signing_key.serialize_pem());
    let trusted = if trusts_them { &servers } else { &other };
    let run = Command::new(std::env::current_exe().unwrap())
        .args(tests)
        .env("SSL_CERT_FILE", file("trusted.pem", trusted.cert.pem()))
        .env_remove("SSL_CERT_DIR")
        .env(FOLDER, folder.path())
        .env(PROTOCOL, protocol)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    let passed = said
        .lines()
        .find_map(|line| line.strip_prefix("test result: ok. ")?.split_once(" passed; 0 failed"));
    assert!(run.status.success(), "{said}");
    passed.unwrap().0.parse().unwrap()
}

/// The tests of calls.
const CALLS: [&str; 2] = ["faults::", "http::"];

/// Promises 3 and 5 to a server elsewhere.
#[test]
fn calls_go_the_same_way_over_tls_by_http_1() {
    assert!(run("http/1.1", &CALLS, true) > 40);
}

#[test]
fn calls_go_the_same_way_over_tls_by_http_2() {
    assert!(run("h2", &CALLS, true) > 40);
}

#[test]
fn a_server_whose_certificate_is_not_trusted_is_asked_nothing() {
    assert_eq!(run("h2", &["--ignored", "--exact", "lane::not_trusted"], false), 1);
}

#[tokio::test]
#[ignore = "in a process that trusts somebody else"]
async fn not_trusted() {
    let mut server = RawServer::start(|_| None).await;
    let mcp = bridge(&http(&server.url));
    until(&mcp, |mcp| mcp.status()[0].state == ServerState::Down).await;
    let reason = &mcp.catalog().down["s"];
    assert!(reason.contains("certificate"), "{reason}");
    assert_eq!(server.seen.try_recv().ok(), None);
}
