//! Streamable HTTP in both eras, against rmcp's server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gavel::domain::tool::FailureCode;
use gavel::ports::tools::Tools;
use serde_json::{Value, json};

use super::raw::{Answer, RawServer};
use super::server::{Era, HttpServer};
use super::support::{Call, PATIENCE, bridge, call, data, failed, http, not_sent, tool, unknown, until, up};

const ERAS: [Era; 2] = [Era::Sessions, Era::Stateless];

async fn event(server: &mut HttpServer, what: &str) {
    let next = tokio::time::timeout(PATIENCE, server.events.recv()).await;
    assert_eq!(next.unwrap_or_else(|_| panic!("never: {what}")).as_deref(), Some(what));
}

/// C-FR-002: a tool is listed and called, and its server receives the acting user.
#[tokio::test]
async fn a_tool_is_listed_and_called_and_receives_the_acting_user() {
    for era in ERAS {
        let server = HttpServer::start(era).await;
        let mcp = bridge(&http(&server.url));
        let catalog = up(&mcp).await;
        assert_eq!(catalog.tools.len(), 10, "{era:?}");
        let data = data(call(&mcp, "echo", json!({"n": 7})).await);
        assert_eq!(data["arguments"], json!({"n": 7}));
        let meta = &data["meta"];
        assert_eq!(meta["gavel/user_id"], "u1");
        assert_eq!(meta["gavel/origin"], "chat");
        assert_eq!(meta["gavel/run_id"], "run-1");
        assert_eq!(meta["gavel/idempotency_key"], "key-1");
        assert!(meta["gavel/action_id"].is_string());
        assert!(meta["traceparent"].as_str().unwrap().starts_with("00-"));
        let status = mcp.status().remove(0);
        let protocol = if era == Era::Sessions {
            "2025-11-25"
        } else {
            "2026-07-28"
        };
        assert_eq!(status.protocol.as_deref(), Some(protocol));
        mcp.shutdown().await;
    }
}

#[tokio::test]
async fn tool_errors_are_distinguished_from_protocol_errors() {
    for era in ERAS {
        let server = HttpServer::start(era).await;
        let mcp = bridge(&http(&server.url));
        let catalog = up(&mcp).await;
        let error = failed(call(&mcp, "fail", json!({})).await);
        assert_eq!(
            (error.code, error.message.as_str()),
            (FailureCode::ToolError, "it went wrong")
        );
        let gone = renamed(&tool(&catalog, "echo"), "nope");
        let error = failed(Call::with(json!({})).of(&mcp, &gone).await);
        assert_eq!(error.code, FailureCode::ProtocolError);
        assert!(error.message.contains("unknown tool"), "{}", error.message);
    }
}

/// A tool of an older generation that the server no longer has.
fn renamed(tool: &gavel::domain::tool::Tool, name: &str) -> std::sync::Arc<gavel::domain::tool::Tool> {
    use gavel::domain::schema::JsonSchema;
    use gavel::domain::tool::Tool;
    std::sync::Arc::new(Tool {
        description: tool.description.clone(),
        input: JsonSchema::compile(tool.input.original().to_owned()).unwrap(),
        model_schema: tool.model_schema.clone(),
        side_effect: tool.side_effect,
        idempotency: tool.idempotency,
        timeout: tool.timeout,
        digest: tool.digest.clone(),
        ..Tool::named(&tool.server, name)
    })
}

#[tokio::test]
async fn an_elicitation_is_an_error_to_the_model() {
    let server = HttpServer::start(Era::Stateless).await;
    let mcp = bridge(&http(&server.url));
    up(&mcp).await;
    assert_eq!(
        failed(call(&mcp, "ask", json!({})).await).code,
        FailureCode::Unsupported
    );
}

#[tokio::test]
async fn a_large_result_is_truncated_and_marked() {
    for era in ERAS {
        let server = HttpServer::start(era).await;
        let mcp = bridge(&http(&server.url));
        up(&mcp).await;
        let data = data(call(&mcp, "huge", json!({"n": 4_000_000})).await);
        let text = data.as_str().unwrap();
        assert!(text.len() <= 256 * 1024 && text.len() > 250 * 1024, "{}", text.len());
        assert!(text.ends_with("[cut: 4000000 bytes in all]"));
    }
}

/// A read-only call that timed out is harmless; a call with a side effect is in doubt.
#[tokio::test]
async fn a_call_that_takes_too_long_is_cancelled_at_the_server() {
    for era in ERAS {
        for (side_effect, code) in [(true, FailureCode::InDoubt), (false, FailureCode::Timeout)] {
            let mut server = HttpServer::start(era).await;
            let mut entry = http(&server.url);
            entry["gavel"] = json!({"tools": {"slow": {"sideEffect": side_effect}}});
            let mcp = bridge(&entry);
            let slow = tool(&*up(&mcp).await, "slow");
            if era == Era::Stateless {
                event(&mut server, "listening").await;
            }
            let call = Call {
                timeout: Duration::from_millis(300),
                ..Call::with(json!({}))
            };
            let failure = unknown(call.of(&mcp, &slow).await);
            assert_eq!(failure.code, code, "{era:?}");
            event(&mut server, "slow began").await;
            event(&mut server, "slow cancelled").await;
        }
    }
}

#[tokio::test]
async fn a_cancelled_run_and_a_dropped_future_reach_the_server() {
    for era in ERAS {
        let mut server = HttpServer::start(era).await;
        let mcp = bridge(&http(&server.url));
        let slow = tool(&*up(&mcp).await, "slow");
        if era == Era::Stateless {
            event(&mut server, "listening").await;
        }
        let call = Call::with(json!({}));
        let cancel = call.cancel.clone();
        let (reply, ()) = tokio::join!(call.of(&mcp, &slow), async {
            event(&mut server, "slow began").await;
            cancel.cancel();
        });
        assert!(unknown(reply).message.contains("cancelled"));
        event(&mut server, "slow cancelled").await;

        tokio::select! {
            _ = Call::with(json!({})).of(&mcp, &slow) => panic!("it ends only when cancelled"),
            () = event(&mut server, "slow began") => {}
        }
        event(&mut server, "slow cancelled").await;
    }
}

/// C-FR-008: sixty-four concurrent calls each carry their own user.
#[tokio::test]
async fn sixty_four_calls_at_once_carry_their_own_users() {
    for era in ERAS {
        let server = HttpServer::start(era).await;
        let mcp = bridge(&http(&server.url));
        let echo = tool(&*up(&mcp).await, "echo");
        let users: Vec<String> = (0..64).map(|n| format!("user-{n}")).collect();
        let calls = users.iter().map(|user| {
            let (mcp, echo) = (&mcp, &echo);
            async move {
                let reply = Call {
                    user,
                    ..Call::with(json!({}))
                }
                .of(mcp, echo)
                .await;
                assert_eq!(data(reply)["meta"]["gavel/user_id"], user.as_str());
            }
        });
        futures_util::future::join_all(calls).await;
        let initialized = server
            .methods
            .lock()
            .unwrap()
            .iter()
            .filter(|method| *method == "initialize")
            .count();
        assert_eq!(initialized, usize::from(era == Era::Sessions), "one connection for all");
    }
}

#[tokio::test]
async fn a_changed_list_of_tools_is_a_new_generation_and_the_old_one_stays() {
    for era in ERAS {
        let mut server = HttpServer::start(era).await;
        let mcp = bridge(&http(&server.url));
        let before = up(&mcp).await;
        if era == Era::Stateless {
            event(&mut server, "listening").await;
        }
        data(call(&mcp, "change", json!({})).await);
        until(&mcp, |mcp| mcp.catalog().tools.iter().any(|tool| &*tool.name == "new")).await;
        assert!(mcp.catalog().generation > before.generation);
        assert_eq!(before.tools.len(), 10);
        let (old, new) = (tool(&before, "echo"), tool(&mcp.catalog(), "echo"));
        assert!(
            std::sync::Arc::ptr_eq(&old, &new),
            "a tool that did not change is the same value"
        );
    }
}

/// A raw server of the 2026-07-28 era with these tools.
async fn stateless(tools: impl Fn() -> Value + Send + Sync + 'static) -> (RawServer, Arc<Mutex<Vec<String>>>) {
    let heads: Arc<Mutex<Vec<String>>> = Arc::default();
    let received = heads.clone();
    let server = RawServer::start(move |request| {
        let fresh = json!({"ttlMs": 0, "cacheScope": "private", "resultType": "complete"});
        let with = |members: Value| {
            let mut result = fresh.clone();
            result
                .as_object_mut()
                .unwrap()
                .extend(members.as_object().unwrap().clone());
            Some(Answer::Result(result))
        };
        match request.method() {
            "server/discover" => with(json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})),
            "tools/list" => with(json!({"tools": tools()})),
            "tools/call" => {
                received.lock().unwrap().push(request.head.clone());
                with(json!({"content": []}))
            }
            _ => None,
        }
    })
    .await;
    (server, heads)
}

/// C-FR-002: for a tool that is listed later as for the first ones, and for a name that a header cannot carry
/// unencoded.
#[tokio::test]
async fn required_headers_of_a_tool_are_sent_whenever_it_was_listed() {
    let more = Arc::new(AtomicBool::new(false));
    let has_more = more.clone();
    let (server, heads) = stateless(move || {
        let region = json!({"type": "string", "x-mcp-header": "Region"});
        let tool =
            |name: &str| json!({"name": name, "inputSchema": {"type": "object", "properties": {"region": region}}});
        let mut tools = vec![tool("first")];
        if has_more.load(Ordering::SeqCst) {
            // A malformed tool does not affect its neighbors' headers.
            tools.extend([tool("later"), tool("später"), json!({"name": "half"})]);
        }
        json!(tools)
    })
    .await;
    let mcp = bridge(&http(&server.url));
    up(&mcp).await;
    assert_eq!(mcp.status()[0].protocol.as_deref(), Some("2026-07-28"));
    more.store(true, Ordering::SeqCst);
    mcp.refresh("s").await.unwrap();
    for (name, header) in [
        ("first", "mcp-name: first\r\n"),
        ("later", "mcp-name: later\r\n"),
        ("später", "mcp-name: =?base64?c3ddphrlcg==?=\r\n"),
    ] {
        data(call(&mcp, name, json!({"region": "eu-1"})).await);
        let head = heads.lock().unwrap().pop().unwrap();
        for header in [header, "mcp-method: tools/call\r\n", "mcp-param-region: eu-1\r\n"] {
            assert!(head.contains(header), "{name}: {head}");
        }
    }
}

#[tokio::test]
async fn a_server_that_restarts_is_used_again_without_a_restart_of_gavel() {
    for era in ERAS {
        let server = HttpServer::start(era).await;
        let port = server.port();
        let mcp = bridge(&http(&server.url));
        let echo = tool(&*up(&mcp).await, "echo");
        data(call(&mcp, "echo", json!({})).await);
        server.stop().await;
        // Down: nothing is sent, and that is known.
        let failure = not_sent(Call::with(json!({})).of(&mcp, &echo).await);
        assert_eq!(failure.code, FailureCode::Unavailable, "{era:?}");
        until(&mcp, |mcp| mcp.catalog().down.contains_key("s")).await;
        let _server = HttpServer::start_on(era, port).await;
        until(&mcp, |mcp| mcp.catalog().down.is_empty()).await;
        data(call(&mcp, "echo", json!({})).await);
    }
}

#[tokio::test]
async fn a_lost_session_is_reopened_and_the_call_is_made_once() {
    let server = HttpServer::start(Era::Sessions).await;
    let port = server.port();
    let mcp = bridge(&http(&server.url));
    up(&mcp).await;
    // The server restarts between two calls and does not know the session.
    server.stop().await;
    let server = HttpServer::start_on(Era::Sessions, port).await;
    data(call(&mcp, "echo", json!({})).await);
    let methods = server.methods.lock().unwrap().clone();
    assert!(methods.iter().any(|method| method == "initialize"), "{methods:?}");
}

#[tokio::test]
async fn a_user_can_have_their_own_connection() {
    let server = HttpServer::start(Era::Sessions).await;
    let mut entry = http(&server.url);
    entry["gavel"] = json!({"connection": "per_user"});
    let mcp = bridge(&entry);
    let echo = tool(&*up(&mcp).await, "echo");
    for user in ["anna", "ben", "anna"] {
        let reply = Call {
            user,
            ..Call::with(json!({}))
        }
        .of(&mcp, &echo)
        .await;
        assert_eq!(data(reply)["meta"]["gavel/user_id"], user);
    }
    assert_eq!(mcp.status()[0].users, 2);
    let initialized = server
        .methods
        .lock()
        .unwrap()
        .iter()
        .filter(|method| *method == "initialize")
        .count();
    assert_eq!(initialized, 3, "one for listing and two for users");
}

#[tokio::test]
async fn an_identity_token_is_signed_for_the_server_and_the_user() {
    let server = HttpServer::start(Era::Stateless).await;
    let secret = "0123456789abcdef0123456789abcdef";
    let text = json!({"mcpServers": {"tasks": {"url": server.url, "gavel": {"identity": "token"}}}}).to_string();
    let config = gavel::adapters::mcp::McpConfig::from_file("mcp.json", &text, &|name| {
        (name == "GAVEL_IDENTITY_SECRET").then(|| secret.to_owned())
    })
    .unwrap();
    let mcp = gavel::adapters::mcp::Mcp::start(config, Default::default()).unwrap();
    up(&mcp).await;
    let token = data(call(&mcp, "echo", json!({})).await)["meta"]["gavel/identity"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut validation = jsonwebtoken::Validation::new(jsonwebtoken::Algorithm::HS256);
    validation.set_audience(&["tasks"]);
    let key = jsonwebtoken::DecodingKey::from_secret(secret.as_bytes());
    let claims = jsonwebtoken::decode::<serde_json::Value>(&token, &key, &validation)
        .unwrap()
        .claims;
    assert_eq!((&claims["sub"], &claims["iss"]), (&json!("u1"), &json!("gavel")));
}

/// Start to first answer ≤ 300 ms leaves little for this.
#[tokio::test]
async fn ready_waits_for_a_server_that_is_being_connected_and_only_for_that() {
    let server = HttpServer::start(Era::Sessions).await;
    let mcp = bridge(&http(&server.url));
    mcp.ready(&["echo".to_owned()], Instant::now() + PATIENCE).await;
    assert_eq!(tool(&mcp.catalog(), "echo").name.as_ref(), "echo");
}
