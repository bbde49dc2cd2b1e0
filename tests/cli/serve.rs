//! `gavel serve`, and `gavel chat` as its client.

use std::fs;
use std::net::TcpListener;
use std::process::Command;

use serde_json::Value;

use super::harness::{Place, Running};

#[test]
fn without_a_command_it_serves_prints_a_working_curl_and_stops_on_a_signal() {
    let place = Place::new();
    let mut serving = Running::start(place.command(&["--listen", "127.0.0.1:0"], &[]));
    let address = serving.line_with("gavel ").split("http://").nth(1).unwrap().to_owned();
    assert!(
        serving
            .line_with("model")
            .contains("demo, since no credentials are set")
    );
    assert!(serving.line_with("agents").contains("6 (built in)"));
    let curl = serving.line_with("curl ");
    let tools = serving.line_with("tasks:");
    assert!(
        tools.contains("add_task, complete_task, delete_task, list_tasks, update_task"),
        "{tools}"
    );
    let pasted = Command::new("sh").args(["-c", curl.trim()]).output().unwrap();
    let decision: Value = serde_json::from_slice(&pasted.stdout).unwrap();
    assert_eq!(decision["outcome_category"], "SUCCESS:TASK_COMPLETED");

    let server = format!("http://{address}");
    let elsewhere = Place::new();
    let asked = elsewhere.run(&["chat", "--server", &server, "show my tasks"]).ended(0);
    assert!(asked.contains("call mom"), "{asked}");
    assert!(
        !elsewhere.path().join("gavel.db").exists(),
        "a remote chat keeps no database of its own"
    );
    let refused = elsewhere.run(&["chat", "--server", &server, "--time-zone", "Mars/Olympus", "hi"]);
    assert_eq!(refused.status, 1);
    assert!(refused.err.contains("/time_zone"), "{}", refused.err);
    place.run(&["doctor", "--live", "--listen", &address]).ended(0);
    let seen = place.run(&["doctor", "--listen", &address]).ended(0);
    let reported = address.replace("localhost", "127.0.0.1");
    assert!(
        seen.contains(&format!("✓ address: {reported} is in use by a gavel that answers")),
        "{seen}"
    );
    assert_eq!(serving.stop(), Some(0));
    let dead = place.run(&["doctor", "--live", "--listen", &address]);
    assert_eq!(dead.status, 1);
    assert!(dead.err.contains("/livez does not answer"), "{}", dead.err);
}

/// A service's key comes from the environment or a file. Without a valid key the error says how to give one, and no key
/// is ever printed.
#[test]
fn a_key_is_sent_to_another_gavel_and_a_missing_one_is_explained() {
    let place = Place::new();
    let made = place.run(&["config", "new-key", "--name", "web"]).ended(0);
    let (key, entry) = made.split_once('\n').unwrap();
    let sha256 = entry.split('"').find(|word| word.len() == 64).unwrap();
    let keys = format!(r#"[{{"name":"web","sha256":"{sha256}","tenant":"default","roles":[]}}]"#);
    let environment = [("GAVEL_AUTH_MODE", "api_key"), ("GAVEL_AUTH_KEYS", keys.as_str())];
    let mut serving = Running::start(place.command(&["--listen", "127.0.0.1:0"], &environment));
    let first = serving.line_with("gavel ");
    let server = format!("http://{}", first.split("http://").nth(1).unwrap());

    let elsewhere = Place::new();
    fs::write(elsewhere.path().join("key"), format!("{key}\n")).unwrap();
    let say = |environment: &[(&str, &str)]| {
        let args = ["chat", "--server", &server, "--json", "--user", "ann", "hello"];
        elsewhere.run_with(&args, environment)
    };
    for given in [("GAVEL_API_KEY", key), ("GAVEL_API_KEY_FILE", "key")] {
        assert_eq!(say(&[given]).json()["outcome_category"], "SUCCESS:RESPONSE_GIVEN");
    }
    let invalid = format!("{key}x");
    for (environment, words) in [
        (&[][..], ["requires credentials", "in GAVEL_API_KEY"]),
        (
            &[("GAVEL_API_KEY", invalid.as_str())],
            [
                "The credentials are invalid",
                "GAVEL_API_KEY (or GAVEL_API_KEY_FILE) does not hold a valid key",
            ],
        ),
        (
            &[("GAVEL_API_KEY", key), ("GAVEL_API_KEY_FILE", "key")],
            ["both given", "keep one"],
        ),
        (
            &[("GAVEL_API_KEY_FILE", "gone")],
            ["GAVEL_API_KEY_FILE", "gone cannot be read"],
        ),
    ] {
        let refused = say(environment);
        assert_eq!((refused.status, refused.out.as_str()), (1, ""), "{}", refused.err);
        for word in words {
            assert!(refused.err.contains(word), "{word}: {}", refused.err);
        }
        assert!(!refused.err.contains(key), "{}", refused.err);
    }
    let records = place.run(&["decisions", "list", "--json"]).ended(0);
    assert_eq!(
        records.lines().count(),
        2,
        "an unauthenticated caller leaves no record: {records}"
    );
    assert_eq!(serving.stop(), Some(0));
}

/// `GAVEL_LOG_FORMAT`; by default a log that does not go to a terminal is JSON.
#[test]
fn a_log_is_one_json_object_per_line_unless_text_is_requested() {
    for (format, json) in [(None, true), (Some("json"), true), (Some("text"), false)] {
        let place = Place::new();
        let environment: Vec<_> = format.map(|format| ("GAVEL_LOG_FORMAT", format)).into_iter().collect();
        let log = place.path().join("log");
        let command = place.command(&["--listen", "127.0.0.1:0"], &environment);
        let mut serving = Running::start_logging(command, fs::File::create(&log).unwrap());
        serving.line_with("tasks:");
        assert_eq!(serving.stop(), Some(0));
        let text = fs::read_to_string(&log).unwrap();
        let serves: Vec<_> = text.lines().filter(|line| line.contains("gavel is serving")).collect();
        assert_eq!(serves.len(), 1, "{text}");
        for line in text.lines() {
            let parsed = serde_json::from_str::<Value>(line);
            assert_eq!(parsed.is_ok(), json, "{format:?}: {line}");
            let Ok(line) = parsed else { continue };
            let level = line["level"].as_str().unwrap();
            assert!(["INFO", "WARN", "ERROR"].contains(&level), "{line}");
            for field in ["timestamp", "message", "target"] {
                assert!(line[field].is_string(), "{field}: {line}");
            }
        }
        if json {
            let serves: Value = serde_json::from_str(serves[0]).unwrap();
            assert_eq!(
                (&serves["message"], &serves["version"]),
                (
                    &Value::from("gavel is serving"),
                    &Value::from(env!("CARGO_PKG_VERSION"))
                )
            );
        }
    }
}

#[test]
fn a_used_port_is_reported_with_a_remedy() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let place = Place::new();
    let ran = place.run(&["serve", "--listen", &address]);
    assert_eq!(ran.status, 1);
    assert!(ran.err.contains(&format!("cannot listen on {address}")), "{}", ran.err);
    assert!(!place.path().join("gavel.db").exists(), "nothing was done");
}
