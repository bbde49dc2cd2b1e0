//! `gavel threads`, and in-doubt calls in `gavel approvals list` (promise: at most once; ).

use std::fs;

use serde_json::{Value, json};

use super::gemini::{Gemini, Reply};
use super::harness::{Place, Ran, Running};
use super::raw::{Answer, RawServer};
use super::runs::{agents, asking, free, serve};

/// Sends a prompt to the service on behalf of the user; returns the run.
async fn say(server: &str, user: &str, body: Value) -> Value {
    // Fails only if it is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let request = reqwest::Client::new().post(format!("{server}/api/agent/run"));
    let answer = request.header("x-gavel-user", user).json(&body).send().await.unwrap();
    let (status, run) = (answer.status().as_u16(), answer.json::<Value>().await.unwrap());
    assert_eq!(status, 200, "{run}");
    run
}

/// The model makes one call and then ends; the server loses its answer.
struct Lost {
    place: Place,
    server: String,
    serving: Running,
    calls: RawServer,
    _model: Gemini,
}

impl Lost {
    async fn start() -> Self {
        let calls = RawServer::start(|request| (request.method() == "tools/call").then_some(Answer::Close)).await;
        let model = Gemini::scripted(vec![Reply::from(|request| {
            let contents = request["contents"].as_array().unwrap();
            match contents.last().unwrap()["parts"][0]["functionResponse"].is_object() {
                true => Reply::Text("I cannot tell."),
                false => Reply::call("act", json!({"n": 1})),
            }
        })])
        .await;
        let place = agents(&[(
            "worker.md",
            "---\nname: worker\ndescription: d\ntools: [act]\napproval: side_effects\n---\nWork.\n",
        )]);
        fs::write(
            place.path().join("mcp.json"),
            json!({"mcpServers": {"raw": {"url": calls.url}}}).to_string(),
        )
        .unwrap();
        let address = free();
        let environment = [
            asking(&model),
            vec![("GAVEL_MCP_CONFIG", "mcp.json"), ("GAVEL_RUNS_AGENT", "worker")],
        ]
        .concat();
        let serving = serve(&place, &address, &environment);
        Self {
            server: format!("http://{address}"),
            place,
            serving,
            calls,
            _model: model,
        }
    }

    fn there(&self, args: &[&str]) -> Ran {
        self.place.run(&[args, &["--server", &self.server]].concat())
    }
}

/// threads are listed, and a thread shows its messages and the results of its requests. The output is the
/// same from the database and from another gavel.
#[tokio::test(flavor = "multi_thread")]
async fn threads_are_listed_and_shown_from_the_database_and_from_another_gavel() {
    let lost = Lost::start().await;
    let none = lost.there(&["threads", "list", "--user", "ann"]);
    assert_eq!((none.status, none.err.as_str()), (0, "no threads of the user ann\n"));
    let run = say(&lost.server, "ann", json!({"prompt": "Do it.\nNow."})).await;
    let bobs = say(&lost.server, "bob", json!({"prompt": "I am bob."})).await;
    let id = run["threadId"].as_str().unwrap();

    let list = lost.there(&["threads", "list", "--user", "ann"]).ended(0);
    let rows: Vec<_> = list.lines().skip(1).collect();
    assert_eq!(rows.len(), 1, "{list}");
    for cell in [id, "ann", "worker", "awaiting_confirmation", "Do it."] {
        assert!(rows[0].contains(cell), "{cell}: {list}");
    }
    let whole = lost.place.run(&["threads", "list"]).ended(0);
    let ids: Vec<_> = whole
        .lines()
        .skip(1)
        .map(|row| row.split_whitespace().nth(2).unwrap())
        .collect();
    assert_eq!(
        ids,
        [bobs["threadId"].as_str().unwrap(), id],
        "a user with access to the database sees all threads"
    );
    assert_eq!(lost.place.run(&["threads", "list", "--user", "ann"]).ended(0), list);
    let first = lost.place.run(&["threads", "list", "--limit", "1", "--json"]);
    let token = first.err.trim().rsplit(' ').next().unwrap();
    let rest = lost
        .place
        .run(&["threads", "list", "--limit", "1", "--json", "--page-token", token]);
    assert_eq!(rest.json()["threadId"], id);

    let shown = lost.there(&["threads", "show", "--user", "ann", id]);
    assert!(shown.err.contains("gavel approvals list"), "{}", shown.err);
    let shown = shown.ended(0);
    let lines: Vec<_> = shown.lines().collect();
    assert!(lines[0].starts_with("ann and the agent worker, since 20"), "{shown}");
    assert!(lines[2].ends_with("  ann"), "{shown}");
    assert_eq!(lines[3..5], ["    Do it.", "    Now."]);
    assert!(lines[6].ends_with("  approval request"), "{shown}");
    assert_eq!(lines.last(), Some(&"  act: awaiting_confirmation"), "{shown}");
    assert_eq!(lost.place.run(&["threads", "show", id]).ended(0), shown);

    let approval = run["actions"][0]["approvalId"].as_str().unwrap();
    let approved = lost.there(&["approvals", "approve", "--user", "ann", approval]);
    assert_eq!(
        approved.status, 1,
        "the answer counts, and the call is in doubt: {}",
        approved.err
    );
    lost.there(&["runs", "watch", "--user", "ann", run["runId"].as_str().unwrap()])
        .ended(3);
    let shown = lost.place.run(&["threads", "show", id]).ended(0);
    assert!(shown.contains("\n  act: in_doubt\n"), "{shown}");
    assert!(shown.contains("  answer\n    ann approved act\n"), "{shown}");
    assert_eq!(lost.there(&["threads", "show", "--user", "ann", id]).ended(0), shown);
    let whole = lost.there(&["threads", "show", "--user", "ann", "--json", id]).json();
    assert_eq!(
        (&whole["actions"][0]["actionId"], &whole["messages"][0]["text"]),
        (&run["actions"][0]["actionId"], &json!("Do it.\nNow."))
    );
    let before = lost.place.run(&["threads", "show", id, "--before", "2"]).ended(0);
    assert!(
        before.contains("Do it.") && !before.contains("approval request"),
        "{before}"
    );

    for strangers in [
        lost.there(&["threads", "show", "--user", "bob", id]),
        lost.place.run(&["threads", "show", "--user", "bob", id]),
        lost.place.run(&["threads", "show", "--tenant", "rival", id]),
    ] {
        assert_eq!((strangers.status, strangers.out.as_str()), (1, ""), "{}", strangers.err);
    }
    let invalid = lost.place.run(&["threads", "show", "x"]);
    assert!(invalid.err.contains("an id is a UUID"), "{}", invalid.err);
    invalid.ended(2);
    assert_eq!(lost.serving.stop(), Some(0));
}

/// Promise: at most once. In-doubt calls are listed below the approval requests with a hint for settling them that
/// cannot be pasted unread. A settled call is no longer listed, and was sent once.
#[tokio::test(flavor = "multi_thread")]
async fn in_doubt_calls_are_listed_and_settled() {
    let mut lost = Lost::start().await;
    let run = say(&lost.server, "ann", json!({"prompt": "Do it."})).await;
    let approval = run["actions"][0]["approvalId"].as_str().unwrap();
    let none = lost.place.run(&["approvals", "list", "--in-doubt"]);
    assert_eq!(
        (none.status, none.err.as_str()),
        (0, "no in-doubt actions of the tenant default\n")
    );
    let approved = lost.there(&["approvals", "approve", "--user", "ann", approval]);
    assert_eq!(
        approved.status, 1,
        "the answer counts, and the call is in doubt: {}",
        approved.err
    );
    lost.there(&["runs", "watch", "--user", "ann", run["runId"].as_str().unwrap()])
        .ended(3);
    let waiting = say(&lost.server, "ann", json!({"prompt": "Do it once more."})).await;
    let question = waiting["actions"][0]["approvalId"].as_str().unwrap();
    let action = run["actions"][0]["actionId"].as_str().unwrap();

    let here = format!("gavel approvals settle {action} ");
    let there = format!("gavel approvals settle --server {} --user ann {action} ", lost.server);
    for (listed, command) in [
        (lost.place.run(&["approvals", "list"]), &here),
        (lost.there(&["approvals", "list", "--user", "ann"]), &there),
    ] {
        let listed = listed.ended(0);
        let (questions, in_doubt) = listed.split_once("\nin doubt: ").unwrap_or_else(|| panic!("{listed}"));
        assert!(questions.contains(question) && !questions.contains(action), "{listed}");
        assert!(
            in_doubt.starts_with("act for ann, by the agent worker\n  n             1\n  begun         20"),
            "{listed}"
        );
        for outcome in ["happened", "did_not_happen"] {
            assert!(in_doubt.contains(&format!("{command}{outcome}\n")), "{listed}");
        }
    }
    let bob = lost.there(&["approvals", "list", "--user", "bob"]);
    assert_eq!(
        (bob.out.as_str(), bob.err.as_str()),
        ("", "no approval requests of the user bob\n")
    );
    let questions = lost.place.run(&["approvals", "list", "--json"]).json();
    assert_eq!(questions["approvalId"], question, "approval requests only");
    for listed in [
        lost.place.run(&["approvals", "list", "--json", "--in-doubt"]),
        lost.there(&["approvals", "list", "--json", "--in-doubt", "--user", "ann"]),
    ] {
        assert_eq!(listed.json()["actionId"], action);
    }

    let pasted = format!("{there}did_not_happen");
    let pasted: Vec<_> = pasted.split(' ').skip(1).collect();
    lost.place.run(&pasted).ended(0);
    let listed = lost.place.run(&["approvals", "list"]).ended(0);
    assert!(listed.contains(question) && !listed.contains("in doubt"), "{listed}");
    assert_eq!(lost.calls.count("tools/call"), 1);
    assert_eq!(lost.serving.stop(), Some(0));
}
