//! A stand-in for GitHub: a real HTTP server with repositories, pull requests and issues. It counts requests, checks
//! them against GitHub's description, and fails on demand.

mod body;
mod routes;
mod state;

use std::collections::VecDeque;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use url::form_urlencoded;

use self::body::Bytewise;
use crate::description;
pub(crate) use state::State;

pub(crate) const TOKEN: &str = "github_pat_canary-fixed-token";

/// How one request fails.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// Refused before anything is done: a status, headers, a message.
    Refuse(u16, Vec<(&'static str, String)>, &'static str),
    /// Nothing is done, and the connection is cut.
    CutBefore,
    /// Done, then the connection is cut.
    CutAfter,
    /// Done, then answered with this status.
    FailAfter(u16),
    /// Done, and the answer's bytes never end.
    SlowAfter,
    /// Done, and answered once the test says so.
    HeldAfter(Arc<Notify>),
}

/// A received request.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) body: Option<Value>,
    pub(crate) token: String,
    pub(crate) at: Instant,
    pub(crate) status: u16,
}

struct Planned {
    method: &'static str,
    /// The end of the path.
    path: &'static str,
    faults: VecDeque<Fault>,
}

#[derive(Default)]
struct Inner {
    state: State,
    planned: Vec<Planned>,
    seen: Vec<Seen>,
    invalid: Vec<String>,
}

/// The stand-in; clones share its state.
#[derive(Clone)]
pub(crate) struct GitHub {
    pub(crate) address: SocketAddr,
    inner: Arc<Mutex<Inner>>,
}

/// Answers every request that arrives here, until the test ends. `None` cuts the connection.
pub(crate) fn serve<A, F, B>(listener: TcpListener, answer: A)
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Option<Response<B>>> + Send + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = answer.clone();
            let service = service_fn(move |request| {
                let answered = answer(request);
                async move { answered.await.ok_or_else(|| std::io::Error::other("cut")) }
            });
            tokio::spawn(async move {
                // A connection that is cut ends in an error, as intended.
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
}

/// What a route answers.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Value,
}

impl Reply {
    pub(crate) fn of(status: u16, body: Value) -> Self {
        let headers = Vec::new();
        Self { status, headers, body }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn refusal(status: u16, message: &str) -> Self {
        Self::of(
            status,
            json!({ "message": message, "documentation_url": "https://docs.github.com/rest" }),
        )
    }
}

impl GitHub {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let github = Self {
            address: listener.local_addr().expect("an address"),
            inner: Arc::default(),
        };
        // Before the first request, which must not wait for it.
        let loaded = tokio::task::spawn_blocking(description::description).await;
        loaded.expect("a description");
        let served = github.clone();
        serve(listener, move |request| {
            let github = served.clone();
            async move { github.answer(request).await }
        });
        github
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Reads or changes what there is.
    pub(crate) fn state<T>(&self, with: impl FnOnce(&mut State) -> T) -> T {
        with(&mut self.inner().state)
    }

    /// The next requests of this method, with a path that ends so, fail like this.
    pub(crate) fn fail(&self, method: &'static str, path: &'static str, faults: impl IntoIterator<Item = Fault>) {
        let faults = faults.into_iter().collect();
        self.inner().planned.push(Planned { method, path, faults });
    }

    pub(crate) fn seen(&self, method: &str) -> Vec<Seen> {
        let inner = self.inner();
        inner
            .seen
            .iter()
            .filter(|seen| seen.method == method)
            .cloned()
            .collect()
    }

    /// Fails the test if a request or an answer did not match GitHub's description.
    pub(crate) fn finish(&self) {
        let invalid = std::mem::take(&mut self.inner().invalid);
        assert!(invalid.is_empty(), "{invalid:#?}");
    }

    /// `None` cuts the connection.
    async fn answer(&self, request: Request<Incoming>) -> Option<Response<Bytewise>> {
        let (parts, body) = request.into_parts();
        let bytes = body.collect().await.ok()?.to_bytes();
        let header = |name: &str| {
            parts
                .headers
                .get(name)
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
        };
        let seen = Seen {
            method: parts.method.to_string(),
            path: parts.uri.path().to_owned(),
            query: form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes())
                .into_owned()
                .collect(),
            body: (!bytes.is_empty()).then(|| serde_json::from_slice(&bytes).expect("JSON")),
            token: header("authorization").trim_start_matches("Bearer ").to_owned(),
            at: Instant::now(),
            status: 0,
        };
        let etag = header("if-none-match").to_owned();
        let is_odd = header("x-github-api-version") != "2022-11-28" || header("user-agent").is_empty();
        let (fault, reply) = self.took_place(seen, is_odd, &etag);
        match &fault {
            Some(Fault::CutBefore | Fault::CutAfter) => return None,
            Some(Fault::HeldAfter(released)) => released.notified().await,
            _ => {}
        }
        let mut response = Response::builder().status(reply.status);
        for (name, value) in &reply.headers {
            response = response.header(*name, value);
        }
        let body = if reply.body.is_null() {
            Vec::new()
        } else {
            reply.body.to_string().into_bytes()
        };
        let slow = matches!(fault, Some(Fault::SlowAfter));
        response.body(Bytewise::new(body, slow)).ok()
    }

    /// What a request leads to, with its fault.
    fn took_place(&self, seen: Seen, is_odd: bool, etag: &str) -> (Option<Fault>, Reply) {
        let mut inner = self.inner();
        if is_odd {
            inner.invalid.push(format!("{} {}: headers", seen.method, seen.path));
        }
        let fault = inner.planned.iter_mut().find_map(|planned| {
            let fits = planned.method == seen.method && seen.path.ends_with(planned.path);
            fits.then(|| planned.faults.pop_front()).flatten()
        });
        let mut reply = match &fault {
            Some(Fault::CutBefore) => Reply::of(0, Value::Null),
            Some(Fault::Refuse(status, headers, message)) => Reply {
                headers: headers.clone(),
                ..Reply::refusal(*status, message)
            },
            _ => self.checked(&mut inner, &seen),
        };
        if let Some(Fault::FailAfter(status)) = fault {
            reply = Reply::refusal(status, "Bad Gateway");
        }
        let tag = format!("\"{:x}\"", crc(&reply.body.to_string()));
        if seen.method == "GET" && reply.status == 200 {
            if etag == tag {
                reply = Reply::of(304, Value::Null);
            }
            reply = reply.with("etag", tag);
        }
        let status = reply.status;
        inner.seen.push(Seen { status, ..seen });
        (fault, reply)
    }

    /// The answer of a request, both checked against GitHub's description.
    fn checked(&self, inner: &mut Inner, seen: &Seen) -> Reply {
        let described = description::description();
        let operation = described.and_then(|described| described.operation(&seen.method, &seen.path));
        // What a redirect leads to is not described.
        let is_by_id = seen.path.starts_with("/repositories/");
        match (described, operation) {
            (Some(described), Some(operation)) => {
                let errors = described.check_request(operation, &seen.query, seen.body.as_ref());
                inner.invalid.extend(errors);
            }
            (Some(_), None) if !is_by_id => inner.invalid.push(format!("{} {}: unknown", seen.method, seen.path)),
            _ => {}
        }
        let mut reply = routes::route(&mut inner.state, seen, &self.url());
        if let (Some(described), Some(operation)) = (described, operation) {
            reply.body = described.filled(operation, reply.status, reply.body);
            inner
                .invalid
                .extend(described.check_answer(operation, reply.status, &reply.body));
        }
        reply
    }
}

fn crc(text: &str) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
