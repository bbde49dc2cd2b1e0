//! A server as a child process.

use std::time::Duration;

use gavel::adapters::mcp::ServerState;
use gavel::domain::tool::FailureCode;
use gavel::ports::tools::{CallReply, Tools};
use serde_json::json;

use super::server::StdioServer;
use super::support::{Call, PATIENCE, bridge, call, data, failed, not_sent, tool, unknown, until, up};

async fn event(server: &mut StdioServer, what: &str) {
    let next = tokio::time::timeout(PATIENCE, server.events.recv()).await;
    assert_eq!(next.unwrap_or_else(|_| panic!("never: {what}")).as_deref(), Some(what));
}

/// Whether there is a process with this id that is not a zombie.
pub(crate) fn runs(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(") ").next().unwrap_or("Z").starts_with('Z'))
}

/// C-FR-002: the server's stdout also carries lines that are not JSON.
#[tokio::test]
async fn a_tool_is_listed_and_called_and_receives_the_acting_user() {
    let server = StdioServer::new().await;
    let mcp = bridge(&server.entry);
    assert_eq!(up(&mcp).await.tools.len(), 10);
    let data = data(call(&mcp, "echo", json!({"n": 7})).await);
    assert_eq!(data["arguments"], json!({"n": 7}));
    assert_eq!(data["meta"]["gavel/user_id"], "u1");
    assert_eq!(data["meta"]["gavel/idempotency_key"], "key-1");
    let error = failed(call(&mcp, "fail", json!({})).await);
    assert_eq!(
        (error.code, error.message.as_str()),
        (FailureCode::ToolError, "it went wrong")
    );
    mcp.shutdown().await;
}

#[tokio::test]
async fn a_child_gets_five_variables_and_those_of_its_entry() {
    let mut server = StdioServer::new().await;
    let dir = tempfile::tempdir().unwrap();
    server.entry["cwd"] = json!(dir.path());
    server.entry["env"]["OWN"] = json!("${HOME}");
    let mcp = bridge(&server.entry);
    up(&mcp).await;
    let data = data(call(&mcp, "environment", json!({})).await);
    let allowed = ["PATH", "HOME", "USER", "LANG", "TMPDIR", "OWN", "GAVEL_TEST_EVENTS"];
    let names: Vec<&str> = data["names"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
        .collect();
    assert!(names.contains(&"OWN") && names.contains(&"PATH"), "{names:?}");
    assert!(names.iter().all(|name| allowed.contains(name)), "{names:?}");
    assert_eq!(data["cwd"], json!(dir.path().canonicalize().unwrap()));
    mcp.shutdown().await;
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_cancelled_at_the_server_and_so_is_a_dropped_one() {
    let mut server = StdioServer::new().await;
    let mcp = bridge(&server.entry);
    let slow = tool(&*up(&mcp).await, "slow");
    let late = Call {
        timeout: Duration::from_millis(200),
        ..Call::with(json!({}))
    };
    assert_eq!(unknown(late.of(&mcp, &slow).await).code, FailureCode::InDoubt);
    event(&mut server, "slow began").await;
    event(&mut server, "slow cancelled").await;
    tokio::select! {
        _ = Call::with(json!({})).of(&mcp, &slow) => panic!("it ends only when cancelled"),
        () = event(&mut server, "slow began") => {}
    }
    event(&mut server, "slow cancelled").await;
    mcp.shutdown().await;
}

#[tokio::test]
async fn sixty_four_calls_at_once_carry_their_own_users() {
    let server = StdioServer::new().await;
    let mcp = bridge(&server.entry);
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
    mcp.shutdown().await;
}

#[tokio::test]
async fn a_child_that_dies_within_a_call_leaves_it_in_doubt_and_is_restarted() {
    let server = StdioServer::new().await;
    let mcp = bridge(&server.entry);
    let catalog = up(&mcp).await;
    let first = mcp.status()[0].pid.unwrap();
    let failure = unknown(call(&mcp, "die", json!({})).await);
    assert_eq!(failure.code, FailureCode::InDoubt);
    // At once: the call waits while the child is being restarted.
    data(Call::with(json!({})).of(&mcp, &tool(&catalog, "echo")).await);
    let status = mcp.status().remove(0);
    assert_ne!(status.pid, Some(first));
    assert_eq!(status.connections, 2);
    assert!(!runs(first));
    mcp.shutdown().await;
}

/// Promise: bounded faults. A child that starts normally and dies in every call is not called for a while, although it
/// is connected.
#[tokio::test]
async fn a_child_that_dies_in_every_call_is_not_called_for_a_while() {
    let server = StdioServer::new().await;
    let mcp = bridge(&server.entry);
    let catalog = up(&mcp).await;
    let die = tool(&catalog, "die");
    let mut sent = 0;
    let refused = loop {
        match Call::with(json!({})).of(&mcp, &die).await {
            CallReply::Unknown(failure) => assert_eq!(failure.code, FailureCode::InDoubt),
            other => break not_sent(other),
        }
        sent += 1;
        assert!(sent < 20, "it is called again and again");
    };
    assert_eq!(refused.code, FailureCode::Unavailable);
    assert!(mcp.status()[0].breaker_open);
    assert!(sent >= 5, "{sent}");
    mcp.shutdown().await;
}

#[tokio::test]
async fn a_child_killed_from_outside_is_restarted() {
    let mut server = StdioServer::new().await;
    let mcp = bridge(&server.entry);
    let catalog = up(&mcp).await;
    let pid = mcp.status()[0].pid.unwrap();
    let slow = tool(&catalog, "slow");
    let (reply, ()) = tokio::join!(Call::with(json!({})).of(&mcp, &slow), async {
        event(&mut server, "slow began").await;
        let killed = tokio::process::Command::new("kill")
            .args(["-9", &pid.to_string()])
            .status()
            .await
            .unwrap();
        assert!(killed.success());
    });
    assert_eq!(unknown(reply).code, FailureCode::InDoubt);
    until(&mcp, |mcp| mcp.status()[0].connections == 2).await;
    data(call(&mcp, "echo", json!({})).await);
    mcp.shutdown().await;
}

/// A child that accepts calls and answers none is treated as dead.
#[tokio::test]
async fn a_child_that_hangs_is_replaced() {
    let server = StdioServer::new().await;
    let mut entry = server.entry.clone();
    entry["gavel"] = json!({"tools": {"echo": {"timeoutMs": 600, "sideEffect": false}}});
    let mcp = bridge(&entry);
    let echo = tool(&*up(&mcp).await, "echo");
    let first = mcp.status()[0].pid.unwrap();
    let pid = first.to_string();
    let stopped = tokio::process::Command::new("kill").args(["-STOP", &pid]).status();
    assert!(stopped.await.unwrap().success());
    // A process of several threads stops when one of them is next scheduled.
    until(&mcp, |_| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.unwrap().contains(") T ")
    })
    .await;
    // At once, so that all five have ended before the probe that the first one causes may replace the child.
    let calls = (0..5).map(|_| async {
        let call = Call {
            timeout: echo.timeout,
            ..Call::with(json!({}))
        };
        unknown(call.of(&mcp, &echo).await).code
    });
    assert_eq!(futures_util::future::join_all(calls).await, [FailureCode::Timeout; 5]);
    assert!(mcp.status()[0].breaker_open);
    until(&mcp, |mcp| {
        let status = &mcp.status()[0];
        status.connections == 2 && status.state == ServerState::Up && !status.breaker_open
    })
    .await;
    data(call(&mcp, "echo", json!({})).await);
    assert!(!runs(first), "nothing of the old one is left");
    mcp.shutdown().await;
}

#[tokio::test]
async fn a_shutdown_leaves_no_child_and_no_grandchild() {
    let server = StdioServer::new().await;
    let mut entry = server.entry.clone();
    // As with `npx`, the server is a child of the command. This one also ignores the end of stdin.
    let command = format!(
        "trap '' HUP; \"{}\" --exact server::stdio_server --ignored --nocapture; sleep 600",
        server.entry["command"].as_str().unwrap()
    );
    entry["command"] = json!("sh");
    entry["args"] = json!(["-c", command]);
    let mcp = bridge(&entry);
    up(&mcp).await;
    let pid = mcp.status()[0].pid.unwrap();
    let group = || -> Vec<u32> {
        std::fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(|other: &u32| {
                let stat = std::fs::read_to_string(format!("/proc/{other}/stat")).unwrap_or_default();
                let fields = stat.rsplit(") ").next().unwrap_or_default().to_owned();
                fields.split(' ').nth(2) == Some(&pid.to_string()) && !fields.starts_with('Z')
            })
            .collect()
    };
    assert!(group().len() >= 2, "{:?}", group());
    mcp.shutdown().await;
    // They have been sent SIGKILL; the kernel takes a moment.
    until(&mcp, |_| group().is_empty()).await;
    assert_ne!(mcp.status()[0].state, ServerState::Up);
}

#[tokio::test]
async fn a_changed_list_of_tools_is_a_new_generation() {
    let server = StdioServer::new().await;
    let mcp = bridge(&server.entry);
    let before = up(&mcp).await.generation;
    data(call(&mcp, "change", json!({})).await);
    until(&mcp, |mcp| mcp.catalog().tools.iter().any(|tool| &*tool.name == "new")).await;
    assert!(mcp.catalog().generation > before);
    mcp.shutdown().await;
}

/// Promise: bounded faults. The answer exceeds the hard limit. The call ends at once with an error that names the size,
/// concurrent calls are answered, and the same child continues.
#[tokio::test]
async fn an_answer_over_the_hard_limit_ends_only_its_own_call() {
    let mut server = StdioServer::new().await;
    server.entry["gavel"] = json!({"tools": {"huge": {"sideEffect": false}}});
    let mcp = bridge(&server.entry);
    let catalog = up(&mcp).await;
    let pid = mcp.status()[0].pid;
    let (huge, slow, echo) = (tool(&catalog, "huge"), tool(&catalog, "slow"), tool(&catalog, "echo"));
    let beside = Call::with(json!({}));
    let stop = beside.cancel.clone();
    let (reply, ()) = tokio::join!(beside.of(&mcp, &slow), async {
        event(&mut server, "slow began").await;
        let begun = std::time::Instant::now();
        let failure = unknown(Call::with(json!({"n": 40_000_000})).of(&mcp, &huge).await);
        assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
        assert_eq!(failure.code, FailureCode::ProtocolError);
        assert!(failure.message.contains("more than 16 MiB"), "{}", failure.message);
        assert_eq!(
            data(Call::with(json!({"n": 7})).of(&mcp, &echo).await)["arguments"],
            json!({"n": 7})
        );
        stop.cancel();
    });
    assert_eq!(
        unknown(reply).code,
        FailureCode::InDoubt,
        "it was in flight all the time"
    );
    event(&mut server, "slow cancelled").await;
    assert_eq!((mcp.status()[0].pid, mcp.status()[0].connections), (pid, 1));
    mcp.shutdown().await;
}

/// A tool with a side effect may have had it, however long its answer is.
#[tokio::test]
async fn an_answer_over_the_hard_limit_leaves_a_side_effect_in_doubt() {
    let server = StdioServer::new().await;
    let mcp = bridge(&server.entry);
    up(&mcp).await;
    let failure = unknown(call(&mcp, "huge", json!({"n": 17_000_000})).await);
    assert_eq!(failure.code, FailureCode::InDoubt);
    assert!(failure.message.contains("more than 16 MiB"), "{}", failure.message);
    mcp.shutdown().await;
}

/// A line that answers no call cannot be attributed, so all calls are abandoned and the server is restarted.
#[tokio::test]
async fn a_line_over_the_hard_limit_that_answers_no_call_ends_the_connection() {
    let server = StdioServer::new().await;
    let mcp = bridge(&server.entry);
    let catalog = up(&mcp).await;
    let failure = unknown(call(&mcp, "noise", json!({"n": 17_000_000})).await);
    assert_eq!(failure.code, FailureCode::InDoubt);
    // The call has ended at once. The child gets a few seconds to end.
    until(&mcp, |mcp| mcp.status()[0].connections == 2).await;
    data(Call::with(json!({})).of(&mcp, &tool(&catalog, "echo")).await);
    mcp.shutdown().await;
}

#[tokio::test]
async fn a_huge_result_is_truncated() {
    let server = StdioServer::new().await;
    let mcp = bridge(&server.entry);
    up(&mcp).await;
    let data = data(call(&mcp, "huge", json!({"n": 4_000_000})).await);
    assert!(data.as_str().unwrap().ends_with("[cut: 4000000 bytes in all]"));
    mcp.shutdown().await;
}

/// A server in a few lines of shell, which lists its tools and answers every call with the text of files. While a file
/// `hold` exists it answers no call, and none at all of the user `lost`. It does not exit while a file `linger` exists.
/// Its process ids are in the file `pids`.
const BY_HAND: &str = r#"
echo $$ >>pids
say() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"method":"initialize"'*)
      say '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}' ;;
    *'"method":"tools/list"'*) say "$(cat list)" ;;
    *'"gavel/user_id":"lost"'*) sleep 600 ;;
    *'"method":"tools/call"'*)
      while [ -e hold ]; do sleep 0.02; done
      say "$(cat answer)" ;;
  esac
done
trap '' TERM; while [ -e linger ]; do sleep 0.02; done
"#;

/// Its entry, with these tools.
pub(crate) fn by_hand(directory: &std::path::Path, tools: &str) -> serde_json::Value {
    std::fs::write(directory.join("list"), format!(r#"{{"tools":[{tools}]}}"#)).unwrap();
    json!({"command": "sh", "args": ["-c", BY_HAND], "cwd": directory})
}

pub(crate) const ACT: &str = r#"{"name":"act","inputSchema":{"type":"object"}}"#;

/// Promise: bounded faults. A tool that JSON readers refuse does not hide the others.
#[tokio::test]
async fn a_tool_that_json_readers_refuse_does_not_hide_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let schema = format!(r#"{}"x"{}"#, r#"{"not":"#.repeat(200), "}".repeat(200));
    let tools = format!(r#"{{"name":"deep","inputSchema":{schema}}},{{"title":{schema}}},{ACT}"#);
    let mcp = bridge(&by_hand(directory.path(), &tools));
    let catalog = up(&mcp).await;
    assert_eq!(tool(&catalog, "act").name.as_ref(), "act");
    let left: Vec<_> = catalog
        .left_out
        .iter()
        .map(|left| (left.tool.as_str(), left.reason.as_str()))
        .collect();
    let deep = "its definition nests more than 120 levels deep";
    assert_eq!(left, [("deep", deep), ("#1", "it has no name")]);
    mcp.shutdown().await;
}

/// Promises: at most once, bounded faults. If JSON readers refuse the answer to an effect, gavel repairs it as far as
/// it can be read, or reports it at once. No caller waits for the timeout.
#[tokio::test]
async fn an_answer_that_json_readers_refuse_is_repaired_or_reported_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let mcp = bridge(&by_hand(directory.path(), ACT));
    up(&mcp).await;
    let answer = async |text: &str| {
        std::fs::write(directory.path().join("answer"), text).unwrap();
        let began = std::time::Instant::now();
        let reply = call(&mcp, "act", json!({})).await;
        assert!(began.elapsed() < PATIENCE / 2, "{text} took {:?}", began.elapsed());
        reply
    };
    let cut = r#"{"content":[{"type":"text","text":"a text cut inside of \ud83d"}]}"#;
    assert_eq!(data(answer(cut).await), json!("a text cut inside of \u{fffd}"));
    let nested = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let deep = format!(r#"{{"content":[],"structuredContent":{nested}}}"#);
    assert_eq!(data(answer(&deep).await), json!(nested));
    let failure = unknown(answer(r#"{"content":[],"structuredContent":{"n":NaN}}"#).await);
    assert_eq!(failure.code, FailureCode::InDoubt);
    assert!(
        failure.message.contains("not a readable JSON-RPC message"),
        "{failure:?}"
    );
    assert_eq!(data(answer(r#"{"content":[],"structuredContent":1}"#).await), json!(1));
    assert_eq!(mcp.status()[0].connections, 1, "it is still the first child");
    mcp.shutdown().await;
}
