use rmcp::ClientLifecycleMode;
use rmcp::model::{ErrorCode, Tool};
use rmcp::service::ServiceError;
use serde_json::{Value, json};

use crate::harness::{Caller, Client, Credentials, Database, Wire, World, discover, http_client, stdio_client, web};

async fn clients(world: &World, lifecycle: impl Fn() -> ClientLifecycleMode) -> [Client; 2] {
    [
        stdio_client(&world.url, &[], lifecycle()).await,
        http_client(world.address(), lifecycle()).await,
    ]
}

/// C-FR-002
#[tokio::test]
async fn both_lifecycles_work_on_both_transports() {
    let world = World::new(Wire::Http, Database::Sqlite).await;
    let lifecycles: [fn() -> ClientLifecycleMode; 2] = [|| ClientLifecycleMode::Initialize, discover];
    for lifecycle in lifecycles {
        for client in clients(&world, lifecycle).await {
            let server = client.peer_info().expect("the server introduced itself");
            let implementation = server.server_info.clone().expect("a name");
            assert_eq!(implementation.name, "gavel-mcp-tasks");
            assert_eq!(implementation.version, env!("CARGO_PKG_VERSION"));
            assert!(server.instructions.as_ref().is_some_and(|text| !text.is_empty()));
            let mut caller = Caller::new(client, Credentials::Plain("anna".to_owned())).await;
            let mut reply = caller.call("list_tasks", json!({})).await;
            if reply.is_error {
                caller.credentials = Credentials::Signed("anna".to_owned());
                reply = caller.call("list_tasks", json!({})).await;
            }
            assert_eq!(reply.ok()["total"], 0);
        }
    }
}

/// C-FR-009
#[tokio::test]
async fn the_five_tools_are_listed_in_one_order_with_honest_annotations() {
    let world = World::new(Wire::Http, Database::Sqlite).await;
    let [stdio, http] = clients(&world, || ClientLifecycleMode::Initialize).await;
    let tools = stdio.list_all_tools().await.expect("tools");
    assert_eq!(tools, http.list_all_tools().await.expect("tools"));
    assert_eq!(tools, stdio.list_all_tools().await.expect("tools"));
    let hints: Vec<_> = tools
        .iter()
        .map(|tool| {
            let hints = tool.annotations.as_ref().expect("annotations");
            assert_eq!(hints.open_world_hint, Some(false));
            let key = tool.meta.as_ref().and_then(|meta| meta.get("gavel/idempotency"));
            (
                tool.name.as_ref(),
                hints.read_only_hint.expect("a hint"),
                hints.destructive_hint.expect("a hint"),
                hints.idempotent_hint.expect("a hint"),
                key.and_then(Value::as_str),
            )
        })
        .collect();
    assert_eq!(
        hints,
        [
            ("add_task", false, false, false, Some("key")),
            ("list_tasks", true, false, true, None),
            ("update_task", false, true, false, Some("key")),
            ("complete_task", false, false, true, Some("key")),
            ("delete_task", false, true, false, Some("key")),
        ]
    );
}

/// C-FR-012: only what the Gemini API supports in `parametersJsonSchema`.
#[tokio::test]
async fn input_schemas_keep_to_what_gemini_takes() {
    const KNOWN: [&str; 10] = [
        "type",
        "description",
        "properties",
        "required",
        "additionalProperties",
        "enum",
        "minLength",
        "maxLength",
        "minimum",
        "maximum",
    ];
    fn check(tool: &str, schema: &Value, root: bool) {
        let object = schema.as_object().expect("a schema is an object");
        for keyword in object.keys() {
            assert!(KNOWN.contains(&keyword.as_str()), "{tool}: {keyword}");
        }
        if !root {
            let described = object.get("description").and_then(Value::as_str);
            assert!(described.is_some_and(|text| text.len() > 15), "{tool}: {schema}");
        }
        for property in object
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            check(tool, property.1, false);
        }
    }
    let world = World::new(Wire::Http, Database::Sqlite).await;
    let client = http_client(world.address(), discover()).await;
    for tool in client.list_all_tools().await.expect("tools") {
        let schema = Value::Object((*tool.input_schema).clone());
        assert_eq!(schema["type"], "object");
        assert_eq!(schema["additionalProperties"], false);
        check(&tool.name, &schema, true);
    }
}

/// C-FR-012
#[tokio::test]
async fn schemas_and_the_server_agree_on_which_arguments_there_are() {
    let world = World::new(Wire::Http, Database::Sqlite).await;
    let anna = world.caller("anna").await;
    let names = |tool: &Tool| -> Vec<String> {
        let properties = tool.input_schema["properties"].as_object();
        properties.expect("properties").keys().cloned().collect()
    };
    for tool in anna.client.list_all_tools().await.expect("tools") {
        let reply = anna.call(&tool.name, json!({ "no such": 1 })).await;
        assert_eq!(reply.code(), "unknown_argument");
        let allowed = reply.error()["allowed"].as_array().expect("names");
        let mut allowed: Vec<_> = allowed.iter().map(|name| name.as_str().expect("a name")).collect();
        allowed.sort_unstable();
        let mut described = names(&tool);
        described.sort_unstable();
        assert_eq!(allowed, described, "{}", tool.name);
    }
}

/// C-FR-012
#[tokio::test]
async fn an_unknown_tool_is_a_protocol_error() {
    let world = World::new(Wire::Http, Database::Sqlite).await;
    for client in clients(&world, discover).await {
        let caller = Caller::new(client, Credentials::None).await;
        for name in ["drop_tasks", "", "add_task ", "ADD_TASK"] {
            let error = caller.try_call(name, json!({}), json!({})).await;
            let Err(ServiceError::McpError(error)) = error else {
                panic!("{name}: {error:?}");
            };
            assert_eq!(error.code, ErrorCode::INVALID_PARAMS, "{name}");
        }
    }
}

/// C-FR-009: a client is offered only what the server has, in both lifecycles.
#[tokio::test]
async fn only_tools_are_declared() {
    let world = World::new(Wire::Http, Database::Sqlite).await;
    let lifecycles: [fn() -> ClientLifecycleMode; 2] = [|| ClientLifecycleMode::Initialize, discover];
    for lifecycle in lifecycles {
        for client in clients(&world, lifecycle).await {
            let declared = &client.peer_info().expect("the server introduced itself").capabilities;
            assert!(declared.prompts.is_none() && declared.resources.is_none() && declared.completions.is_none());
        }
    }
}

fn initialize() -> Value {
    json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" }
        }
    })
}

async fn post(world: &World, headers: &[(&str, &str)], body: String) -> reqwest::Response {
    let mut request = web()
        .post(format!("http://{}/mcp", world.address()))
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .body(body);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.send().await.expect("an answer")
}

/// C-FR-002
#[tokio::test]
async fn http_is_stateless_and_answers_in_json() {
    let world = World::new(Wire::Http, Database::Sqlite).await;
    let answer = post(&world, &[], initialize().to_string()).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["content-type"], "application/json");
    assert!(answer.headers().get("mcp-session-id").is_none());
    let body: Value = answer.json().await.expect("JSON");
    assert_eq!(body["result"]["protocolVersion"], "2025-06-18");
}

/// C-FR-002
#[tokio::test]
async fn other_paths_and_methods_are_not_served() {
    let world = World::new(Wire::Http, Database::Sqlite).await;
    let base = format!("http://{}", world.address());
    let status = async |method: reqwest::Method, path: &str| {
        let request = web().request(method, format!("{base}{path}"));
        request.send().await.expect("an answer").status().as_u16()
    };
    use reqwest::Method;
    assert_eq!(status(Method::GET, "/healthz").await, 200);
    for path in ["/", "/mcp/", "/mcp/x", "/healthz/", "/metrics", "/%2e%2e"] {
        assert_eq!(status(Method::GET, path).await, 404, "{path}");
        assert_eq!(status(Method::POST, path).await, 404, "{path}");
    }
    assert_eq!(status(Method::GET, "/mcp").await, 405);
    assert_eq!(status(Method::DELETE, "/mcp").await, 405);
}

/// C-FR-012
#[tokio::test]
async fn invalid_http_requests_are_refused_and_the_server_continues() {
    let world = World::new(Wire::Http, Database::Sqlite).await;
    let cases = [
        (String::new(), 400..=415),
        ("{".to_owned(), 400..=415),
        ("[]".to_owned(), 400..=422),
        ("[".repeat(100_000), 400..=422),
        ("null".to_owned(), 400..=422),
        ("x".repeat(300_000), 413..=413),
    ];
    for (body, allowed) in cases {
        let start: String = body.chars().take(20).collect();
        let status = post(&world, &[], body).await.status().as_u16();
        assert!(allowed.contains(&status), "{start}: {status}");
    }
    world.caller("anna").await.add("still here").await;
}

/// C-FR-009
#[tokio::test]
async fn web_pages_and_foreign_host_names_are_kept_out() {
    let world = World::new(Wire::Http, Database::Sqlite).await;
    let port = world.address().port();
    let local = format!("http://localhost:{port}");
    let cases: [(&str, &str, u16); 7] = [
        ("host", "evil.example", 403),
        ("host", "localhost", 200),
        ("host", "[::1]:80", 200),
        ("origin", "http://evil.example", 403),
        ("origin", "null", 403),
        ("origin", "http://localhost.evil.example", 403),
        ("origin", &local, 200),
    ];
    for (name, value, status) in cases {
        let answer = post(&world, &[(name, value)], initialize().to_string()).await;
        assert_eq!(answer.status().as_u16(), status, "{name}: {value}");
    }
}

/// C-FR-009
#[tokio::test]
async fn allowed_hosts_can_be_named() {
    use gavel_mcp_tasks::{Args, HttpServer};
    let world = World::new(Wire::Stdio, Database::Sqlite).await;
    let cases: [(&[&str], &str, u16); 6] = [
        (&["tasks.internal"], "tasks.internal:8090", 200),
        (&["tasks.internal"], "localhost", 403),
        (&["tasks.internal:8090"], "tasks.internal:8090", 200),
        (&["tasks.internal:8090"], "tasks.internal:8091", 403),
        (&["*"], "anything.example", 200),
        (&["a.example", "b.example"], "b.example", 200),
    ];
    for (hosts, host, status) in cases {
        let args = Args {
            allowed_hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            ..world.http_args()
        };
        let server = HttpServer::bind(args).await.expect("the server starts");
        let url = format!("http://{}/mcp", server.address());
        let stop = tokio_util::sync::CancellationToken::new();
        let served = tokio::spawn(server.serve(stop.clone()));
        let answer = web()
            .post(url)
            .header("host", host)
            .header("accept", "application/json, text/event-stream")
            .json(&initialize())
            .send()
            .await
            .expect("an answer");
        assert_eq!(answer.status().as_u16(), status, "{hosts:?} {host}");
        stop.cancel();
        served.await.expect("no panic").expect("a good end");
    }
}
