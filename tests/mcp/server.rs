//! A correct server on rmcp, with tools whose behavior the tests need. It runs in this process over HTTP, or as a child
//! process over stdio (this test binary, started again).

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use hyper_util::rt::{TokioExecutor, TokioIo};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData, InputRequiredResult,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, SubscriptionFilter, Tool,
};
use rmcp::service::{RequestContext, RoleServer, SubscriptionContext};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ServerHandler, ServiceExt};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use super::raw::lane;

/// Reports the server's events to the test.
type Tell = Arc<dyn Fn(String) + Send + Sync>;

#[derive(Clone)]
pub(crate) struct TestServer {
    tell: Tell,
    more_tools: Arc<AtomicBool>,
    changed: Arc<Notify>,
}

impl TestServer {
    pub(crate) fn new(tell: Tell) -> Self {
        Self {
            tell,
            more_tools: Arc::default(),
            changed: Arc::default(),
        }
    }
}

fn tools(more: bool) -> Vec<Tool> {
    let mut names = vec![
        "echo",
        "fail",
        "huge",
        "noise",
        "slow",
        "ask",
        "environment",
        "die",
        "change",
        "cleanupGroupContainers",
    ];
    if more {
        names.push("new");
    }
    let properties = json!({"n": {"type": "integer"}, "user_id": {"type": "string"}, "group": {"type": "string"}});
    let schema = json!({"type": "object", "properties": properties});
    let Value::Object(schema) = schema else { unreachable!() };
    let changed = |name| if more && name == "change" { ", changed" } else { "" };
    names
        .into_iter()
        .map(|name| Tool::new(name, format!("the tool {name}{}", changed(name)), schema.clone()))
        .collect()
}

impl ServerHandler for TestServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(
            ServerCapabilities::builder()
                .enable_tools()
                .enable_tool_list_changed()
                .build(),
        )
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools(
            self.more_tools.load(Ordering::SeqCst),
        )))
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        (self.tell)("listening".to_owned());
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                () = self.changed.notified() => context.sink().notify_tool_list_changed().await.unwrap(),
            }
        }
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let result = match &*request.name {
            "echo" => {
                let meta = Value::Object(context.meta.0.0.clone());
                CallToolResult::structured(json!({"arguments": arguments, "meta": meta}))
            }
            "fail" => CallToolResult::error(vec![ContentBlock::text("it went wrong")]),
            "huge" => {
                let bytes = usize::try_from(arguments["n"].as_u64().unwrap()).unwrap();
                CallToolResult::success(vec![ContentBlock::text("x".repeat(bytes))])
            }
            "noise" => {
                let bytes = usize::try_from(arguments["n"].as_u64().unwrap()).unwrap();
                std::io::Write::write_all(&mut std::io::stdout(), format!("{}\n", "x".repeat(bytes)).as_bytes())
                    .unwrap();
                context.ct.cancelled().await;
                CallToolResult::success(vec![])
            }
            "slow" => {
                (self.tell)("slow began".to_owned());
                context.ct.cancelled().await;
                (self.tell)("slow cancelled".to_owned());
                CallToolResult::success(vec![])
            }
            "ask" => return Ok(InputRequiredResult::from_request_state("state").into()),
            "environment" => {
                let names: Vec<String> = std::env::vars().map(|(name, _)| name).collect();
                CallToolResult::structured(json!({"names": names, "cwd": std::env::current_dir().unwrap()}))
            }
            "die" => {
                (self.tell)("dying".to_owned());
                std::process::abort();
            }
            "change" => {
                self.more_tools.store(true, Ordering::SeqCst);
                self.changed.notify_one();
                // Servers of the session era notify every client.
                let _ = context.peer.notify_tool_list_changed().await;
                CallToolResult::success(vec![])
            }
            "cleanupGroupContainers" => {
                (self.tell)("cleaned up".to_owned());
                CallToolResult::structured(json!({"removed": ["container-1"], "left": []}))
            }
            _ => return Err(ErrorData::invalid_params("unknown tool", None)),
        };
        Ok(result.into())
    }
}

/// The protocol generation of an HTTP server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    /// 2025-11-25 with sessions and event streams.
    Sessions,
    /// 2026-07-28, answering in JSON.
    Stateless,
}

/// A server over HTTP in this process.
pub(crate) struct HttpServer {
    pub(crate) url: String,
    pub(crate) events: mpsc::UnboundedReceiver<String>,
    /// Received requests of the session era without a session, or sessions.
    pub(crate) methods: Arc<Mutex<Vec<String>>>,
    stop: CancellationToken,
    task: Option<tokio::task::JoinHandle<()>>,
}

impl HttpServer {
    pub(crate) async fn start(era: Era) -> Self {
        Self::start_on(era, 0).await
    }

    pub(crate) async fn start_on(era: Era, port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let url = lane::url(listener.local_addr().unwrap().port());
        let (sender, events) = mpsc::unbounded_channel();
        let server = TestServer::new(Arc::new(move |event| {
            let _ = sender.send(event);
        }));
        let stop = CancellationToken::new();
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(era == Era::Sessions)
            .with_json_response(era == Era::Stateless)
            .with_cancellation_token(stop.child_token());
        let service = StreamableHttpService::new(
            move || Ok(server.clone()),
            Arc::new(LocalSessionManager::default()),
            config,
        );
        let methods: Arc<Mutex<Vec<String>>> = Arc::default();
        let task = Some(tokio::spawn(serve(
            listener,
            service,
            methods.clone(),
            era,
            stop.clone(),
        )));
        Self {
            url,
            events,
            methods,
            stop,
            task,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.url
            .rsplit_once(':')
            .unwrap()
            .1
            .strip_suffix("/mcp")
            .unwrap()
            .parse()
            .unwrap()
    }

    /// Closes the listener and every connection, and returns when that is done.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        self.task.take().unwrap().await.unwrap();
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn serve(
    listener: TcpListener,
    service: StreamableHttpService<TestServer, LocalSessionManager>,
    methods: Arc<Mutex<Vec<String>>>,
    era: Era,
    stop: CancellationToken,
) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        let (stream, _) = accepted.unwrap();
        let (service, methods, stop) = (service.clone(), methods.clone(), stop.clone());
        connections.spawn(async move {
            let Some(stream) = lane::accept(stream).await else {
                return;
            };
            let stream = TokioIo::new(stream);
            let answer = hyper::service::service_fn(|request: hyper::Request<hyper::body::Incoming>| {
                let (service, methods) = (service.clone(), methods.clone());
                async move { Ok::<_, Infallible>(route(&service, &methods, era, request).await) }
            });
            let served = async {
                if lane::is_http_2() {
                    let http2 = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    http2.serve_connection(stream, answer).await
                } else {
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(stream, answer)
                        .await
                }
            };
            tokio::select! {
                _ = served => {}
                () = stop.cancelled() => {}
            }
        });
    }
    while connections.join_next().await.is_some() {}
}

type Body = http_body_util::combinators::BoxBody<bytes::Bytes, Infallible>;

async fn route(
    service: &StreamableHttpService<TestServer, LocalSessionManager>,
    methods: &Mutex<Vec<String>>,
    era: Era,
    request: hyper::Request<hyper::body::Incoming>,
) -> hyper::Response<Body> {
    use http_body_util::{BodyExt, Full};
    let (parts, body) = request.into_parts();
    let body = body
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes)
        .unwrap_or_default();
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let method = message["method"].as_str().unwrap_or(parts.method.as_str()).to_owned();
    // rmcp's server supports both eras at once; a server that only knows sessions answers like this.
    let unknown = era == Era::Sessions && method == "server/discover";
    methods.lock().unwrap().push(method);
    if unknown {
        let error = json!({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}});
        return hyper::Response::builder()
            .header("content-type", "application/json")
            .body(Full::from(error.to_string()).boxed())
            .unwrap();
    }
    service.handle(hyper::Request::from_parts(parts, Full::new(body))).await
}

/// A server in a child process: this test binary, which runs nothing but [`stdio_server`].
pub(crate) struct StdioServer {
    pub(crate) entry: Value,
    pub(crate) events: mpsc::UnboundedReceiver<String>,
}

const EVENTS: &str = "GAVEL_TEST_EVENTS";

impl StdioServer {
    pub(crate) async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, events) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let sender = sender.clone();
                tokio::spawn(async move {
                    let mut lines = BufReader::new(stream).lines();
                    while let Ok(Some(line)) = lines.next_line().await {
                        let _ = sender.send(line);
                    }
                });
            }
        });
        let entry = json!({
            "command": std::env::current_exe().unwrap(),
            "args": ["--exact", "server::stdio_server", "--ignored", "--nocapture"],
            "env": {EVENTS: address.to_string()},
        });
        Self { entry, events }
    }
}

/// Not a test: the child process of [`StdioServer`]. The test harness first writes its own lines to stdout ("running 1
/// test"), so every use also shows that noise there is tolerated.
#[test]
#[ignore = "the server that other tests start"]
fn stdio_server() {
    let Ok(address) = std::env::var(EVENTS) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async move {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let (sender, mut events) = mpsc::unbounded_channel::<String>();
        tokio::spawn(async move {
            while let Some(event) = events.recv().await {
                stream.write_all(format!("{event}\n").as_bytes()).await.unwrap();
            }
        });
        let server = TestServer::new(Arc::new(move |event| {
            let _ = sender.send(event);
        }));
        eprintln!("the test server runs");
        std::io::Write::write_all(&mut std::io::stdout(), b"this is no JSON\n").unwrap();
        let running = server.serve(rmcp::transport::stdio()).await.unwrap();
        running.waiting().await.unwrap();
    });
    std::process::exit(0);
}
