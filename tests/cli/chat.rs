//! `gavel chat`: one message, a conversation, Ctrl-C.

use std::io::Write;
use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

use rustix::termios::{SpecialCodeIndex, tcgetattr};
use serde_json::Value;

use super::harness::{Place, Running, Terminal};

#[test]
fn one_message_gets_one_decision_and_its_record() {
    let place = Place::new();
    let decision = place
        .run(&["chat", "--json", "--user", "ann", "add a task to call mom"])
        .json();
    assert_eq!(decision["decision_type"], "INVOKE_TOOL");
    assert_eq!(decision["outcome_category"], "SUCCESS:TASK_COMPLETED");
    let id = decision["decision_id"].as_str().unwrap();

    let listed = place
        .run(&["decisions", "list", "--json", "--filter", "user_id = \"ann\""])
        .json();
    assert_eq!(listed["decision_id"], id);
    let table = place.run(&["decisions", "list"]).ended(0);
    assert!(table.starts_with("at (UTC)") && table.contains(id), "{table}");
    let shown = place.run(&["decisions", "show", "--json", id]).json();
    assert_eq!(shown["tool_calls"][0]["tool"], "add_task");
    assert!(
        place
            .run(&["decisions", "show", id])
            .ended(0)
            .contains("call 1  tasks / add_task  completed")
    );
    let other = place.run(&["decisions", "show", "--tenant", "acme", id]);
    assert_eq!(other.status, 1);
    assert!(other.err.contains("There is no decision"), "{}", other.err);

    let tasks = place.run(&["mcp", "call", "tasks", "list_tasks", "--user", "ann"]);
    assert!(tasks.err.contains("bypasses policy"), "{}", tasks.err);
    assert_eq!(tasks.json()["tasks"][0]["description"], "call mom");
    assert_eq!(
        place
            .run(&["mcp", "call", "tasks", "list_tasks", "--user", "bob"])
            .json()["total"],
        0
    );
}

#[test]
fn a_conversation_from_a_pipe_keeps_its_messages_until_it_is_cleared() {
    let place = Place::new();
    let said = place.pipe(
        &["chat", "--json"],
        "add a task to buy milk\nshow my tasks\n/new\nhello\n/quit\nnever said\n",
    );
    let decisions: Vec<Value> = said
        .ended(0)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(decisions.len(), 3);
    assert_eq!(decisions[0]["conversation_id"], decisions[1]["conversation_id"]);
    assert_ne!(decisions[1]["conversation_id"], decisions[2]["conversation_id"]);
    assert!(decisions[1]["response"].as_str().unwrap().contains("buy milk"));
    let refused = place.run(&["chat", " "]);
    assert_eq!(refused.status, 1);
    assert!(refused.err.contains("/message: must not be"), "{}", refused.err);
}

#[test]
fn ctrl_c_drops_the_line_that_is_typed_and_ends_a_conversation_on_an_empty_one() {
    let place = Place::new();
    let mut terminal = Terminal::start(&place, &["chat"], &[]);
    terminal.shows("> ");
    terminal.types("delete all my ta\u{3}");
    terminal.shows("^C");
    terminal.shows("> ");
    terminal.types("add a task to call mom\n");
    terminal.shows("INVOKE_TOOL SUCCESS:TASK_COMPLETED");
    terminal.shows("> ");
    terminal.types("\u{3}");
    let keys = terminal.keys.try_clone().unwrap();
    assert_eq!(terminal.ends(), Some(130));
    // The terminal is in its original mode.
    let codes = tcgetattr(&keys).unwrap().special_codes;
    assert_eq!((codes[SpecialCodeIndex::VINTR], codes[SpecialCodeIndex::VEOL]), (3, 0));
    let asked = place.run(&["decisions", "list", "--json"]).json();
    assert_eq!(
        asked["message"], "add a task to call mom",
        "one decision, and of the whole line"
    );

    let mut terminal = Terminal::start(&place, &["chat"], &[]);
    terminal.shows("> ");
    terminal.types("\u{4}");
    assert_eq!(terminal.ends(), Some(0), "the end of the input is no interruption");
}

#[test]
fn ctrl_c_stops_waiting_for_an_answer_and_continues() {
    let place = Place::new();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let environment = [
        ("GEMINI_API_KEY", "key"),
        ("GEMINI_BASE_URL", url.as_str()),
        ("GAVEL_DRAIN_SECONDS", "0.1"),
    ];
    let mut terminal = Terminal::start(&place, &["chat"], &environment);
    terminal.shows("> ");
    terminal.types("hello\n");
    let _asked = silent.accept().unwrap();
    terminal.types("\u{3}");
    terminal.shows("stopped waiting");
    terminal.shows("> ");
    terminal.types("\u{3}");
    assert_eq!(terminal.ends(), Some(130));
}

#[test]
fn a_conversation_from_a_pipe_that_is_interrupted_ends_with_130() {
    let place = Place::new();
    let mut command = place.command(&["chat", "--json"], &[]);
    command.stdin(Stdio::piped());
    let mut chat = Running::start(command);
    let mut input = chat.child.stdin.take().unwrap();
    input.write_all(b"hello\nshow my ta").unwrap();
    chat.line_with("decision_id");
    // It reads the next line.
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(chat.reported("-INT"), Some(130));
    drop(input);
}
