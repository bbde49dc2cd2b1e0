//! `gavel approvals`, and the approval prompt of `gavel agents run` at the terminal.

use std::fs;

use serde_json::Value;

use super::harness::{Place, Running, Terminal};

const TODO: &str =
    "---\nname: todo\ndescription: Keeps a list.\ntools: [add_task, list_tasks]\napproval: always\n---\nBe careful.\n";

fn place() -> Place {
    let place = Place::new();
    fs::create_dir(place.path().join("agents")).unwrap();
    fs::write(place.path().join("agents/todo.md"), TODO).unwrap();
    place
}

const ASK: [&str; 4] = ["agents", "run", "todo", "add a task to call mom"];

/// The waiting approval request, as JSON.
fn waiting(place: &Place, place_of: &[&str]) -> Value {
    let list = [&["approvals", "list", "--json"], place_of].concat();
    let out = place.run(&list).ended(0);
    let mut lines = out.lines();
    let question = serde_json::from_str(lines.next().unwrap()).unwrap();
    assert_eq!(lines.next(), None, "{out}");
    question
}

/// without a terminal, the approval request is printed in full with the commands that resolve it, and the run
/// waits.
#[test]
fn a_run_that_requires_approval_prints_how_to_approve_and_continues_after() {
    let place = place();
    let ran = place.run(&ASK);
    assert_eq!((ran.status, ran.out.as_str()), (6, ""), "{}", ran.err);
    let question = waiting(&place, &[]);
    let id = question["approvalId"].as_str().unwrap();
    for line in [
        "add_task",
        "  description   call mom",
        "waits for an approval",
        &format!("gavel approvals approve {id}"),
        &format!("gavel approvals reject {id} --reason"),
    ] {
        assert!(ran.err.contains(line), "{line}: {}", ran.err);
    }
    let why = place.run(&["approvals", "why", id]).ended(0);
    assert!(
        why.starts_with("tasks / add_task  awaiting_confirmation\nevery call of this agent"),
        "{why}"
    );
    assert!(why.contains("  policy      require_approval, by definition\n"), "{why}");
    let shown = place
        .run(&["runs", "show", question["runId"].as_str().unwrap()])
        .ended(0);
    assert!(shown.contains(&format!("gavel approvals approve {id}")), "{shown}");
    let list = place.run(&["approvals", "list"]).ended(0);
    assert!(list.contains("add_task for local, by the agent todo"), "{list}");
    let bob = place.run(&["approvals", "approve", id, "--user", "bob"]);
    assert_eq!(bob.status, 1, "it is not bob's: {}", bob.err);
    let always = place.run(&["approvals", "approve", id, "--always"]);
    assert!(always.err.contains("declares no recipients"), "{}", always.err);
    assert_eq!(always.status, 2);
    let done = place.run(&["approvals", "approve", id]).ended(0);
    assert!(
        done.contains("add_task: completed") && done.contains(": completed"),
        "{done}"
    );
    let run = place
        .run(&["runs", "show", "--json", question["runId"].as_str().unwrap()])
        .json();
    assert_eq!(run["actions"][0]["state"], "completed", "{run}");
    let again = place.run(&["approvals", "approve", id, "--json"]).json();
    assert_eq!(
        again["status"], "completed",
        "a repeated answer changes nothing: {again}"
    );
    let late = place.run(&["approvals", "reject", id]);
    assert!(
        late.err
            .contains("resolved already: approve_once by service:gavel-cli:uid-"),
        "{}",
        late.err
    );
    assert_eq!(late.status, 1);
    let none = place.run(&["approvals", "list"]);
    assert_eq!(
        (none.status, none.err.as_str()),
        (0, "no approval requests of the tenant default\n")
    );
    let tasks = place.run(&["mcp", "call", "tasks", "list_tasks", "{}", "--user", "local"]);
    assert_eq!(tasks.out.matches("call mom").count(), 1, "{}{}", tasks.out, tasks.err);
}

/// With `--json`, the waiting run is printed.
#[test]
fn a_run_that_waits_is_printed_as_json() {
    let place = place();
    let ran = place.run(&[&ASK[..], &["--json"]].concat());
    assert_eq!(ran.status, 6, "{}", ran.err);
    let run: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(run["status"], "awaiting_confirmation");
    assert_eq!(run["actions"][0]["approvalId"], waiting(&place, &[])["approvalId"]);
}

/// a rejection carries its reason, and nothing runs.
#[test]
fn a_rejection_is_printed_and_nothing_runs() {
    let place = place();
    assert_eq!(place.run(&ASK).status, 6);
    let question = waiting(&place, &[]);
    let id = question["approvalId"].as_str().unwrap();
    let done = place
        .run(&["approvals", "reject", id, "--reason", "she is on holiday"])
        .ended(0);
    assert!(done.contains("add_task: rejected"), "{done}");
    let audit = place.run(&["audit", "list"]).ended(0);
    assert!(
        audit.contains("approval_resolved") && audit.contains("reject: she is on holiday"),
        "{audit}"
    );
    place.run(&["audit", "verify"]).ended(0);
    let unknown = place.run(&["approvals", "reject", "01980000-0000-7000-8000-000000000000"]);
    assert_eq!(unknown.status, 1);
    assert!(
        unknown.err.contains("There is no such route or object"),
        "{}",
        unknown.err
    );
    let invalid = place.run(&["approvals", "approve", "x"]);
    assert_eq!(invalid.status, 2);
    assert!(invalid.err.contains("an id is a UUID"), "{}", invalid.err);
}

/// at a terminal the user is asked, and the run continues in the same process.
#[test]
fn the_user_at_the_terminal_is_asked_for_approval() {
    for (typed, shown, status) in [
        ("y\n", "completed", 0),
        ("maybe\nn not today\n", "completed", 0),
        ("l\n", "waits for an approval", 6),
    ] {
        let place = place();
        let mut terminal = Terminal::start(&place, &ASK, &[]);
        terminal.shows("description   call mom");
        terminal.shows("Run it?");
        for (n, line) in typed.split_inclusive('\n').enumerate() {
            if n > 0 {
                terminal.shows("Run it?");
            }
            terminal.types(line);
        }
        terminal.shows(shown);
        assert_eq!(terminal.ends(), Some(status), "{typed}");
        let tasks = place.run(&["mcp", "call", "tasks", "list_tasks", "{}", "--user", "local"]);
        let there = tasks.out.contains("call mom");
        assert_eq!(there, typed == "y\n", "{typed}: {}", tasks.out);
    }
}

/// The same against another gavel; a user sees only their own requests.
#[test]
fn approvals_of_another_gavel_can_be_resolved() {
    let place = place();
    let address = super::runs::free();
    let mut serving = Running::start(place.command(&["--listen", &address], &[]));
    serving.line_with("Tools:");
    let server = format!("http://{address}");
    let there = ["--server", server.as_str()];
    let ran = place.run(&[&ASK[..], &there].concat());
    assert_eq!(ran.status, 6, "{}", ran.err);
    assert!(
        ran.err.contains(&format!("gavel approvals approve --server {server}")),
        "{}",
        ran.err
    );
    let question = waiting(&place, &there);
    let id = question["approvalId"].as_str().unwrap();
    let bob = place.run(&[&["approvals", "list", "--user", "bob"], &there[..]].concat());
    assert_eq!(bob.err, "no approval requests of the user bob\n");
    // The policy and servers of that gavel apply, not those of the answering machine.
    let beside = place.run(&["approvals", "approve", id]);
    assert_eq!(beside.status, 2, "{}", beside.err);
    assert!(
        beside.err.contains("--server http://localhost:") && beside.err.contains("--here"),
        "{}",
        beside.err
    );
    // So the printed commands go through it, wherever it serves.
    let run = question["runId"].as_str().unwrap();
    let through = format!(
        "approvals approve --server http://{} --user local {id}",
        address.replace("127.0.0.1", "localhost")
    );
    for reported in [&["approvals", "list"][..], &["runs", "show", run]] {
        let reported = place.run(reported).ended(0);
        assert!(reported.contains(&format!("gavel {through}")), "{reported}");
    }
    let done = place.run(&through.split(' ').collect::<Vec<_>>()).ended(0);
    assert!(
        done.contains("add_task: completed") && done.contains(": completed\n"),
        "the command waits for it: {done}"
    );
    place.run(&[&["runs", "watch", run], &there[..]].concat()).ended(0);
    let grants = place.run(&[&["approvals", "grants"], &there[..]].concat());
    assert_eq!(grants.err, "there are no grants\n");
    serving.stop();
}
