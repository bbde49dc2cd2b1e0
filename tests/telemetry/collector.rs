//! A stand-in for an OTLP collector: accepts spans (HTTP, protobuf), decodes them, stores them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::trace::v1;
use prost::Message;
use serde_json::{Value, json};

/// A span as it arrived.
#[derive(Clone, Debug)]
pub struct Span {
    pub name: String,
    pub kind: v1::span::SpanKind,
    pub trace: String,
    pub id: String,
    pub parent: String,
    pub attributes: BTreeMap<String, Value>,
    pub failed: bool,
    pub start: u64,
}

impl Span {
    fn read(span: v1::Span) -> Self {
        assert!(span.events.is_empty(), "log lines are not for a collector: {span:?}");
        Self {
            kind: span.kind(),
            name: span.name,
            trace: hex(&span.trace_id),
            id: hex(&span.span_id),
            parent: hex(&span.parent_span_id),
            attributes: span
                .attributes
                .into_iter()
                .map(|pair| (pair.key, pair.value.map_or(Value::Null, |value| plain(value.value))))
                .collect(),
            failed: span
                .status
                .is_some_and(|status| status.code() == v1::status::StatusCode::Error),
            start: span.start_time_unix_nano,
        }
    }

    /// The `traceparent` that places other spans under this one.
    pub fn traceparent(&self, flags: &str) -> String {
        format!("00-{}-{}-{flags}", self.trace, self.id)
    }

    #[track_caller]
    pub fn has(&self, expected: &Value) {
        for (key, value) in expected.as_object().unwrap() {
            let found = self.attributes.get(key);
            assert_eq!(found, Some(value), "{key} of {}: {:#?}", self.name, self.attributes);
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn plain(value: Option<Any>) -> Value {
    match value {
        Some(Any::StringValue(text)) => json!(text),
        Some(Any::BoolValue(yes)) => json!(yes),
        Some(Any::IntValue(number)) => json!(number),
        Some(Any::DoubleValue(number)) => json!(number),
        other => panic!("an attribute of a kind that gavel does not send: {other:?}"),
    }
}

/// Lives until the test's runtime ends.
pub struct Collector {
    pub url: String,
    bodies: Arc<Mutex<Vec<Bytes>>>,
}

impl Collector {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let bodies = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&bodies);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let kept = Arc::clone(&kept);
                tokio::spawn(async move {
                    let service = service_fn(move |request| take(request, Arc::clone(&kept)));
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self { url, bodies }
    }

    /// All received data, unchanged.
    pub fn bytes(&self) -> Vec<u8> {
        self.bodies.lock().unwrap().concat()
    }

    fn resources(&self) -> impl Iterator<Item = v1::ResourceSpans> {
        let bodies = self.bodies.lock().unwrap().clone();
        let requests = bodies
            .into_iter()
            .map(|body| ExportTraceServiceRequest::decode(body).unwrap());
        requests.flat_map(|request| request.resource_spans)
    }

    pub fn spans(&self) -> Vec<Span> {
        let scopes = self.resources().flat_map(|resource| resource.scope_spans);
        scopes.flat_map(|scope| scope.spans).map(Span::read).collect()
    }

    /// The names of the services that sent spans, once each.
    pub fn services(&self) -> Vec<Value> {
        let attributes = self
            .resources()
            .flat_map(|resource| resource.resource.unwrap().attributes);
        let mut names: Vec<_> = attributes
            .filter(|pair| pair.key == "service.name")
            .map(|pair| plain(pair.value.unwrap().value))
            .collect();
        names.dedup();
        names
    }
}

async fn take(request: Request<Incoming>, kept: Arc<Mutex<Vec<Bytes>>>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    assert_eq!(request.uri().path(), "/v1/traces");
    assert_eq!(request.headers()["content-type"], "application/x-protobuf");
    let body = request.into_body().collect().await?.to_bytes();
    kept.lock().unwrap().push(body);
    Ok(Response::new(Full::default()))
}
