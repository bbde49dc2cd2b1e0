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

type Answer = Arc<dyn Fn(&str, &mut TcpStream) + Send + Sync>;

/// A server that answers with the given response, and its URL. It stores the requests.
fn server(answer: Answer) -> (String, Arc<Mutex<Vec<String>>>) {
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
const ASKING: [&[&str]; 24] = [
    &["chat", "hi"],
    &["runs", "list"],
    &["runs", "show", ID],
    &["runs", "watch", ID],
    &["runs", "cancel", ID],
    &["approvals", "list"],
    &["approvals", "grants"],
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
    let session = json!({"sessionId": ID, "status": "EXECUTING", "rawPlan": raw.to_string()});
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

    let one = json!({
        "runId": ID, "run_id": ID, "threadId": ID, "thread_id": ID, "actionId": ID, "approvalId": ID, "grantId": ID, "userId": EVIL, "agentId": EVIL,
        "user_id": EVIL, "agent": EVIL, "agent_id": EVIL, "status": EVIL, "state": EVIL, "title": EVIL, "tool": EVIL, "server": EVIL,
        "arguments": {EVIL: EVIL}, "reason": EVIL, "warnings": [EVIL], "recipients": [EVIL], "createdAt": EVIL, "created_at": EVIL,
        "updatedAt": EVIL, "text": EVIL, "error": {"code": EVIL, "message": EVIL}, "result": EVIL, "messages": [{"role": "user", "text": EVIL, "runId": ID}],
    });
    let of_plans = json!({
        "sessionId": EVIL, "prompt": EVIL, "repoUrl": EVIL, "deadline": EVIL, "planVersion": 2, "summary": EVIL, "assumptions": [EVIL],
        "statusReason": {"code": EVIL, "detail": EVIL}, "refinement": {"code": EVIL, "detail": EVIL}, "pullRequests": [{"number": 7, "url": EVIL}],
        "waitingFor": [{"kind": "in_doubt", "tool": EVIL, "actionId": EVIL, "taskId": EVIL}], "version": 2, "at": EVIL, "by": EVIL, "kind": EVIL,
        "why": EVIL, "changes": [{"op": "add", "task": EVIL, "title": EVIL}], "n": 1, "taskId": EVIL, "durationMs": 1,
        "read": {"defaultBranch": EVIL, "commit": EVIL, "agentFile": {"path": EVIL, "bytes": 1}},
        "scope": {"repository": EVIL, "branches": EVIL, "tools": [EVIL], "notBound": [EVIL], "askFirst": [EVIL], "mayAsk": [EVIL],
            "confirmed": {"by": EVIL, "version": 2}},
    });
    let task = json!({"id": "t1", "title": EVIL, "goal": EVIL, "doneWhen": EVIL, "tools": [EVIL], "status": EVIL});
    let tool = json!({"tool": EVIL, "answer": EVIL, "reason": EVIL});
    let mut one = one;
    for (name, value) in of_plans.as_object().unwrap() {
        one[name] = value.clone();
    }
    let mut page = one.clone();
    page["plan"] = json!([task]);
    page["tasks"] = json!([{"taskId": EVIL, "title": EVIL, "tools": [tool]}]);
    page["servers"] = json!([{"server": EVIL, "state": EVIL, "reason": EVIL}]);
    page["reactHistory"] = json!([{"n": 1, "reason": EVIL, "action": {"tool": EVIL, "arguments": {EVIL: EVIL}}, "observation": EVIL, "reflection": {"summary": EVIL}, "state": EVIL}]);
    for list in [
        "runs",
        "approvals",
        "pendingApprovals",
        "actions",
        "grants",
        "threads",
        "messages",
        "sessions",
        "versions",
    ] {
        page[list] = json!([one]);
    }
    let (url, _) = server(says(200, &page));
    // A stream that breaks off is reconnected for two minutes.
    let follows = |command: &[&str]| FOLLOWING.contains(&command[1]) && !command.contains(&"--dry-run");
    for command in ASKING.iter().filter(|command| !follows(command)) {
        for more in [&[][..], &["--json"]] {
            let args = [*command, &["--server", &url], more].concat();
            // The command may reject the response; that error must be harmless too.
            let ran = place.command(&args, &[]).output().unwrap();
            assert_harmless(&args, &String::from_utf8(ran.stdout).unwrap());
            assert_harmless(&args, &String::from_utf8(ran.stderr).unwrap());
        }
    }
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
