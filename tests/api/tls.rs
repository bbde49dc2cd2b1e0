//! Gemini over TLS, as in production: HTTP/2 or HTTP/1.1 by ALPN, verified against the machine's roots, which
//! `SSL_CERT_FILE` names. The service is a separate process, because that variable applies to a whole process.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::crash::{Process, start_by};
use crate::harness::{binary, client};

/// A certificate authority that is not trusted by default, and a certificate that it issued.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Self { pem, issuer }
    }

    fn certificate(&self, host: &str) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        (vec![certificate.der().clone()], key)
    }

    /// The file that `SSL_CERT_FILE` names.
    fn file(&self, directory: &Path) -> PathBuf {
        let path = directory.join("ca.pem");
        std::fs::write(&path, &self.pem).unwrap();
        path
    }
}

/// A stand-in for Gemini behind TLS. It greets in two chunks; in a stream the second is held back until the test
/// releases it.
struct Gemini {
    url: String,
    versions: Arc<Mutex<Vec<Version>>>,
    second: Arc<Semaphore>,
}

impl Gemini {
    async fn serve(authority: &Authority, host: &str, protocols: &[&str]) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (chain, key) = authority.certificate(host);
        let mut config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let gemini = Self {
            url: format!("https://localhost:{}", listener.local_addr().unwrap().port()),
            versions: Arc::default(),
            second: Arc::new(Semaphore::new(0)),
        };
        let (versions, second) = (Arc::clone(&gemini.versions), Arc::clone(&gemini.second));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(converse(stream, acceptor.clone(), versions.clone(), second.clone()));
            }
        });
        gemini
    }

    fn versions(&self) -> Vec<Version> {
        self.versions.lock().unwrap().clone()
    }
}

async fn converse(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    versions: Arc<Mutex<Vec<Version>>>,
    second: Arc<Semaphore>,
) {
    // A client that does not trust the certificate ends the connection here.
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let service = service_fn(move |request: Request<Incoming>| {
        versions.lock().unwrap().push(request.version());
        let second = Arc::clone(&second);
        async move { Ok::<_, Infallible>(answer(request, second).await) }
    });
    let stream = TokioIo::new(stream);
    // A client that disconnects ends its connection.
    if h2 {
        let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(stream, service)
            .await;
    } else {
        let _ = hyper::server::conn::http1::Builder::new()
            .serve_connection(stream, service)
            .await;
    }
}

async fn answer(request: Request<Incoming>, second: Arc<Semaphore>) -> Response<BoxBody<Bytes, Infallible>> {
    let stream = request.uri().path().ends_with(":streamGenerateContent");
    let body = request.into_body().collect().await.unwrap().to_bytes();
    assert!(serde_json::from_slice::<Value>(&body).unwrap()["contents"].is_array());
    let chunk = |text: &str, rest: Value| {
        let mut chunk = json!({"candidates": [{"content": {"parts": [{"text": text}], "role": "model"}, "index": 0}]});
        for (name, value) in rest.as_object().unwrap() {
            chunk["candidates"][0][name] = value.clone();
        }
        chunk.to_string()
    };
    let stop = json!({"finishReason": "STOP"});
    if !stream {
        return Response::builder()
            .header("content-type", "application/json; charset=UTF-8")
            .body(Full::from(chunk("Hello there.", stop)).boxed())
            .unwrap();
    }
    let pieces = futures_util::stream::unfold(0, move |n| {
        let (second, stop) = (Arc::clone(&second), stop.clone());
        async move {
            let text = match n {
                0 => chunk("Hello ", json!({})),
                1 => {
                    second.acquire().await.unwrap().forget();
                    chunk("there.", stop)
                }
                _ => return None,
            };
            let event = Bytes::from(format!("data: {text}\r\n\r\n"));
            Some((Ok::<_, Infallible>(Frame::data(event)), n + 1))
        }
    });
    Response::builder()
        .header("content-type", "text/event-stream")
        .body(BodyExt::boxed(StreamBody::new(pieces)))
        .unwrap()
}

/// Starts the service with `trusted` as the roots of its machine; its log goes to `log` in the directory.
async fn start(gemini: &Gemini, trusted: &Authority, directory: &Path) -> Process {
    let mut command = Command::new("sh");
    command
        .args(["-c", "RUST_LOG=warn exec \"$0\" \"$@\" 2>log", binary()])
        .env("SSL_CERT_FILE", trusted.file(directory))
        .env_remove("SSL_CERT_DIR");
    let database = format!("sqlite://{}", directory.join("gavel.db").display());
    start_by(command, &gemini.url, &database, directory).await
}

async fn post(process: &Process, route: &str) -> reqwest::Response {
    let body = json!({"message": "hi", "user_id": "ann"});
    let request = client().post(format!("{}{route}", process.url)).json(&body);
    let answer = request.timeout(Duration::from_secs(20)).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    answer
}

/// C-FR-001: over TLS, Gemini is called with the best protocol that it supports.
#[tokio::test]
async fn over_tls_gemini_is_called_with_the_best_protocol_it_supports() {
    let authority = Authority::new("ours");
    for (protocols, version) in [
        (&["h2", "http/1.1"][..], Version::HTTP_2),
        (&["http/1.1"], Version::HTTP_11),
        (&[], Version::HTTP_11),
    ] {
        let gemini = Gemini::serve(&authority, "localhost", protocols).await;
        let directory = tempfile::tempdir().unwrap();
        let process = start(&gemini, &authority, directory.path()).await;
        for _ in 0..2 {
            let decision: Value = post(&process, "/v1/chat").await.json().await.unwrap();
            assert_eq!(decision["outcome_category"], "SUCCESS:RESPONSE_GIVEN", "{decision}");
            assert_eq!(decision["response"], "Hello there.");
        }
        assert_eq!(gemini.versions(), [version; 2], "{protocols:?}");
    }
}

/// Each chunk of a stream is passed on as it arrives.
#[tokio::test]
async fn over_http_2_chunks_are_passed_on_as_they_arrive() {
    let authority = Authority::new("ours");
    let gemini = Gemini::serve(&authority, "localhost", &["h2"]).await;
    let directory = tempfile::tempdir().unwrap();
    let process = start(&gemini, &authority, directory.path()).await;
    let mut answer = post(&process, "/v1/chat/stream").await;
    let mut text = String::new();
    let mut let_go = false;
    while let Some(piece) = answer.chunk().await.unwrap() {
        text.push_str(std::str::from_utf8(&piece).unwrap());
        // The rest is not sent before the beginning has arrived at the client.
        if !let_go && text.contains("\"Hello \"") {
            assert!(!text.contains("there."), "{text}");
            gemini.second.add_permits(1);
            let_go = true;
        }
    }
    assert!(let_go, "{text}");
    let decision: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(decision["type"], "decision", "{text}");
    assert!(decision.to_string().contains("Hello there."), "{decision}");
    assert_eq!(gemini.versions(), [Version::HTTP_2]);
}

/// C-EC-1, C-FR-010: an untrusted server in Gemini's place is rejected. The caller gets a fixed text, and the log has
/// the cause.
#[tokio::test]
async fn an_untrusted_certificate_makes_the_model_unavailable() {
    let (authority, other) = (Authority::new("ours"), Authority::new("another"));
    for (trusted, host, cause) in [
        (&other, "localhost", "UnknownIssuer"),
        (&authority, "elsewhere.test", "not valid for name"),
    ] {
        let gemini = Gemini::serve(&authority, host, &["h2", "http/1.1"]).await;
        let directory = tempfile::tempdir().unwrap();
        let process = start(&gemini, trusted, directory.path()).await;
        let decision: Value = post(&process, "/v1/chat").await.json().await.unwrap();
        assert_eq!(decision["outcome_category"], "ERROR:MODEL_UNAVAILABLE", "{decision}");
        assert!(!decision.to_string().contains("certificate"), "{decision}");
        assert_eq!(gemini.versions(), [], "nothing is sent to an untrusted server");
        let log = std::fs::read_to_string(directory.path().join("log")).unwrap();
        let line = log
            .lines()
            .find(|line| line.contains("the model gave no usable answer"));
        let line = line.unwrap_or_else(|| panic!("no such line: {log}"));
        assert!(line.contains("certificate") && line.contains(cause), "{line}");
    }
}
