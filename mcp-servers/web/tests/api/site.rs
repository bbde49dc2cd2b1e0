//! A web site on loopback that answers by script, and counts the connections to it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// What a site does with a request.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// These bytes, then the end of the connection.
    Bytes(Vec<u8>),
    /// These bytes, then the second ones again and again, with a pause after each.
    Forever(Vec<u8>, Vec<u8>, Duration),
}

impl Reply {
    pub(crate) fn with(status: u16, headers: &str, body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref();
        let head = format!(
            "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n{headers}\r\n",
            body.len()
        );
        Self::Bytes([head.as_bytes(), body].concat())
    }

    pub(crate) fn ok(content_type: &str, body: impl AsRef<[u8]>) -> Self {
        Self::with(200, &format!("Content-Type: {content_type}\r\n"), body)
    }

    pub(crate) fn text(body: &str) -> Self {
        Self::ok("text/plain", body)
    }

    pub(crate) fn status(status: u16) -> Self {
        Self::with(status, "", "")
    }

    pub(crate) fn redirect(status: u16, to: &str) -> Self {
        Self::with(status, &format!("Location: {to}\r\n"), "")
    }
}

/// What was seen of the program.
#[derive(Debug, Default)]
struct Seen {
    connections: AtomicUsize,
    sent: AtomicUsize,
    requests: Mutex<Vec<String>>,
}

/// A site.
#[derive(Debug, Clone)]
pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    seen: Arc<Seen>,
    scheme: &'static str,
    others: Vec<SocketAddr>,
}

type Script = Arc<dyn Fn(&str) -> Reply + Send + Sync>;

impl Site {
    /// At any port of 127.0.0.1. The script gets the path, with its query.
    pub(crate) async fn start(script: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        Self::at((Ipv4Addr::LOCALHOST, 0).into(), script).await.expect("a port")
    }

    /// At an address; `None` if another program has it.
    pub(crate) async fn at(
        address: SocketAddr,
        script: impl Fn(&str) -> Reply + Send + Sync + 'static,
    ) -> Option<Self> {
        Self::serve(address, Arc::new(script), None).await
    }

    /// With TLS, and the certificate to trust in PEM form.
    pub(crate) async fn secure(script: impl Fn(&str) -> Reply + Send + Sync + 'static) -> (Self, String) {
        let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
        let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certified.cert.der().clone()], key)
            .expect("a configuration");
        let tls = TlsAcceptor::from(Arc::new(config));
        let site = Self::serve((Ipv4Addr::LOCALHOST, 0).into(), Arc::new(script), Some(tls)).await;
        (site.expect("a port"), certified.cert.pem())
    }

    /// An address of loopback that is this call's own, at a port that the program connects to.
    pub(crate) async fn at_a_web_port() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let process = std::process::id() as usize;
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let host = Ipv4Addr::new(127, (process >> 8) as u8 | 1, process as u8, (number + 2) as u8);
            if let Some(site) = Self::at((host, 8080).into(), |_| Reply::text("inside")).await {
                return site;
            }
        }
    }

    async fn serve(address: SocketAddr, script: Script, tls: Option<TlsAcceptor>) -> Option<Self> {
        let listener = TcpListener::bind(address).await.ok()?;
        let site = Self {
            address: listener.local_addr().expect("an address"),
            seen: Arc::default(),
            scheme: if tls.is_some() { "https" } else { "http" },
            others: Vec::new(),
        };
        let seen = site.seen.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                seen.connections.fetch_add(1, Ordering::SeqCst);
                let (seen, script, tls) = (seen.clone(), script.clone(), tls.clone());
                tokio::spawn(async move {
                    // A client that leaves is what some tests are about.
                    let _ = match tls {
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => answer(stream, &seen, &script).await,
                            Err(error) => Err(error),
                        },
                        None => answer(stream, &seen, &script).await,
                    };
                });
            }
        });
        Some(site)
    }

    /// With another site, which lives as long.
    pub(crate) fn also(mut self, other: Self) -> Self {
        self.others.push(other.address);
        self
    }

    /// The setting that lets the program reach this site and those that belong to it.
    pub(crate) fn private(&self) -> String {
        let addresses = [self.address].into_iter().chain(self.others.iter().copied());
        addresses
            .map(|address| address.to_string())
            .collect::<Vec<_>>()
            .join(",")
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.address)
    }

    pub(crate) fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    /// Bytes of endless answers.
    pub(crate) fn sent(&self) -> usize {
        self.seen.sent.load(Ordering::SeqCst)
    }

    /// All requests, with their bodies.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.seen
            .requests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The paths of all requests.
    pub(crate) fn paths(&self) -> Vec<String> {
        let path = |head: &String| head.split(' ').nth(1).unwrap_or_default().to_owned();
        self.requests().iter().map(path).collect()
    }
}

async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, seen: &Seen, script: &Script) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head).expect("a request");
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut lines = head.lines().map(str::to_lowercase);
    let length = lines.find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await?;
    let request = format!("{head}{}", String::from_utf8(body).expect("text"));
    seen.requests
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(request);
    match script(&path) {
        Reply::Bytes(bytes) => {
            stream.write_all(&bytes).await?;
            stream.shutdown().await
        }
        Reply::Forever(first, again, pause) => {
            stream.write_all(&first).await?;
            loop {
                stream.write_all(&again).await?;
                seen.sent.fetch_add(again.len(), Ordering::SeqCst);
                if !pause.is_zero() {
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }
}
