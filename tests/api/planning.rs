//! Planning sessions over HTTP: the real service and the real github server, against a stand-in for GitHub that checks
//! each request by GitHub's own description. Gemini is scripted.

mod asked;
mod execute;
mod limits;
mod read;
mod refused;
mod rules;
mod shared;
mod studio;
mod unavailable;
mod words;
mod work;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use self::studio::{AGENT_MD, Studio, on_both, path, titles};
pub use self::studio::{HOUR, act, ahead, beside, done, github, plan, reason, task};
use crate::gemini::Reply;
use crate::github::{Fault, State};
use crate::harness::{Answer, Setup, binary, until};

/// P-201 to P-203: the goal and the repository's state make a plan, and nothing is changed meanwhile, whatever the model
/// calls.
#[tokio::test]
async fn a_session_reads_the_repository_and_proposes_a_plan() {
    on_both(async |setup| {
        let requests = Arc::new(Mutex::new(Vec::<Value>::new()));
        let seen = Arc::clone(&requests);
        let first = Reply::from(move |request| {
            seen.lock().unwrap().push(request.clone());
            Reply::Calls(vec![
                (
                    "createPullRequest",
                    json!({"owner": "acme", "repo": "dates", "title": "x", "head": "h", "base": "main"}),
                ),
                (
                    "getFileContents",
                    json!({"owner": "acme", "repo": "secret", "path": "key"}),
                ),
                (
                    "getFileContents",
                    json!({"owner": "acme", "repo": "dates", "path": "src/lib.rs"}),
                ),
            ])
        });
        let studio = Studio::new(setup, vec![first, plan(vec![task("Write tests"), task("Parse weeks")])]).await;
        let session = studio.start().await;
        assert_eq!(session["status"], "AWAITING_CONFIRMATION", "{session}");
        assert_eq!(titles(&session), [("t1", "Write tests"), ("t2", "Parse weeks")]);
        assert_eq!(session["plan"][0]["status"], "PENDING");
        assert_eq!(session["plan"][0]["doneWhen"], "a tool shows it");
        assert_eq!(
            (&session["planVersion"], &session["summary"]),
            (&json!(1), &json!("In short."))
        );
        assert!(session["timeLeftMs"].as_u64().unwrap() > 3_500_000);
        let mut read = session["read"].clone();
        assert!(read["durationMs"].take().is_u64(), "{session}");
        let expected = json!({
            "defaultBranch": "main", "commit": State::COMMIT, "files": 3, "treeTruncated": false,
            "agentFile": {"path": "AGENT.md", "bytes": AGENT_MD.len()}, "calls": 5, "durationMs": null,
        });
        assert_eq!(read, expected);
        assert_eq!(studio.read(&session).await["plan"], session["plan"]);
        let raw = studio.get(&format!("{}?view=raw", path(&session))).await;
        let parsed: Value = serde_json::from_str(raw["rawPlan"].as_str().unwrap()).unwrap();
        assert_eq!(parsed, raw["plan"]);
        let request = requests.lock().unwrap()[0].to_string();
        for text in [
            "Accept ISO weeks",
            "Run every test with `make test`",
            "Reads a date from text.",
            "src/lib.rs",
            "createPullRequest",
        ] {
            assert!(request.contains(text), "{text} is not in {request}");
        }
        let answered = studio.app.gemini.requests()[1]["contents"].clone();
        let answered = answered.as_array().unwrap().last().unwrap()["parts"].clone();
        let names: Vec<_> = answered
            .as_array()
            .unwrap()
            .iter()
            .map(|part| &part["functionResponse"]["name"])
            .collect();
        assert_eq!(
            names,
            ["createPullRequest", "getFileContents", "getFileContents"],
            "the model gets the results of its own calls, not of the reads before: {answered}"
        );
        let declared = requests.lock().unwrap()[0]["tools"][0]["functionDeclarations"].clone();
        let mut names = declared
            .as_array()
            .unwrap()
            .iter()
            .map(|function| function["name"].clone());
        assert!(names.all(|name| name != "createPullRequest"), "{declared}");
        let run = studio
            .get(&format!("/v1/decisions/{}", session["runId"].as_str().unwrap()))
            .await;
        assert_eq!(run["surface"], "planning", "{run}");
        let paths: Vec<_> = studio.github.seen("GET").into_iter().map(|seen| seen.path).collect();
        assert!(
            paths.iter().all(|path| path.starts_with("/repos/acme/dates")),
            "{paths:?}"
        );
        studio.stop_having_only_read().await;
    })
    .await;
}

/// Outside a session nothing binds these two agents to one repository, so they do not run there.
#[tokio::test]
async fn the_agents_of_planning_work_only_in_sessions() {
    let studio = Studio::new(Setup::stdio_sqlite(), vec![]).await;
    for agent in ["planner", "task_worker"] {
        let path = format!("/api/projects/default/agents/{agent}/trigger");
        let refused = studio
            .send("POST", &path, &[], json!({"task": "close all issues"}))
            .await;
        refused.problem(400, "invalid_request");
    }
    studio.stop_having_only_read().await;
}

/// P-F1 to P-F2 as CLI verbs: `gavel plan` starts, refines, edits, shows and cancels a session of a remote gavel.
#[tokio::test]
async fn the_command_line_makes_changes_and_shows_plans() {
    let script = vec![
        plan(vec![task("Clone"), task("Parse")]),
        plan(vec![task("Clone"), task("Write tests")]),
    ];
    let studio = Studio::new(Setup::stdio_sqlite(), script).await;
    let gavel = async |arguments: &[&str], exit: i32| {
        let mut command = tokio::process::Command::new(binary());
        command
            .arg("plan")
            .args(arguments)
            .args(["--server", &studio.app.url, "--user", "ann"]);
        let output = command.stdin(std::process::Stdio::null()).output().await.unwrap();
        let (printed, notes) = (
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        );
        assert_eq!(output.status.code(), Some(exit), "{arguments:?}: {printed}{notes}");
        printed
    };
    let repo = "https://github.com/acme/dates";
    let started = gavel(
        &[
            "start",
            "--repo",
            repo,
            "--deadline",
            "2h",
            "--json",
            "Accept",
            "ISO weeks",
        ],
        0,
    )
    .await;
    let started: Value = serde_json::from_str(&started).unwrap();
    assert_eq!(titles(&started), [("t1", "Clone"), ("t2", "Parse")]);
    let id = started["sessionId"].as_str().unwrap();
    let refined = gavel(&["refine", id, "tests", "first"], 0).await;
    assert!(
        refined.contains("Plan 2") && refined.contains("t3  Write tests"),
        "{refined}"
    );
    let shown = gavel(&["show", id], 0).await;
    assert!(
        shown.contains("t1") && shown.contains("Write tests") && shown.contains("done when"),
        "{shown}"
    );
    let history = gavel(&["history", id], 0).await;
    assert!(history.contains("tests first") && history.contains("ann"), "{history}");
    let rows = gavel(&["history", id, "--json"], 0).await;
    assert_eq!(rows.lines().count(), 2, "{rows}");
    let diff = gavel(&["diff", id], 0).await;
    assert!(diff.contains("Write tests") && diff.contains("Parse"), "{diff}");
    let listed = gavel(&["list"], 0).await;
    assert!(listed.contains(id), "{listed}");
    let draft = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(
        draft.path(),
        json!({"tasks": [{"title": "", "goal": "g", "doneWhen": "d", "tools": []}]}).to_string(),
    )
    .unwrap();
    let file = draft.path().display().to_string();
    gavel(&["edit", id, "--file", &file, "--if-version", "2"], 2).await;
    std::fs::write(draft.path(), json!({"tasks": [task("Only this")]}).to_string()).unwrap();
    gavel(&["edit", id, "--file", &file, "--if-version", "1"], 1).await;
    gavel(&["edit", id, "--file", &file, "--if-version", "2"], 0).await;
    assert!(gavel(&["show", id], 0).await.contains("Only this"));
    gavel(&["cancel", id, "--reason", "not needed"], 0).await;
    assert!(gavel(&["show", id], 0).await.contains("CANCELLED"));
    studio.stop_having_only_read().await;
}

/// P-204: each refinement returns the revised plan, and the history says who asked for it, when and why.
#[tokio::test]
async fn a_plan_is_refined_and_edited_and_its_history_is_kept() {
    on_both(async |setup| {
        let keeps =
            json!({"id": "t2", "title": "Parse ISO weeks", "goal": "g", "doneWhen": "d", "tools": ["createIssue"]});
        let script = vec![
            plan(vec![task("Clone"), task("Parse weeks"), task("Document")]),
            plan(vec![task("Write tests"), task("Clone"), keeps]),
        ];
        let studio = Studio::new(setup, script).await;
        let first = studio.start().await;
        let second = studio.refine(&first, "tests first").await.expect(200);
        assert_eq!(
            titles(&second),
            [("t4", "Write tests"), ("t1", "Clone"), ("t2", "Parse ISO weeks")]
        );
        let edited = json!({"summary": "Mine.", "tasks": [{"id": "t4", "title": "Write tests", "goal": "g", "doneWhen": "d", "tools": ["createIssue"]}]});
        let plan_path = format!("{}/plan", path(&first));
        let stale = studio
            .send("PUT", &plan_path, &[("if-match", "\"1\"")], edited.clone())
            .await;
        assert_eq!(stale.problem(409, "plan_changed")["planVersion"], 2);
        let once = [("if-match", "\"2\""), ("idempotency-key", "edit-1")];
        let third = studio.send("PUT", &plan_path, &once, edited.clone()).await.expect(200);
        let replayed = studio.send("PUT", &plan_path, &once, edited).await.expect(200);
        assert_eq!(replayed["planVersion"], 3);
        let other = json!({"tasks": []});
        let other = studio.send("PUT", &plan_path, &once, other).await;
        other.problem(422, "idempotency_key_reused");
        assert_eq!(
            (titles(&third), &third["planVersion"]),
            (vec![("t4", "Write tests")], &json!(3))
        );
        let invalid = json!({"tasks": [{"title": "", "goal": "g", "doneWhen": "d", "tools": ["rm"]}]});
        let invalid = studio
            .send("PUT", &plan_path, &[("if-match", "\"3\"")], invalid)
            .await
            .problem(400, "invalid_request");
        let places: Vec<_> = invalid["errors"]
            .as_array()
            .unwrap()
            .iter()
            .map(|error| error["pointer"].clone())
            .collect();
        assert_eq!(places, ["/tasks/0/title", "/tasks/0/tools"], "{invalid}");
        let history = studio.get(&format!("{}/history", path(&first))).await;
        let rows: Vec<_> = history["versions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| {
                (
                    row["kind"].as_str().unwrap(),
                    row["by"].as_str().unwrap(),
                    row["why"].as_str().unwrap(),
                )
            })
            .collect();
        assert_eq!(
            rows,
            [
                ("proposed", "ann", "Accept ISO weeks"),
                ("refined", "ann", "tests first"),
                ("edited", "ann", "edited by hand")
            ]
        );
        let changes: Vec<_> = history["versions"][1]["changes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|change| {
                format!(
                    "{} {}",
                    change["op"].as_str().unwrap(),
                    change["task"].as_str().unwrap()
                )
            })
            .collect();
        assert_eq!(changes, ["add t4", "modify t2", "remove t3"]);
        let version = studio.get(&format!("{}/history/1", path(&first))).await;
        assert_eq!(version["plan"], first["plan"]);
        studio.stop_having_only_read().await;
    })
    .await;
}

/// A refinement that fails leaves the plan as it was, and confirms nothing.
#[tokio::test]
async fn a_refinement_that_fails_leaves_the_plan_as_it_was() {
    on_both(async |setup| {
        let blocked = Reply::Raw(200, json!({"promptFeedback": {"blockReason": "SAFETY"}}).to_string());
        let studio = Studio::new(setup, vec![plan(vec![task("Clone")]), blocked]).await;
        let first = studio.start().await;
        let after = studio.refine(&first, "something odd").await.expect(200);
        assert_eq!(after["status"], "AWAITING_CONFIRMATION", "{after}");
        assert_eq!((&after["plan"], &after["planVersion"]), (&first["plan"], &json!(1)));
        assert_eq!(
            (&after["refinement"]["outcome"], &after["refinement"]["code"]),
            (&json!("failed"), &json!("model_blocked"))
        );
        studio.stop_having_only_read().await;
    })
    .await;
}

/// What prevents a plan is the reason of the session, and the session has ended.
#[tokio::test]
async fn a_session_without_a_plan_says_why() {
    let studio = Studio::new(Setup::stdio_sqlite(), vec![plan(vec![task("Clone")])]).await;
    let body = |repo: &str| json!({"prompt": "p", "repoUrl": format!("https://github.com/acme/{repo}"), "deadline": ahead(HOUR)});
    let missing = studio.start_with(&[], body("none")).await.expect(201);
    assert_eq!(
        (&missing["status"], &missing["statusReason"]["code"]),
        (&json!("FAILED"), &json!("repository_not_found"))
    );
    let faults = (0..20).map(|_| Fault::Refuse(500, Vec::new(), "broken"));
    studio.github.fail("GET", "/repos/acme/dates", faults);
    let unreadable = studio.start_with(&[], body("dates")).await.expect(201);
    assert_eq!(
        unreadable["statusReason"]["code"], "repository_unreadable",
        "{unreadable}"
    );
    studio.github.fail("GET", "/repos/acme/dates", []);
    let over = studio.refine(&missing, "again").await;
    over.problem(409, "session_over");
    assert!(
        studio.app.gemini.requests().is_empty(),
        "no model is asked about what was not read"
    );
    let others = Answer::of(studio.app.request("GET", &path(&missing), &[("x-gavel-user", "bob")])).await;
    others.problem(404, "not_found");
    studio.app.stop().await;
}

/// P-F1: a request is checked as a whole, and nothing is kept of an invalid one.
#[tokio::test]
async fn an_invalid_request_is_answered_with_all_its_errors_and_leaves_no_session() {
    let studio = Studio::new(Setup::stdio_sqlite(), vec![plan(vec![task("Clone")])]).await;
    let invalid = json!({"prompt": " ", "repoUrl": "https://ann:secret@github.com/acme/dates", "deadline": "tomorrow"});
    let problem = studio.start_with(&[], invalid).await.problem(400, "invalid_request");
    let places: Vec<_> = problem["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| error["pointer"].clone())
        .collect();
    assert_eq!(places, ["/prompt", "/repoUrl", "/deadline"], "{problem}");
    assert!(!problem.to_string().contains("secret"));
    for deadline in [
        "2020-01-01T00:00:00Z".to_owned(),
        ahead(Duration::from_secs(5)),
        ahead(HOUR * 24 * 8),
    ] {
        let body = json!({"prompt": "p", "repoUrl": "https://github.com/acme/dates", "deadline": deadline});
        studio.start_with(&[], body).await.problem(400, "invalid_request");
    }
    let body = json!({"prompt": "p", "repoUrl": "https://github.com/other/dates", "deadline": ahead(HOUR)});
    studio
        .start_with(&[], body)
        .await
        .problem(403, "repository_not_allowed");
    let page = studio.get("/v1/sessions").await;
    assert_eq!(page["sessions"], json!([]));
    studio.stop_having_only_read().await;
}

/// One request that is sent twice makes one session.
#[tokio::test]
async fn a_request_that_is_repeated_under_its_key_makes_one_session() {
    let studio = Studio::new(Setup::stdio_sqlite(), vec![plan(vec![task("Clone")])]).await;
    let body = json!({"prompt": "p", "repoUrl": "https://github.com/acme/dates", "deadline": ahead(HOUR)});
    let key = [("idempotency-key", "k1")];
    let first = studio.start_with(&key, body.clone()).await.expect(201);
    let again = studio.start_with(&key, body).await.expect(201);
    assert_eq!(again["sessionId"], first["sessionId"]);
    let page = studio.get("/v1/sessions").await;
    assert_eq!(page["sessions"].as_array().unwrap().len(), 1);
    studio.stop_having_only_read().await;
}

/// P-306: the deadline also passes while the plan waits for its confirmation, after which nothing changes or confirms
/// it; and a session can be cancelled.
#[tokio::test]
async fn a_session_ends_at_its_deadline_and_when_it_is_cancelled() {
    on_both(async |setup| {
        let hangs = Reply::Hang;
        let studio = Studio::new(setup, vec![plan(vec![task("Clone")]), hangs]).await;
        let soon = json!({"prompt": "p", "repoUrl": "https://github.com/acme/dates", "deadline": ahead(Duration::from_secs(12))});
        let waits = studio.start_with(&[], soon).await.expect(201);
        assert_eq!(waits["status"], "AWAITING_CONFIRMATION");
        let body = json!({"prompt": "p", "repoUrl": "https://github.com/acme/dates", "deadline": ahead(HOUR)});
        let plans = studio
            .start_with(&[("prefer", "respond-async")], body)
            .await
            .expect(202);
        assert_eq!(plans["status"], "PLANNING", "{plans}");
        let cancel = format!("{}/cancel", path(&plans));
        let cancelled = studio
            .send("POST", &cancel, &[], json!({"reason": "not needed"}))
            .await
            .expect(200);
        assert_eq!(
            (&cancelled["status"], &cancelled["statusReason"]["code"]),
            (&json!("CANCELLED"), &json!("cancelled"))
        );
        let detail = cancelled["statusReason"]["detail"].as_str().unwrap();
        assert!(detail.contains("ann") && detail.contains("not needed"), "{detail}");
        until("the run to be cancelled", || async {
            let run = studio
                .app
                .get(&format!("/v1/decisions/{}", plans["runId"].as_str().unwrap()))
                .await;
            run.0 == 200 && studio.read(&plans).await["status"] == "CANCELLED"
        })
        .await;
        until("the deadline to pass", || async {
            studio.read(&waits).await["status"] == "DEADLINE_EXCEEDED"
        })
        .await;
        for answer in studio.changes(&waits, 1).await {
            answer.problem(409, "deadline_passed");
        }
        assert_eq!(studio.read(&waits).await["startedAt"], Value::Null);
        studio.stop_having_only_read().await;
    })
    .await;
}
