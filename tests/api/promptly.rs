//! Approvals take effect at once: no polling delays the call after the approval, or the answer after the
//! call. An expired approval request is no longer pending.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::docs::execute;
use crate::gemini::Reply;
use crate::harness::{Setup, spawn_app};
use crate::raw::{Answer as Raw, RawServer};
use crate::threads::{WORKSPACE, add, both, said};

/// The duration of the tool's call.
const TAKES: Duration = Duration::from_millis(5);
/// A polling interval is longer than this. The actual work is shorter; on a busy machine it takes as much longer as the
/// request for the approval, which waits for nothing.
const POLLED: Duration = Duration::from_millis(150);
const ROUNDS: usize = 11;

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// The median of many: from the approval to the call, and from the approval to the answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approved_call_starts_at_once_and_its_result_is_the_answer() {
    for setup in [Setup::stdio_sqlite(), Setup::stdio_postgres()] {
        let called = Arc::new(Mutex::new(None));
        let at = Arc::clone(&called);
        let server = RawServer::start(move |request| match request.method() {
            "tools/call" => {
                *at.lock().unwrap() = Some(Instant::now());
                std::thread::sleep(TAKES);
                Some(Raw::Result(json!({"content": [{"type": "text", "text": "done"}]})))
            }
            _ => None,
        })
        .await;
        let model = Reply::from(|request| match said(request) {
            1 => Reply::call("act", json!({})),
            _ => Reply::Text("Done."),
        });
        let agent = WORKSPACE.replace("add_task, list_tasks", "act");
        let setup = setup
            .agent("workspace.md", &agent)
            .beside("s", json!({"url": server.url}));
        let app = spawn_app(setup.script(vec![model])).await;
        let (mut asks, mut begins, mut answers) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            let asked = app.say("Act.").await;
            let yes = Instant::now();
            asks.push(yes - begun);
            let run = app.resolve(&asked["actions"][0]["approvalId"], "approve_once").await;
            answers.push(yes.elapsed().saturating_sub(TAKES));
            assert_eq!(run["status"], "completed", "{run}");
            let began: Instant = called.lock().unwrap().take().unwrap();
            begins.push(began - yes);
        }
        let (asks, begins, answers) = (median(asks), median(begins), median(answers));
        let measured = format!(
            "from the yes: to the call {begins:?}, to the answer {answers:?} beside the tool's own time; the request took {asks:?}"
        );
        let most = POLLED + 2 * asks;
        assert!(begins < most && answers < most, "{measured}");
        eprintln!("{measured}");
        app.stop().await;
    }
}

/// An approval request is no longer pending from its expiry on, even before the sweep has found it.
#[tokio::test]
async fn an_approval_request_is_not_pending_after_its_expiry() {
    for setup in both() {
        let model = Reply::from(|request| match said(request) {
            1 => add("milk"),
            _ => Reply::Text("It expired."),
        });
        let app = spawn_app(setup.script(vec![model])).await;
        // The user of a console without logins.
        let console = async || {
            let page = app.request("GET", "/console/approvals", &[]).send().await.unwrap();
            assert_eq!(page.status(), 200);
            page.text().await.unwrap()
        };
        for round in 0..5 {
            let say = json!({"prompt": "Put milk on my list."});
            let asked = app.say_as("local", say).await.expect(200);
            assert_eq!(app.pending("local").await.len(), 1, "{round}");
            assert!(console().await.contains("milk"), "{round}");
            execute(
                &app.database_url,
                "UPDATE agent_action SET expires_at = created_at WHERE status = 'awaiting_confirmation'",
            )
            .await;
            // At once: long before the sweep finds it.
            assert_eq!(app.pending("local").await.len(), 0, "{round}");
            assert!(!console().await.contains("milk"), "{round}");
            let late = json!({"approvalId": asked["actions"][0]["approvalId"], "decision": "approve_once"});
            let answer = app.resolve_as("local", late).await;
            assert_eq!(answer.status, 409, "{}", answer.body);
            assert_eq!(app.task_names().await.len(), 0);
        }
        app.stop().await;
    }
}
