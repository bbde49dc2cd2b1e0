//! The exporter itself. One test, because a process has one subscriber.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::thread;

use gavel::config::{LogFormat, Otlp};
use gavel::telemetry::Telemetry;

/// Accepts one request and answers it; returns its request line and headers, and its body.
fn collector(listener: TcpListener) -> thread::JoinHandle<(String, Vec<u8>)> {
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut head = String::new();
        while reader.read_line(&mut head).unwrap() > 2 {}
        let length = head
            .to_lowercase()
            .lines()
            .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        let mut body = vec![0; length.unwrap()];
        reader.read_exact(&mut body).unwrap();
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            .unwrap();
        (head, body)
    })
}

fn holds(body: &[u8], text: &str) -> bool {
    body.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn only_spans_of_this_crate_reach_the_collector() {
    // As in the binary: the exporter's client is built with TLS whatever the URL.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1/traces", listener.local_addr().unwrap())
        .parse()
        .unwrap();
    let received = collector(listener);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let telemetry = {
        let _entered = runtime.enter();
        let headers = vec![("x-tenant".to_owned(), "acme".into())];
        let collector = Otlp {
            traces_url: url,
            headers,
            service_name: "gavel-test".to_owned(),
        };
        Telemetry::start("warn", LogFormat::Json, Some(collector)).unwrap()
    };
    // Below the log filter: logging and tracing are filtered independently.
    tracing::debug_span!(target: "gavel::engine", "decide", decision = "d-1").in_scope(|| {
        tracing::error!(target: "gavel::engine", "logged");
    });
    tracing::info_span!(target: "hyper::client", "foreign").in_scope(|| ());
    telemetry.finish();
    let (head, body) = received.join().unwrap();
    assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("x-tenant: acme"), "{head}");
    assert!(head.contains("content-type: application/x-protobuf"), "{head}");
    for text in ["decide", "d-1", "gavel-test"] {
        assert!(holds(&body, text), "{text}");
    }
    let schema = b"https://opentelemetry.io/schemas/";
    let schemas = body.windows(schema.len()).filter(|window| window == schema).count();
    assert_eq!(schemas, 2, "that of the resource and that of the spans");
    for text in ["foreign", "logged"] {
        assert!(!holds(&body, text), "{text}");
    }
}
