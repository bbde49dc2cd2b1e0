//! External text as commands print it, from users, models and servers: it cannot control a terminal, reverse the text,
//! or hide. A server that is not a gavel gets neither the key nor unlimited time.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::harness::Place;

/// Moves the cursor and sets a title, by C0 and by C1; changes the direction; invisible characters.
const EVIL: &str =
    "a\u{1b}[2J\u{1b}]0;t\u{7}\u{9b}2J\u{7f}\r\u{202e}b\u{2066}c\u{200f}\u{61c}\u{200b}\u{e0041}\u{feff}z";

fn assert_harmless(command: &[&str], text: &str) {
    let evil: Vec<_> = text
        .chars()
        .filter(|c| EVIL.contains(*c) && !c.is_ascii_graphic())
        .collect();
    assert!(evil.is_empty(), "{command:?} printed {evil:?}: {text:?}");
}

pub(super) type Answer = Arc<dyn Fn(&str, &mut TcpStream) + Send + Sync>;

/// A server that answers with the given response, and its URL. It stores the requests.
pub(super) fn server(answer: Answer) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let keeping = Arc::clone(&asked);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { break };
            let (answer, keeping) = (Arc::clone(&answer), Arc::clone(&keeping));
            thread::spawn(move || {
                let mut request = Vec::new();
                let mut piece = [0; 4096];
                while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                    match stream.read(&mut piece) {
                        Ok(read @ 1..) => request.extend_from_slice(&piece[..read]),
                        _ => return,
                    }
                }
                let request = String::from_utf8_lossy(&request).into_owned();
                keeping.lock().unwrap().push(request.clone());
                answer(&request, &mut stream);
            });
        }
    });
    (url, asked)
}

fn says(status: u16, body: &Value) -> Answer {
    let body = body.to_string();
    Arc::new(move |_, stream| {
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        let _ = stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(body.as_bytes()));
        // The rest of the request is read, or the response would be lost with it.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    })
}

/// Every command that calls another gavel. The others print by the same functions, as `tests/architecture.rs` checks.
const ASKING: [&[&str]; 26] = [
    &["chat", "hi"],
    &["runs", "list"],
    &["export", "decisions", "--since", "1d", "--out", "-"],
    &["runs", "show", ID],
    &["runs", "watch", ID],
    &["runs", "cancel", ID],
    &["approvals", "list"],
    &["approvals", "grants"],
    &["approvals", "why", ID],
    &["approvals", "approve", ID],
    &["approvals", "reject", ID],
    &["threads", "list"],
    &["threads", "show", ID],
    &[
        "plan",
        "start",
        "--repo",
        "https://github.com/acme/dates",
        "--deadline",
        "2h",
        "hi",
    ],
    &["plan", "refine", ID, "hi"],
    &["plan", "edit", ID],
    &["plan", "show", ID],
    &["plan", "show", ID, "t1"],
    &["plan", "diff", ID],
    &["plan", "history", ID],
    &["plan", "list"],
    &["plan", "cancel", ID],
    &["plan", "watch", ID],
    &["plan", "execute", ID],
    &["plan", "execute", ID, "--dry-run"],
    &["plan", "log", ID],
];
/// Those that follow a stream of events, unless they only ask what would happen.
const FOLLOWING: [&str; 4] = ["watch", "start", "refine", "execute"];
const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

/// A command line may come from a script, with arguments of others.
#[test]
fn an_error_about_an_argument_is_printed_escaped() {
    let place = Place::new();
    // An argument ends at its first NUL, and a terminal knows line ends.
    let evil = format!("{EVIL}\u{2028}\u{2029}");
    for args in [
        &[evil.as_str()][..],
        &["chat", "--user", &evil, "hi"],
        &["plan", "show", &evil],
        &["migrate", &format!("--{evil}")],
    ] {
        let ran = place.run(args);
        assert_eq!(ran.status, 2, "{args:?}");
        assert_harmless(&["arguments"], &(ran.out + &ran.err));
        assert!(
            ran.err.contains("\\u202e") && !ran.err.contains(['\u{2028}', '\u{2029}']),
            "{}",
            ran.err
        );
    }
}

/// The raw plan stays JSON of the same value, wherever it is written.
#[test]
fn a_raw_plan_is_printed_escaped() {
    let raw = json!([{"id": "t1", "title": format!("{EVIL}\u{2028}")}]);
    let mut session = session();
    session["rawPlan"] = raw.to_string().into();
    let (url, _) = server(says(200, &session));
    let place = Place::new();
    let ran = place.run(&["plan", "show", "--raw", ID, "--server", &url]);
    assert_harmless(&["plan", "show", "--raw"], &(ran.out.clone() + &ran.err));
    assert!(!ran.out.contains('\u{2028}'), "{}", ran.out);
    assert_eq!(serde_json::from_str::<Value>(&ran.ended(0)).unwrap(), raw);
}

#[test]
fn a_servers_error_text_is_printed_escaped() {
    let problem = json!({"title": EVIL, "detail": EVIL, "code": EVIL, "errors": [{"pointer": EVIL, "detail": EVIL}]});
    let (url, _) = server(says(400, &problem));
    let place = Place::new();
    for command in ASKING {
        let args = [command, &["--server", &url]].concat();
        let ran = place.run(&args);
        assert_harmless(&args, &(ran.out + &ran.err));
        assert!(
            ran.err.contains("\\u202e") && ran.err.contains("\\u009b"),
            "{args:?}: {}",
            ran.err
        );
        assert_ne!(ran.status, 0, "{args:?}");
    }
}

#[test]
fn a_servers_response_is_printed_escaped_and_its_json_is_unchanged() {
    let call = json!({"tool": EVIL, "server": EVIL, "result": {"success": false, "error": {"code": EVIL, "message": EVIL}}, "parameters": {EVIL: EVIL}});
    let decision = json!({"decision_type": "RESPOND", "outcome_category": EVIL, "response": EVIL, "tool_calls": [call], "model": EVIL, "duration_ms": 1});
    let (url, _) = server(says(200, &decision));
    let place = Place::new();
    let text = place.run(&["chat", "--server", &url, "hi"]);
    assert_harmless(&["chat"], &(text.out.clone() + &text.err));
    assert!(text.ended(0).contains("a\\u001b[2J"));
    let whole = place.run(&["chat", "--json", "--server", &url, "hi"]);
    assert_harmless(&["chat", "--json"], &whole.out);
    assert_eq!(whole.json(), decision);

    let (url, _) = server(Arc::new(|request, stream| says(200, &answer(request))(request, stream)));
    // A stream that breaks off is reconnected for two minutes.
    let follows = |command: &[&str]| FOLLOWING.contains(&command[1]) && !command.contains(&"--dry-run");
    for command in ASKING
        .iter()
        .filter(|command| !follows(command) && **command != ["chat", "hi"])
    {
        for more in [&[][..], &["--json"]] {
            let args = [*command, &["--server", &url], more].concat();
            let ran = place.command(&args, &[]).output().unwrap();
            let err = String::from_utf8(ran.stderr).unwrap();
            assert_harmless(&args, &String::from_utf8(ran.stdout).unwrap());
            assert_harmless(&args, &err);
            assert!(!err.contains("another answer than this gavel reads"), "{args:?}: {err}");
        }
    }
}

/// A valid answer to a request, whose texts are all evil.
fn answer(request: &str) -> Value {
    let path = request.split(' ').nth(1).unwrap_or_default();
    let (path, _) = path.split_once('?').unwrap_or((path, ""));
    let segments: Vec<_> = path.split('/').skip(1).collect();
    match segments[..] {
        ["v1", "decisions", ..] => decision(),
        ["api", "projects", ..] => json!({"runs": [run()]}),
        ["api", "runs", ..] => run(),
        ["api", "agent", "approvals", "pending"] => json!({"approvals": [pending()]}),
        ["api", "agent", "actions", "in-doubt"] => json!({"actions": [pending()]}),
        ["api", "agent", "actions", _, "why"] => why_of_action(),
        ["api", "agent", "grants"] => json!({"grants": [grant()]}),
        ["api", "agent", "threads"] => json!({"threads": [thread()]}),
        ["api", "agent", "threads", _] => thread(),
        ["api", "agent", ..] => answered(),
        ["v1", "sessions"] => json!({"sessions": [session()]}),
        ["v1", "sessions", _, "history"] => json!({"versions": [version()]}),
        ["v1", "sessions", _, "history", _] => version(),
        ["v1", "sessions", _, "log"] => json!({"actions": [logged()]}),
        ["v1", "sessions", _, "tasks", _] => task(),
        ["v1", "sessions", _, "execute"] => dry_run(),
        _ => session(),
    }
}

const AT: &str = "2026-11-22T10:00:00Z";

fn decision() -> Value {
    json!({
        "decision_id": EVIL, "conversation_id": EVIL, "response": EVIL, "model": EVIL, "requested_model": EVIL, "usage": null,
        "surface": EVIL, "user_id": EVIL, "status": "closed", "intent": EVIL, "message": EVIL, "created_at": AT,
        "definition_hash": EVIL, "error_detail": EVIL, "request_id": EVIL, "recovered": false,
        "agent_id": EVIL, "time_zone": EVIL, "tools_subset": [EVIL], "history_entries": 1, "trace_id": EVIL,
        "finish_reason": EVIL, "closed_at": AT, "duration_ms": 9, "human_ms": 1, "model_ms": 2, "tool_ms": 3,
        "turns": [{
            "requested_model": EVIL, "model": EVIL, "service_tier": EVIL, "finish_reason": EVIL, "attempts": 1,
            "started_at": AT, "duration_ms": 1,
            "usage": {"input_tokens": 1, "output_tokens": 1, "thought_tokens": 1, "cached_tokens": 1},
            "cost_nano": 1, "price_id": EVIL,
        }],
        "cost_nano": 1, "price_id": EVIL, "limits_reached": [],
        "tool_calls": [{
            "tool_invocation_id": EVIL, "decision_id": EVIL, "sequence": 1, "tool": EVIL, "words": EVIL, "parameters": {EVIL: EVIL}, "argument_bytes": 1,
            "result": {"success": false, "error": {"code": "tool_error", "message": EVIL}}, "server": EVIL,
            "status": "failed", "side_effect": true, "decided_by": EVIL, "lost": lost(), "user_id": EVIL, "created_at": AT,
        }],
    })
}

fn lost() -> Value {
    json!([{"by": EVIL, "says": "deny"}])
}

fn audit() -> Value {
    json!({"rows": [{"number": 1, "kind": EVIL, "at": AT, "actor": EVIL, "tool": EVIL}], "verified": true})
}

fn why_of_action() -> Value {
    json!({
        "actionId": ID, "runId": ID, "userId": EVIL, "agentId": EVIL, "server": EVIL, "tool": EVIL, "state": "completed",
        "verdict": EVIL, "rule": EVIL, "reason": EVIL, "lost": lost(), "createdAt": AT, "resolution": "approve_once",
        "resolvedBy": EVIL, "resolvedAt": AT, "audit": audit(),
    })
}

fn run() -> Value {
    json!({
        "id": ID, "project_id": EVIL, "agent_id": EVIL, "status": "paused", "summary": EVIL, "output": {EVIL: EVIL},
        "error_message": EVIL, "steps": 1, "created_at": AT, "definition_hash": EVIL, "attempts": [],
        "in_doubt": [{"action_id": ID, "tool": EVIL, "parameters": {EVIL: EVIL}}],
        "usage": {"input_tokens": 1, "output_tokens": 1, "thought_tokens": 1, "cached_tokens": 1},
    })
}

/// An approval request, which has all the fields of an in-doubt action.
fn pending() -> Value {
    json!({
        "approvalId": ID, "runId": ID, "actionId": ID, "userId": EVIL, "agentId": EVIL, "tool": EVIL,
        "arguments": {EVIL: EVIL}, "recipients": [EVIL], "grantable": true, "account": EVIL, "reason": EVIL,
        "warnings": [EVIL], "createdAt": AT, "expiresAt": AT,
    })
}

fn grant() -> Value {
    json!({
        "grantId": ID, "userId": EVIL, "server": EVIL, "tool": EVIL, "toolDigest": EVIL, "recipients": [EVIL],
        "recipientsByArgument": {EVIL: [EVIL]}, "createdBy": EVIL, "createdAt": AT, "uses": 1,
    })
}

fn thread() -> Value {
    json!({
        "threadId": ID, "title": EVIL, "userId": EVIL, "agentId": EVIL, "createdAt": AT, "updatedAt": AT, "messageCount": 2,
        "latestRun": {"runId": ID, "status": EVIL, "state": EVIL},
        "messages": [{"number": 2, "role": "user", "kind": "message", "text": EVIL, "runId": ID, "createdAt": AT}],
    })
}

fn answered() -> Value {
    let record =
        json!({"modelName": EVIL, "toolName": EVIL, "inputHash": EVIL, "executionStatus": "in_doubt", "createdAt": AT});
    let action = json!({
        "tool": EVIL, "status": EVIL, "state": "in_doubt", "requiresApproval": false, "actionId": ID, "errorCode": EVIL,
        "errorMessage": EVIL, "record": record,
    });
    json!({"ok": true, "runId": ID, "status": EVIL, "state": EVIL, "summary": EVIL, "createdAt": AT, "actions": [action]})
}

fn task() -> Value {
    json!({
        "id": "t1", "sessionId": ID, "title": EVIL, "goal": EVIL, "doneWhen": EVIL, "tools": [EVIL], "status": "FAILED",
        "statusReason": {"code": "gave_up", "detail": EVIL}, "steps": 1,
        "reactHistory": [{
            "n": 1, "reason": EVIL, "action": {"tool": EVIL, "arguments": {EVIL: EVIL}}, "observation": EVIL,
            "reflection": {"isTaskComplete": true, "summary": EVIL, "evidence": [{"observation": 1, "quote": EVIL}],
                "learnings": [], "planChanges": [], "giveUp": EVIL},
        }],
    })
}

fn version() -> Value {
    json!({
        "version": 2, "at": AT, "by": EVIL, "kind": "refined", "why": EVIL, "planHash": EVIL, "runId": ID, "plan": [task()],
        "changes": [{"op": "add", "task": "t1", "title": EVIL}],
    })
}

fn logged() -> Value {
    json!({
        "n": 1, "at": AT, "actionId": ID, "tool": EVIL, "arguments": {EVIL: EVIL}, "status": "failed",
        "error": {"code": "tool_error", "toolCode": EVIL, "message": EVIL},
    })
}

fn dry_run() -> Value {
    let tool = json!({"tool": EVIL, "server": EVIL, "answer": "deny", "reason": EVIL});
    json!({
        "planVersion": 2, "tasks": [{"taskId": "t1", "title": EVIL, "tools": [tool]}],
        "servers": [{"server": EVIL, "state": "unavailable", "reason": EVIL}],
        "conditions": [{"of": "web", "state": "error", "detail": EVIL}],
    })
}

fn session() -> Value {
    json!({
        "sessionId": ID, "status": "FAILED", "statusReason": {"code": "internal", "detail": EVIL}, "prompt": EVIL,
        "repoUrl": EVIL, "deadline": AT, "timeLeftMs": 0, "planVersion": 2, "plan": [task()], "summary": EVIL,
        "assumptions": [EVIL], "risks": [EVIL], "refinement": {"outcome": "failed", "code": "internal", "detail": EVIL},
        "read": {"defaultBranch": EVIL, "commit": EVIL, "files": 1, "treeTruncated": true, "calls": 1, "durationMs": 1,
            "agentFile": {"path": EVIL, "bytes": 1}},
        "scope": {"repository": EVIL, "branches": EVIL, "tools": [EVIL], "notBound": [EVIL], "askFirst": [EVIL],
            "mayAsk": [EVIL], "confirmed": {"by": EVIL, "version": 2}},
        "lookups": [logged()], "waitingFor": [{"kind": "in_doubt", "taskId": "t1", "tool": EVIL, "actionId": ID}],
        "pullRequests": [{"number": 7, "url": EVIL}], "runId": ID, "createdAt": AT, "updatedAt": AT, "startedAt": AT,
        "completedAt": AT,
        "usage": {"modelCalls": 1, "inputTokens": 1, "outputTokens": 1, "thoughtTokens": 1, "cachedTokens": 1},
    })
}

#[test]
fn a_redirect_sends_neither_message_nor_key_to_another_server() {
    let (elsewhere, asked) = server(says(200, &json!({"decision_type": "RESPOND", "response": "evil"})));
    let place = Place::new();
    for status in [302, 308] {
        let to = format!("{elsewhere}/{EVIL}").replace('\r', "");
        let (url, _) = server(Arc::new(move |_, stream| {
            let head = format!(
                "HTTP/1.1 {status} X\r\nlocation: {}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
                to.split('\u{1b}').next().unwrap()
            );
            let _ = stream.write_all(head.as_bytes());
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        }));
        for command in ASKING {
            let args = [command, &["--server", &url]].concat();
            let ran = place.run_with(&args, &[("GAVEL_API_KEY", "a-key-that-is-stranger-elses")]);
            assert!(
                ran.err.contains(&elsewhere) && ran.err.contains("Redirects are not followed"),
                "{args:?}: {}",
                ran.err
            );
            assert_ne!(ran.status, 0, "{args:?}");
        }
    }
    assert!(asked.lock().unwrap().is_empty());
}

#[test]
fn an_endless_response_is_abandoned() {
    let (url, _) = server(Arc::new(|_, stream| {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n";
        let _ = stream.write_all(head.as_bytes());
        let piece = vec![b' '; 1 << 20];
        while stream.write_all(&piece).is_ok() {}
    }));
    let place = Place::new();
    for command in [&["chat", "hi"][..], &["threads", "list"]] {
        let args = [command, &["--server", &url]].concat();
        let ran = place.run(&args);
        assert!(ran.err.contains("more than 64 MiB"), "{args:?}: {}", ran.err);
        assert_eq!(ran.status, 1);
    }
    let ran = place.run(&["runs", "watch", ID, "--server", &url]);
    assert!(ran.err.contains(" MiB"), "{}", ran.err);
    assert_ne!(ran.status, 0);
}
