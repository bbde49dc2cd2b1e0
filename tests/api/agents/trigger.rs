//! `POST /api/projects/{project}/agents/{agent}/trigger`.

use std::time::Duration;

use serde_json::{Value, json};

use super::{HELPER, both, has_ended, id, path_of};
use crate::gemini::Reply;
use crate::harness::{Answer, App, Setup, spawn_app, until};

/// The fields of a run, in alphabetical order.
const FIELDS: [&str; 21] = [
    "agent_id",
    "attempts",
    "completed_at",
    "created_at",
    "definition_hash",
    "definition_version",
    "duration_ms",
    "error_message",
    "id",
    "in_doubt",
    "outcome_category",
    "output",
    "parent_run_id",
    "project_id",
    "recovered_from",
    "started_at",
    "status",
    "steps",
    "stop_reason",
    "summary",
    "usage",
];

fn adds_milk() -> Vec<Reply> {
    vec![
        Reply::call("add_task", json!({"description": "milk"})),
        Reply::Text("Added."),
    ]
}

/// the run shows readers the kind of model fault. The provider's message is for operators, in the decision.
#[tokio::test]
async fn a_run_reports_why_the_model_gave_no_answer() {
    let bad_key = json!([{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}]);
    let spent = json!([{"@type": "type.googleapis.com/google.rpc.QuotaFailure",
                        "violations": [{"quotaId": "RequestsPerDay", "quotaValue": "50"}]}]);
    for (status, details, words) in [
        (400, bad_key, "does not accept the credentials"),
        (403, json!([]), "does not permit"),
        (404, json!([]), "no model of this name"),
        (429, spent, "quota"),
        (400, json!([]), "refused the request as invalid"),
    ] {
        let app = spawn_app(both()[0].clone().script(vec![Reply::error(status, "X", details)])).await;
        let run = app.triggered("helper", "x").await;
        assert_eq!(run["status"], "failed", "{run}");
        let why = run["error_message"].as_str().unwrap();
        assert!(why.contains(words), "{why}");
        assert!(!run.to_string().contains("canary-provider-message"), "{run}");
        let decision = app.decision(&run["id"]).await;
        let detail = decision["error_detail"].as_str().unwrap();
        assert!(detail.starts_with(&format!("Gemini answered {status} X")), "{detail}");
    }
}

/// D-R1: the answer is the run with its results, and the log has its call.
#[tokio::test]
async fn an_agent_does_its_work_and_the_answer_is_its_run() {
    for setup in both() {
        let app = spawn_app(setup.script(adds_milk())).await;
        let answer = app
            .trigger_with(&path_of("helper"), &[], &json!({"query": "milk!"}))
            .await;
        assert_eq!(
            answer.header("location"),
            format!("/api/runs/{}", answer.body["id"].as_str().unwrap())
        );
        assert_eq!(answer.header("ratelimit").split(';').next(), Some("\"user\""));
        let run = answer.expect(200);
        let mut fields: Vec<_> = run.as_object().unwrap().keys().map(String::as_str).collect();
        fields.sort_unstable();
        assert_eq!(fields, FIELDS, "{run}");
        assert_eq!(run["status"], "completed", "{run}");
        assert_eq!(run["summary"], "Added.", "{run}");
        assert_eq!(
            (&run["steps"], &run["project_id"], &run["agent_id"]),
            (&json!(2), &json!("default"), &json!("helper")),
            "{run}"
        );
        for absent in [
            "output",
            "parent_run_id",
            "error_message",
            "recovered_from",
            "stop_reason",
        ] {
            assert_eq!(run[absent], Value::Null, "{absent}: {run}");
        }
        assert_eq!(run["usage"]["input_tokens"], 200, "{run}");
        assert!(run["duration_ms"].is_u64() && run["completed_at"].is_string(), "{run}");
        assert_eq!(app.run(&id(&run)).await, run);
        let tasks = app.tasks().await;
        assert_eq!(tasks.len(), 1, "{tasks:?}");

        let decisions = app.decisions().await;
        assert_eq!(decisions.len(), 1, "{decisions:?}");
        let decision = app.decision(&run["id"]).await;
        assert_eq!(decision["surface"], "agent", "{decision}");
        assert_eq!(decision["outcome_category"], "SUCCESS:TASK_COMPLETED", "{decision}");
        assert_eq!(decision["definition_hash"], run["definition_hash"], "{decision}");
        let calls = app.tool_invocations(&run["id"]).await;
        assert_eq!(
            (calls.len(), &calls[0]["status"]),
            (1, &json!("completed")),
            "{calls:?}"
        );
        // X-1, D-R2, D-R3: its own prompt and tools, and no others.
        let asked = &app.gemini.requests()[0];
        assert!(super::asks(asked, "You are the helper."), "{asked}");
        let offered = asked["tools"][0]["functionDeclarations"].as_array().unwrap();
        let mut offered: Vec<_> = offered.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        offered.sort_unstable();
        assert_eq!(offered, ["add_task", "list_tasks"]);
    }
}

/// X-14, RFC 7240: a client that does not wait is answered at once, and the run ends later.
#[tokio::test]
async fn a_client_that_does_not_wait_receives_the_location_of_the_run() {
    for setup in both() {
        let mut script = adds_milk();
        script[0] = Reply::After(Duration::from_millis(500), Box::new(script[0].clone()));
        let app = spawn_app(setup.script(script)).await;
        let later = [("prefer", "respond-async")];
        let answer = app
            .trigger_with(&path_of("helper"), &later, &json!({"query": "milk!"}))
            .await;
        assert_eq!(answer.header("preference-applied"), "respond-async");
        assert_eq!(answer.header("retry-after"), "1");
        let location = answer.header("location").to_owned();
        let run = answer.expect(202);
        assert!(!has_ended(&run), "{run}");
        until("the run to end", || async { has_ended(&app.get(&location).await.1) }).await;
        let run = app.get(&location).await.1;
        assert_eq!(
            (&run["status"], &run["summary"]),
            (&json!("completed"), &json!("Added.")),
            "{run}"
        );
        assert_eq!(app.tasks().await.len(), 1);
    }
}

/// RFC 7240: a client may limit its wait, and the end of the wait does not end the run.
#[tokio::test]
async fn a_client_with_a_wait_limit_is_answered_then_and_the_run_continues() {
    let slow = Reply::After(Duration::from_secs(3), Box::new(Reply::Text("Done.")));
    for setup in both() {
        let app = spawn_app(setup.script(vec![slow.clone()])).await;
        let wait = [("prefer", "wait=1")];
        let answer = app
            .trigger_with(&path_of("helper"), &wait, &json!({"query": "x"}))
            .await;
        assert_eq!(answer.header("preference-applied"), "wait");
        let run = answer.expect(202);
        assert_eq!(run["status"], "running", "{run}");
        let run = app.over(&id(&run)).await;
        assert_eq!(run["status"], "completed", "{run}");
        // A run that ends in time is answered as without a limit.
        let wait = [("prefer", "wait=20")];
        let answer = app
            .trigger_with(&path_of("helper"), &wait, &json!({"query": "x"}))
            .await;
        assert_eq!(answer.expect(200)["status"], "completed");
    }
}

/// A client that disconnects does not cancel its run.
#[tokio::test]
async fn a_client_that_disconnects_does_not_cancel_its_run() {
    for setup in both() {
        let script = vec![
            Reply::After(
                Duration::from_millis(500),
                Box::new(Reply::call("add_task", json!({"description": "milk"}))),
            ),
            Reply::Text("Added."),
        ];
        let app = spawn_app(setup.script(script)).await;
        let request = app
            .request("POST", &path_of("helper"), &[])
            .json(&json!({"query": "x"}));
        let request = tokio::spawn(request.send());
        app.asked(1).await;
        // Aborting the task closes the client's connection.
        request.abort();
        assert!(request.await.is_err_and(|error| error.is_cancelled()));
        let runs = app.runs("").await;
        let run = app.over(&id(&runs[0])).await;
        assert_eq!(run["status"], "completed", "{run}");
        assert_eq!(app.tasks().await.len(), 1);
    }
}

/// the time limit in the request replaces that of the definition.
#[tokio::test]
async fn a_time_limit_in_the_request_replaces_that_of_the_definition() {
    let patient = "---\nname: patient\ndescription: d\ndeadline_seconds: 3600\n---\n\nTake your time.\n";
    let script = vec![Reply::Hang, Reply::Text("Nothing so far.")];
    let setup = Setup::stdio_sqlite().agent("patient.md", patient).script(script);
    let app = spawn_app(setup).await;
    let path = format!("{}?timeout_s=1", path_of("patient"));
    let run = app.trigger_with(&path, &[], &json!({"query": "x"})).await.expect(200);
    assert_eq!(
        (&run["status"], &run["stop_reason"], &run["summary"]),
        (&json!("paused"), &json!("time_limit"), &json!("Nothing so far.")),
        "{run}"
    );
    assert_eq!(
        run["error_message"], "It used all of its time (1 second) before it was finished.",
        "{run}"
    );
}

const TYPED: &str = "---\nname: typed\ndescription: d\ninputConfig:\n  inputs:\n    what: {description: d, type: string, required: true}\n    \
                     many: {description: d, type: integer}\nquery: \"${what} ${many}\"\n---\n\nGo.\n";

fn pointers(problem: &Value) -> Vec<&str> {
    let errors = problem["errors"].as_array().unwrap_or_else(|| panic!("{problem}"));
    errors.iter().map(|error| error["pointer"].as_str().unwrap()).collect()
}

async fn typed() -> App {
    spawn_app(Setup::stdio_sqlite().agent("typed.md", TYPED)).await
}

/// D-R4: inputs are checked before the start, and all errors are reported at once. Nothing is run or recorded.
#[tokio::test]
async fn invalid_inputs_are_reported_all_at_once() {
    let app = typed().await;
    let answer = app
        .trigger_with(&path_of("typed"), &[], &json!({"many": "x", "colour": 1}))
        .await;
    let problem = answer.problem(400, "invalid_request");
    let mut places = pointers(&problem);
    places.sort_unstable();
    assert_eq!(places, ["/colour", "/many", "/what"], "{problem}");
    for (path, headers, body, place) in [
        ("", &[][..], "[]", ""),
        ("", &[], "{", ""),
        ("", &[], "", "/what"),
        ("", &[], "7", ""),
        ("?timeout_s=0", &[], "{}", "timeout_s"),
        ("?timeout_s=86401", &[], "{}", "timeout_s"),
        ("?timeout_s=1&timeout_s=2", &[], "{}", "timeout_s"),
        ("?colour=red", &[], "{}", "colour"),
        ("", &[("prefer", "wait=soon")], "{}", "Prefer"),
        ("", &[("x-gavel-user", "")], "{}", "X-Gavel-User"),
        ("", &[("idempotency-key", "a b")], "{}", "Idempotency-Key"),
    ] {
        let request = app.request("POST", &format!("{}{path}", path_of("typed")), headers);
        let request = request.header("content-type", "application/json").body(body);
        let problem = Answer::of(request).await.problem(400, "invalid_request");
        assert_eq!(pointers(&problem), [place], "{path} {headers:?} {body}: {problem}");
    }
    assert!(
        app.decisions().await.is_empty(),
        "an unparsable request leaves no decision"
    );
    assert!(app.gemini.requests().is_empty());
}

/// A body has at most 1 MiB, and is JSON.
#[tokio::test]
async fn a_body_that_is_too_long_or_no_json_is_refused() {
    let app = typed().await;
    let long = json!({"what": "x".repeat(1 << 20)});
    app.trigger_with(&path_of("typed"), &[], &long)
        .await
        .problem(413, "body_too_large");
    for media in [
        "application/xml",
        "application/x-www-form-urlencoded",
        "text/plain; charset=latin1",
    ] {
        let other = app
            .request("POST", &path_of("typed"), &[("content-type", media)])
            .body("x");
        let problem = Answer::of(other).await.problem(415, "unsupported_media_type");
        assert!(
            problem["detail"]
                .as_str()
                .unwrap()
                .contains("application/json or text/plain"),
            "{problem}"
        );
    }
    let no_type = app.request("POST", &path_of("typed"), &[]).body("x");
    Answer::of(no_type).await.problem(415, "unsupported_media_type");
}

/// if both the key and Vertex AI are configured, the provider that the agent names is used, not the default.
#[tokio::test]
async fn an_agent_uses_the_provider_that_it_names() {
    let named = "---\nname: named\ndescription: d\nmodelConfig: {provider: gemini}\n---\n\nGo.\n";
    let setup = Setup::stdio_sqlite()
        .agent("named.md", named)
        .script(vec![Reply::Text("By the key.")]);
    // No server listens there: the default provider would fail.
    let setup = setup
        .env("VERTEX_AI_API_KEY", "canary-express-key")
        .env("VERTEX_AI_ENDPOINT", "http://127.0.0.1:9");
    let app = spawn_app(setup).await;
    let run = app.triggered("named", "x").await;
    assert_eq!(
        (&run["status"], &run["summary"]),
        (&json!("completed"), &json!("By the key.")),
        "{run}"
    );
}

/// an agent with one text input accepts it as plain text and as a JSON string; an agent without inputs accepts no
/// body.
#[tokio::test]
async fn an_agent_with_one_text_accepts_text_and_one_without_inputs_no_body() {
    const NONE: &str = "---\nname: none\ndescription: d\ninputConfig: {inputs: {}}\nquery: Look.\n---\n\nGo.\n";
    const TWO: &str = "---\nname: two\ndescription: d\ninputConfig:\n  inputs:\n    a: {description: d, type: string, required: true}\n    \
                       b: {description: d, type: string, required: true}\nquery: \"${a} ${b}\"\n---\n\nGo.\n";
    let script = (0..8).map(|_| Reply::Text("Done.")).collect();
    let setup = Setup::stdio_sqlite()
        .agent("helper.md", HELPER)
        .agent("typed.md", TYPED)
        .agent("none.md", NONE)
        .agent("two.md", TWO)
        .script(script);
    let app = spawn_app(setup).await;
    let post = |agent: &str, media: Option<&str>, body: &'static str| {
        let request = app.request("POST", &path_of(agent), &[]);
        let request = match media {
            Some(media) => request.header("content-type", media),
            None => request,
        };
        Answer::of(request.body(body))
    };
    for (agent, media, body, task) in [
        ("helper", Some("text/plain"), "What is {due}?\n", "What is {due}?\n"),
        (
            "helper",
            Some("Text/Plain; charset=UTF-8"),
            "{\"query\": 1}",
            "{\"query\": 1}",
        ),
        ("helper", Some("application/json"), "\"Hello \\u00e4\"", "Hello ä"),
        ("typed", Some("text/plain"), "only text", "only text "),
        ("none", None, "", "Look."),
        ("none", Some("application/json"), "", "Look."),
        ("none", Some("application/json"), "{}", "Look."),
        ("none", Some("text/plain"), "", "Look."),
    ] {
        let run = post(agent, media, body).await.expect(200);
        assert_eq!(run["status"], "completed", "{agent} {media:?} {body}: {run}");
        let asked = app.gemini.requests();
        let asked = asked.last().unwrap().to_string();
        let task = json!(task).to_string();
        assert!(
            asked.contains(&format!("\\n\\n{}", &task[1..])),
            "{agent} {media:?} {body}: {asked}"
        );
    }
    for (agent, media, body, says) in [
        (
            "two",
            Some("text/plain"),
            "x",
            "is a text, but two takes several inputs, or no text; allowed: a JSON object of its inputs: a, b",
        ),
        ("none", Some("application/json"), "\"x\"", "allowed: no body, or {}"),
        (
            "helper",
            Some("application/json"),
            "7",
            "or a JSON string for an agent that takes one text",
        ),
    ] {
        let problem = post(agent, media, body).await.problem(400, "invalid_request");
        assert_eq!(pointers(&problem), [""], "{problem}");
        assert!(
            problem
                .to_string()
                .contains(&json!(says).to_string().trim_matches('"').to_owned()),
            "{problem}"
        );
    }
    let nothing = post("two", None, "").await.problem(400, "invalid_request");
    assert_eq!(pointers(&nothing), ["/a", "/b"], "{nothing}");
}

#[tokio::test]
async fn an_unknown_agent_or_project_is_404() {
    for setup in both() {
        let app = spawn_app(setup).await;
        for path in [
            path_of("stranger"),
            "/api/projects/nowhere/agents/helper/trigger".to_owned(),
            "/api/projects/%20/agents/helper/trigger".to_owned(),
        ] {
            let answer = app.trigger_with(&path, &[], &json!({"query": "x"})).await;
            answer.problem(404, "not_found");
        }
        for path in ["/api/projects/nowhere/runs", "/api/projects/nowhere/agents"] {
            Answer::of(app.request("GET", path, &[]))
                .await
                .problem(404, "not_found");
        }
        assert!(app.decisions().await.is_empty());
    }
}

/// C-US5-3. Promise: recorded. A request over the quota runs nothing, and is recorded.
#[tokio::test]
async fn a_request_over_the_quota_runs_nothing_and_is_recorded() {
    for setup in both() {
        let app = spawn_app(setup.rate(1, 1)).await;
        let first = app.triggered("helper", "x").await;
        assert_eq!(first["status"], "completed", "{first}");
        let answer = app.trigger_with(&path_of("helper"), &[], &json!({"query": "y"})).await;
        let seconds: u32 = answer.header("retry-after").parse().unwrap();
        assert!((1..=60).contains(&seconds));
        answer.problem(429, "rate_limited");
        let decisions = app.decisions().await;
        let refused: Vec<_> = decisions
            .iter()
            .filter(|decision| decision["outcome_category"] == "REFUSAL:RATE_LIMITED")
            .collect();
        assert_eq!((decisions.len(), refused.len()), (2, 1), "{decisions:?}");
        assert_eq!(
            (&refused[0]["surface"], &refused[0]["decision_type"]),
            (&json!("agent"), &json!("REFUSE")),
            "{refused:?}"
        );
        assert_eq!(app.runs("").await.len(), 1, "no run was made");
    }
}

/// Promise: recorded. With all slots taken, a waiting request is shed and recorded. A request that does not wait is
/// queued.
#[tokio::test]
async fn excess_requests_are_shed_and_recorded() {
    for setup in both() {
        let script = vec![Reply::Hang, Reply::Text("Hello.")];
        let app = spawn_app(setup.env("GAVEL_MAX_IN_FLIGHT", "1").script(script)).await;
        let waiting = app
            .request("POST", &path_of("helper"), &[])
            .json(&json!({"query": "x"}));
        let waiting = tokio::spawn(waiting.send());
        app.asked(1).await;
        let answer = app.trigger_with(&path_of("helper"), &[], &json!({"query": "y"})).await;
        assert_eq!(answer.header("retry-after"), "1");
        answer.problem(503, "overloaded");
        let filter = "/v1/decisions?filter=outcome_category%20%3D%20%22REFUSAL%3AOVERLOADED%22";
        let (_, page) = app.get(filter).await;
        assert_eq!(page["decisions"].as_array().unwrap().len(), 1, "{page}");
        let queued = app.queued("helper", "z").await;
        assert_eq!(app.over(&queued).await["status"], "completed");
        waiting.abort();
    }
}

/// An agent with missing tools does not block the start. It is listed with the reason, and its run fails with it. X-14:
/// it is never skipped.
#[tokio::test]
async fn an_agent_without_its_tools_is_listed_as_unavailable_and_its_run_fails_saying_so() {
    let lacking = "---\nname: lacking\ndescription: d\ntools: [fly]\n---\n\nFly.\n";
    for setup in both() {
        let app = spawn_app(setup.agent("lacking.md", lacking)).await;
        until("the tools to be available", || async {
            app.get("/api/projects/default/agents/helper").await.1["available"] == true
        })
        .await;
        let (_, page) = app.get("/api/projects/default/agents").await;
        let agents = page["agents"].as_array().unwrap();
        let names: Vec<_> = agents.iter().map(|agent| agent["id"].as_str().unwrap()).collect();
        assert_eq!(names, ["chief", "helper", "lacking"]);
        assert_eq!(agents[2]["available"], false, "{page}");
        assert!(
            agents[2]["unavailable_reason"].as_str().unwrap().contains("fly"),
            "{page}"
        );
        let run = app.triggered("lacking", "x").await;
        assert_eq!(run["status"], "failed", "{run}");
        assert!(run["error_message"].as_str().unwrap().contains("fly"), "{run}");
        let decision = app.decision(&run["id"]).await;
        assert_eq!(decision["status"], "closed", "{decision}");
        assert!(app.gemini.requests().is_empty());
    }
}
