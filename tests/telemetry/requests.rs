//! One request, one trace: through the whole system, from the caller's span to the MCP server's.

use std::time::Duration;

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use serde_json::{Value, json};

use crate::gemini::Reply;
use crate::harness::Database;
use crate::process::{SERVICE, start};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

fn traceparent(flags: &str) -> String {
    format!("00-{TRACE}-{CALLER}-{flags}")
}

fn adding() -> Vec<Reply> {
    vec![
        Reply::call("add_task", json!({"description": "canary-argument"})),
        Reply::Text("canary-answer"),
    ]
}

/// Spans are a projection of the journal, trace context reaches the servers, secrets reach no trace.
#[tokio::test]
async fn a_request_is_one_trace_from_its_caller_to_the_tool_and_the_record() {
    for (database, system) in [(Database::Sqlite, "sqlite"), (Database::Postgres, "postgresql")] {
        let gavel = start(adding(), database, true).await;
        let caller = traceparent("01");
        let headers = [
            ("traceparent", caller.as_str()),
            ("idempotency-key", "canary-idempotency"),
            ("authorization", "Bearer canary-caller"),
        ];
        let answer: Value = serde_json::from_str(&gavel.chat("/v1/chat", &headers).await).unwrap();
        let trace = gavel.collector.request("POST /v1/chat").await;
        assert_eq!(gavel.collector.services(), [SERVICE]);
        assert_eq!(
            trace.lines(),
            [
                "POST /v1/chat",
                "  invoke_agent task-assistant",
                "    COMMIT claim",
                "    generate_content gemini-3.5-flash",
                "      model_attempt",
                "    COMMIT intend",
                "    execute_tool add_task",
                "    generate_content gemini-3.5-flash",
                "      model_attempt",
                "    COMMIT close",
            ]
        );
        let root = &trace.root;
        assert_eq!((root.trace.as_str(), root.parent.as_str()), (TRACE, CALLER));
        assert_eq!(root.kind, SpanKind::Server);
        root.has(&json!({
            "http.request.method": "POST", "http.route": "/v1/chat", "url.path": "/v1/chat", "url.scheme": "http",
            "http.response.status_code": 200, "network.protocol.version": "1.1",
        }));
        let decision = trace.named("invoke_agent task-assistant")[0];
        assert_eq!(decision.kind, SpanKind::Internal);
        decision.has(&json!({
            "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "task-assistant",
            "gavel.decision.id": answer["decision_id"], "gavel.decision.type": "INVOKE_TOOL",
            "gavel.decision.outcome": "SUCCESS:TASK_COMPLETED", "gavel.decision.iterations": 2,
        }));
        for call in trace.named("generate_content gemini-3.5-flash") {
            assert_eq!(call.kind, SpanKind::Client);
            call.has(&json!({
                "gen_ai.operation.name": "generate_content", "gen_ai.provider.name": "gcp.gemini",
                "gen_ai.request.model": "gemini-3.5-flash", "gen_ai.response.model": "gemini-3.5-flash",
                "gen_ai.request.stream": false, "gen_ai.usage.input_tokens": 100,
                "gen_ai.usage.output_tokens": 15, "gen_ai.usage.reasoning.output_tokens": 5,
            }));
        }
        let tool = trace.named("execute_tool add_task")[0];
        assert_eq!(tool.kind, SpanKind::Client);
        tool.has(&json!({
            "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "add_task",
            "mcp.method.name": "tools/call", "gavel.mcp.server": "peer",
        }));
        assert_eq!(gavel.reported(), [json!(tool.traceparent("01"))]);
        trace.named("COMMIT close")[0].has(&json!({"db.system.name": system, "db.operation.name": "COMMIT"}));
        gavel.assert_no_canary_is_traced();
    }
}

/// Attempts are below their call, and a failure has its cause.
#[tokio::test]
async fn a_streamed_request_shows_repeated_attempts_and_failed_calls() {
    let script = vec![
        Reply::error(503, "UNAVAILABLE", json!([])),
        Reply::call("list_tasks", json!({})),
        Reply::Text("canary-answer"),
    ];
    let gavel = start(script, Database::Sqlite, true).await;
    gavel.chat("/v1/chat/stream", &[]).await;
    let trace = gavel.collector.request("POST /v1/chat/stream").await;
    assert_eq!(
        trace.lines(),
        [
            "POST /v1/chat/stream",
            "  invoke_agent task-assistant !",
            "    generate_content gemini-3.5-flash",
            "      model_attempt !",
            "      model_attempt",
            "    execute_tool list_tasks !",
            "    generate_content gemini-3.5-flash",
            "      model_attempt",
            "    COMMIT close",
        ]
    );
    assert_eq!(trace.root.parent, "", "its caller sent no trace");
    let attempts = trace.named("model_attempt");
    attempts[0]
        .has(&json!({"error.type": "unavailable", "server.address": "127.0.0.1", "http.request.method": "POST"}));
    assert!(!attempts[0].attributes.contains_key("http.request.resend_count"));
    attempts[1].has(&json!({"http.request.resend_count": 1}));
    trace.named("execute_tool list_tasks")[0].has(&json!({"error.type": "tool_error"}));
    trace.named("invoke_agent task-assistant")[0].has(&json!({"error.type": "ERROR:TOOL_INVOCATION"}));
    gavel.assert_no_canary_is_traced();
}

/// C-EC-1: an error is marked as one in its trace.
#[tokio::test]
async fn a_failed_decision_is_marked_and_its_request_is_answered() {
    let gavel = start(
        vec![Reply::error(400, "INVALID_ARGUMENT", json!([]))],
        Database::Sqlite,
        true,
    )
    .await;
    gavel.chat("/v1/chat", &[]).await;
    let trace = gavel.collector.request("POST /v1/chat").await;
    assert_eq!(
        trace.lines(),
        [
            "POST /v1/chat",
            "  invoke_agent task-assistant !",
            "    generate_content gemini-3.5-flash !",
            "      model_attempt !",
            "    COMMIT close",
        ]
    );
    trace.named("invoke_agent task-assistant")[0].has(&json!({"error.type": "ERROR:MODEL_UNAVAILABLE"}));
    gavel.assert_no_canary_is_traced();
}

/// A replayed answer is not a second decision in its trace either.
#[tokio::test]
async fn a_replayed_answer_is_traced_as_one() {
    let gavel = start(adding(), Database::Sqlite, true).await;
    for _ in 0..2 {
        gavel
            .chat("/v1/chat", &[("idempotency-key", "canary-idempotency")])
            .await;
    }
    let traces = gavel.collector.requests("POST /v1/chat", 2).await;
    let replay = ["POST /v1/chat", "  invoke_agent task-assistant", "    COMMIT claim"];
    assert_eq!(traces[1].lines(), replay);
    assert_ne!(traces[0].root.trace, traces[1].root.trace);
    let decisions = gavel.collector.named("invoke_agent task-assistant", 2).await;
    decisions[1].has(&json!({"gavel.decision.replayed": true}));
    assert!(!decisions[1].attributes.contains_key("gavel.decision.id"));
}

/// A disconnect does not cancel the decision.
#[tokio::test]
async fn the_decision_of_a_disconnected_client_is_in_its_trace() {
    let late = Reply::After(Duration::from_millis(500), Box::new(Reply::Text("canary-answer")));
    let gavel = start(vec![late], Database::Sqlite, true).await;
    gavel.leave_after(Duration::from_millis(100)).await;
    let decision = gavel.collector.named("invoke_agent task-assistant", 1).await.remove(0);
    let request = gavel.collector.named("POST /v1/chat", 1).await.remove(0);
    assert!(request.failed);
    request.has(&json!({"error.type": "client_left"}));
    assert!(!request.attributes.contains_key("http.response.status_code"));
    assert_eq!((&decision.trace, &decision.parent), (&request.trace, &request.id));
    decision.has(&json!({"gavel.decision.outcome": "SUCCESS:RESPONSE_GIVEN"}));
}

#[tokio::test]
async fn other_requests_are_traced_by_their_route_and_probes_are_not() {
    let gavel = start(adding(), Database::Sqlite, true).await;
    for path in ["/livez", "/readyz", "/metrics", "/docs"] {
        gavel.get(path).await;
    }
    assert_eq!(gavel.get("/canary-path?key=canary").await, 404);
    let trace = gavel.collector.request("GET unmatched").await;
    assert_eq!(
        trace.lines(),
        ["GET unmatched"],
        "a client error is not an error of the trace"
    );
    trace.root.has(&json!({"http.response.status_code": 404}));
    let mut names: Vec<_> = gavel.collector.spans().into_iter().map(|span| span.name).collect();
    names.sort();
    assert_eq!(names, ["GET /docs", "GET unmatched"]);
    gavel.assert_no_canary_is_traced();
}

/// W3C Trace Context: the decision of a caller not to sample is respected, and its trace context is still passed on.
#[tokio::test]
async fn the_sampling_decision_of_the_caller_is_respected() {
    let gavel = start(adding(), Database::Sqlite, true).await;
    gavel.chat("/v1/chat", &[("traceparent", &traceparent("00"))]).await;
    gavel.get("/docs").await;
    gavel.collector.request("GET /docs").await;
    let traced: Vec<_> = gavel.collector.spans().into_iter().map(|span| span.name).collect();
    assert_eq!(traced, ["GET /docs"]);
    let reported = gavel.reported();
    let reported = reported[0].as_str().unwrap();
    assert!(
        reported.starts_with(&format!("00-{TRACE}-")) && reported.ends_with("-00"),
        "{reported}"
    );
}

/// Trace context reaches the servers even if gavel itself is not traced.
#[tokio::test]
async fn without_a_collector_the_callers_trace_context_is_passed_on_unchanged() {
    let gavel = start(adding(), Database::Sqlite, false).await;
    gavel.chat("/v1/chat", &[("traceparent", &traceparent("01"))]).await;
    assert_eq!(gavel.reported(), [json!(traceparent("01"))]);
    assert_eq!(gavel.collector.bytes(), b"");
}
