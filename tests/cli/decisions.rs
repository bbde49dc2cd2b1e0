//! `gavel decisions` and `gavel migrate`.

use serde_json::Value;

use super::harness::{Place, Running};

#[test]
fn tail_prints_existing_decisions_and_then_new_ones() {
    let place = Place::new();
    place.run(&["chat", "hello"]).ended(0);
    let mut tail = Running::start(place.command(&["decisions", "tail", "--json"], &[]));
    let first: Value = serde_json::from_str(&tail.line_with("decision_id")).unwrap();
    assert_eq!(first["message"], "hello");
    place.run(&["chat", "show my tasks"]).ended(0);
    let next: Value = serde_json::from_str(&tail.line_with("decision_id")).unwrap();
    assert_eq!(next["message"], "show my tasks");
    assert_eq!(tail.reported("-INT"), Some(130));
    let either = "message = \"hello\" OR intent = \"list_tasks\"";
    let mut tail = Running::start(place.command(&["decisions", "tail", "--json", "--filter", either], &[]));
    tail.line_with("decision_id");
    assert_eq!(tail.stop(), Some(130));
}

#[test]
fn request_shows_what_the_model_was_asked_with() {
    let place = Place::new();
    let decision = place.run(&["chat", "--json", "hello"]).json();
    let id = decision["decision_id"].as_str().unwrap();
    let asked = place.run(&["decisions", "request", "--json", id]).json();
    assert_eq!(asked["message"], "hello");
    assert_eq!(asked["toolset"]["functions"][0]["name"], "add_task");
    let text = place.run(&["decisions", "request", id]).out;
    assert!(text.ends_with("message             hello\n"), "{text}");
    let other = place.run(&["decisions", "request", "--tenant", "acme", id]);
    assert_eq!(other.status, 1, "{}", other.err);
}

#[test]
fn why_says_the_point_first_and_what_has_changed_since() {
    let place = Place::new();
    let decision = place.run(&["chat", "--json", "add a task to call mom"]).json();
    let id = decision["decision_id"].as_str().unwrap();
    let text = place.run(&["decisions", "why", id]).ended(0);
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("SUCCESS:TASK_COMPLETED"), "{text}");
    assert!(
        lines.next().unwrap().starts_with("Call 1 of add_task succeeded"),
        "{text}"
    );
    for part in [
        "still the current one",
        "audit         verified: 1 effect_intended, 2 effect_completed",
        "█",
        "call 1  tasks / add_task  completed",
        "  policy      allow",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let own = include_str!("../../constitution.md").replacen("name: task-assistant", "name: other", 1);
    std::fs::write(place.path().join("own.md"), own).unwrap();
    let changed = place.run_with(&["decisions", "why", id], &[("GAVEL_CONSTITUTION", "own.md")]);
    assert!(changed.out.contains("changed since: name\n"), "{}", changed.out);
    let other = place.run(&["decisions", "why", "--tenant", "acme", id]);
    assert_eq!(other.status, 1, "{}", other.err);
}

#[test]
fn calls_are_listed_by_what_they_did_and_decisions_by_their_calls() {
    let place = Place::new();
    place.run(&["chat", "add a task to call mom"]).ended(0);
    place.run(&["chat", "show my tasks"]).ended(0);
    let table = place.run(&["calls", "list"]).ended(0);
    assert!(table.starts_with("at (UTC)") && table.lines().count() == 3, "{table}");
    let one = [
        "calls",
        "list",
        "--json",
        "--filter",
        "tool = \"add_task\" OR error_code = \"timeout\"",
    ];
    let call = place.run(&one).json();
    assert_eq!(call["parameters"]["description"], "call mom");
    let of_call = [
        "decisions",
        "list",
        "--json",
        "--filter",
        "call.tool = \"add_task\" AND NOT nothing",
    ];
    assert_eq!(place.run(&of_call).json()["decision_id"], call["decision_id"]);
    let unknown = place.run(&["calls", "list", "--filter", "tol = 1"]);
    assert_eq!(unknown.status, 2, "{}", unknown.err);
    assert!(unknown.err.contains("tool_digest"), "{}", unknown.err);
}

/// As in the API, whose parameters `--page-size` and `--page-token` are.
#[test]
fn the_hint_prints_the_command_for_the_next_page() {
    let place = Place::new();
    for user in ["ann", "bob", "ann"] {
        place.run(&["chat", "--user", user, "hello"]).ended(0);
    }
    let question = [
        "decisions",
        "list",
        "--json",
        "--page-size",
        "1",
        "--filter",
        "user_id = \"ann\"",
    ];
    let first = place.run(&question);
    let (tip, first) = (first.err.clone(), first.json());
    let rest: Vec<_> = tip
        .trim()
        .strip_prefix("more: the same command with ")
        .unwrap()
        .split(' ')
        .collect();
    let second = place.run(&[&question[..], &rest].concat());
    assert_eq!(second.err, "");
    let second = second.json();
    assert_eq!((&first["user_id"], &second["user_id"]), (&"ann".into(), &"ann".into()));
    assert!(first["created_at"].as_str() > second["created_at"].as_str());
    // The token is bound to its query.
    let other = place.run(&[&["decisions", "list"][..], &rest].concat());
    assert_eq!(other.status, 2);
    assert!(other.err.contains("belongs to another query"), "{}", other.err);
}

#[test]
fn migrate_creates_the_schema_and_status_reports_pending_migrations() {
    let place = Place::new();
    assert!(place.run(&["migrate", "--status"]).ended(1).contains("pending"));
    assert!(
        !place.path().join("gavel.db").exists(),
        "a status query changes nothing"
    );
    assert!(place.run(&["migrate"]).ended(0).contains("applied"));
    assert!(!place.run(&["migrate", "--status"]).ended(0).contains("pending"));
}
