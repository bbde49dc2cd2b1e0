//! The policy file and the argument checks, on the chat surface, where no approval can be requested.

use std::fs;

use gavel::app::App as Service;
use gavel::config::{Config, Sources};
use serde_json::{Value, json};

use crate::gemini::Reply;
use crate::harness::{Answer, App, Setup, binary, spawn_app};

/// A file that outlives the start of an app.
fn policy(text: &str) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.yaml");
    fs::write(&path, text).unwrap();
    let path = path.display().to_string();
    (directory, path)
}

/// The tasks server, with a description field that is configured as a list of recipients.
fn addressed() -> Value {
    json!({"mcpServers": {"tasks": {
        "command": binary(), "args": ["mcp-server", "tasks"], "env": {"TASKS_DATABASE_URL": "sqlite://tasks.db"},
        "gavel": {"trustHints": true, "tools": {"add_task": {"recipients": ["description"]}}},
    }}})
}

async fn add(setup: Setup, description: &str) -> (App, Value) {
    let call = Reply::call("add_task", json!({"description": description}));
    let app = spawn_app(setup.script(vec![call, Reply::Text("Done.")])).await;
    let decision = app.chat("add it").await;
    (app, decision)
}

const DENY: &str = r#"
rules:
  - name: no-secrets
    tools: [tasks__add_task]
    when: arguments.description.contains("password")
    then: deny
    reason: passwords are no tasks
tests:
  - name: a password
    call: {tool: tasks__add_task, arguments: {description: "the password is x"}}
    expect: deny
    rule: no-secrets
"#;

/// R-10, R-16, R-17: a deny rule denies on every surface, and here the outcome shows it.
#[tokio::test]
async fn a_deny_rule_blocks_the_call_and_gives_the_model_the_reason() {
    for setup in [Setup::stdio_sqlite(), Setup::stdio_postgres()] {
        let (_directory, path) = policy(DENY);
        let (app, decision) = add(setup.env("GAVEL_POLICY", path), "the password is x").await;
        assert_eq!(decision["outcome_category"], "REFUSAL:POLICY_DENIED", "{decision}");
        let error = &decision["tool_calls"][0]["result"]["error"];
        assert_eq!(error["code"], "denied");
        assert_eq!(
            error["message"],
            "denied by the policy: passwords are no tasks (rule \"no-secrets\")"
        );
        let reported = app.gemini.requests()[1].to_string();
        assert!(reported.contains("passwords are no tasks"), "{reported}");
        assert!(app.tasks().await.is_empty());
        let calls = app.tool_invocations(&decision["decision_id"]).await;
        assert_eq!(calls[0]["status"], "not_sent");
        assert_eq!(calls[0]["policy"], "deny", "{calls:?}");
        assert_eq!(calls[0]["decided_by"], "rule no-secrets");
        assert_eq!(calls[0]["input_hash"].as_str().unwrap().len(), 64);
    }
}

/// A rule applies only to the calls it names.
#[tokio::test]
async fn a_call_without_a_matching_rule_runs() {
    let (_directory, path) = policy(DENY);
    let (app, decision) = add(Setup::stdio_sqlite().env("GAVEL_POLICY", path), "call mom").await;
    assert_eq!(decision["outcome_category"], "SUCCESS:TASK_COMPLETED", "{decision}");
    assert_eq!(app.tasks().await.len(), 1);
}

/// On the chat surface a call that requires approval is denied, even if a rule requires the approval.
#[tokio::test]
async fn a_rule_that_requires_approval_denies_on_the_chat_surface() {
    let text = "rules:\n- {name: ask, tools: add_task, then: require_approval, reason: tasks are looked at}\n";
    let (_directory, path) = policy(text);
    let (app, decision) = add(Setup::stdio_sqlite().env("GAVEL_POLICY", path), "call mom").await;
    assert_eq!(decision["outcome_category"], "REFUSAL:POLICY_DENIED", "{decision}");
    let message = decision["tool_calls"][0]["result"]["error"]["message"]
        .as_str()
        .unwrap();
    assert!(
        message.contains("tasks are looked at (rule \"ask\"), and this request cannot wait"),
        "{message}"
    );
    assert!(app.tasks().await.is_empty());
}

/// Promise: decided by code. A rule that cannot be evaluated for a call denies it, and the error says so.
#[tokio::test]
async fn a_rule_that_cannot_be_evaluated_denies() {
    let text = "rules:\n- {name: odd, tools: add_task, when: arguments.priority > 3, then: allow, reason: r}\n";
    let (_directory, path) = policy(text);
    let (app, decision) = add(Setup::stdio_sqlite().env("GAVEL_POLICY", path), "call mom").await;
    let message = decision["tool_calls"][0]["result"]["error"]["message"]
        .as_str()
        .unwrap();
    assert!(
        message.contains("cannot be evaluated for this call") && message.contains("priority"),
        "{message}"
    );
    assert!(app.tasks().await.is_empty());
}

/// Promise: bounded faults. The cost of all rule conditions for one call is bounded. A call that exceeds it is denied,
/// and the error names the rule.
#[tokio::test]
async fn conditions_that_could_take_too_long_deny_the_call_and_name_the_rule() {
    let numbers = (0..60).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let when = format!("!arguments.description.startsWith('x') && ![{numbers}].all(a, [{numbers}].all(b, a + b >= 0))");
    let rules: String = (0..100)
        .map(|n| format!("- {{name: slow-{n}, tools: add_task, when: \"{when}\", then: deny, reason: r}}\n"))
        .collect();
    let (_directory, path) = policy(&format!("rules:\n{rules}"));
    let began = std::time::Instant::now();
    let (app, decision) = add(Setup::stdio_sqlite().env("GAVEL_POLICY", path), "call mom").await;
    assert_eq!(decision["outcome_category"], "REFUSAL:POLICY_DENIED", "{decision}");
    let message = decision["tool_calls"][0]["result"]["error"]["message"]
        .as_str()
        .unwrap();
    assert!(
        message.contains("steps") && message.contains("(rule \"slow-99\")"),
        "{message}"
    );
    assert!(
        !message.contains("(rule \"slow-0\")"),
        "the first ones are within the limit for all: {message}"
    );
    assert!(app.tasks().await.is_empty());
    assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
}

/// R-12: an invalid recipient is refused before approval with an error that names the location, and the model can
/// correct it.
#[tokio::test]
async fn invalid_recipients_reach_the_model_as_invalid_arguments() {
    let directory = tempfile::tempdir().unwrap();
    let mut mcp = addressed();
    let tasks = format!("sqlite://{}", directory.path().join("tasks.db").display());
    mcp["mcpServers"]["tasks"]["env"]["TASKS_DATABASE_URL"] = tasks.into();
    for (invalid, says) in [
        ("mom", "/description: \"mom\" has no `@`; allowed: "),
        (
            "a@b.org\r\nBcc: eve@x.org",
            "/description: \"a@b.org\\r\\nBcc: eve@x.org\" holds line ends",
        ),
        (
            "boss@b.org <eve@x.org>",
            "its display name \"boss@b.org\" contains another address",
        ),
    ] {
        let (app, decision) = add(Setup::stdio_sqlite().mcp(mcp.clone()), invalid).await;
        let error = &decision["tool_calls"][0]["result"]["error"];
        assert_eq!(error["code"], "invalid_arguments", "{decision}");
        assert!(error["message"].as_str().unwrap().contains(says), "{error}");
        let reported = app.gemini.requests()[1]["contents"]
            .as_array()
            .unwrap()
            .last()
            .unwrap()
            .to_string();
        assert!(
            reported.contains("invalid_arguments") && reported.contains("/description: "),
            "{reported}"
        );
        let calls = app.tool_invocations(&decision["decision_id"]).await;
        assert_eq!(calls[0]["status"], "not_sent");
        assert_eq!(calls[0]["policy"], "deny", "{calls:?}");
        assert_eq!(calls[0]["decided_by"], "parameters");
        assert_eq!(calls[0]["input_hash"].as_str().unwrap().len(), 64);
    }
    let (_app, decision) = add(Setup::stdio_sqlite().mcp(mcp), "Mom <mom@example.org>").await;
    assert_eq!(decision["outcome_category"], "SUCCESS:TASK_COMPLETED", "{decision}");
}

/// Every error in the file, and every failing test, stops the start.
#[tokio::test]
async fn an_invalid_policy_or_a_failing_policy_test_stops_the_start() {
    let refused = async |text: &str| {
        let (directory, path) = policy(text);
        let database = format!("sqlite://{}", directory.path().join("gavel.db").display());
        let environment = [("GAVEL_POLICY", path.clone()), ("DATABASE_URL", database)];
        let config = Config::resolve(Sources {
            flags: Default::default(),
            environment: environment.map(|(name, value)| (name.to_owned(), value)).into(),
            dotenv: Default::default(),
            file: None,
            read_file: &|path| fs::read_to_string(path),
        });
        let error = Service::build(config.unwrap().config).await.err().unwrap();
        error.to_string().replace(&path, "policy.yaml")
    };
    let invalid =
        refused("rules:\n- {name: a, tools: x, then: maybe}\n- {name: b, tool: x, then: deny, reason: r}\n").await;
    assert_eq!(
        invalid,
        "the policy is invalid:\n\
         policy.yaml:2: rules[0].then: found \"maybe\"; allowed: allow, require_approval or deny\n\
         policy.yaml:2: rules[0].reason: found nothing; allowed: why, in words for approvers and the model\n\
         policy.yaml:3: rules[1].tool: found an unknown field; allowed: did you mean `tools`?"
    );
    let failing = refused(&DENY.replace("expect: deny", "expect: allow")).await;
    assert_eq!(
        failing,
        "the policy is invalid:\npolicy.yaml:9: test \"a password\": found deny by rule no-secrets (denied by the policy: \
         passwords are no tasks (rule \"no-secrets\")); allowed: allow by rule \"no-secrets\""
    );
}

/// The history on both databases: what a user approved, what they rejected, and what ran in a chat.
#[tokio::test]
async fn simulate_compares_with_past_approvals_and_rejections() {
    let workspace = "---\nname: workspace\ndescription: Works.\ntools: [add_task]\n---\n\nYou are the workspace.\n";
    for setup in [Setup::stdio_sqlite(), Setup::stdio_postgres()] {
        let two = vec![
            ("add_task", json!({"description": "milk"})),
            ("add_task", json!({"description": "the password is x"})),
        ];
        let model = Reply::from(move |request| match request["contents"].as_array().unwrap().len() {
            1 => Reply::Calls(two.clone()),
            _ => Reply::Text("Done."),
        });
        let app = spawn_app(setup.script(vec![model]).agent("workspace.md", workspace)).await;
        app.chat("add both").await;
        let mut run = Answer::of(
            app.request("POST", "/api/agent/run", &[])
                .json(&json!({"prompt": "add both"})),
        )
        .await;
        for (at, decision) in ["approve_once", "reject"].into_iter().enumerate() {
            let approval = run.expect(200)["actions"][at]["approvalId"].clone();
            let answer = app.request("POST", "/api/agent/approvals/resolve", &[]);
            run = Answer::of(answer.json(&json!({"approvalId": approval, "decision": decision}))).await;
        }
        assert_eq!(run.expect(200)["status"], "completed");
        let (directory, path) = policy(DENY);
        let mut gavel = tokio::process::Command::new(binary());
        gavel.env_clear().current_dir(directory.path());
        gavel
            .env("DATABASE_URL", &app.database_url)
            .env("GAVEL_MCP_CONFIG", app.directory.path().join("mcp.json"))
            .env("GAVEL_AGENTS", app.directory.path().join("agents"))
            .args(["policy", "simulate", "--policy", &path, "--json"]);
        let ran = gavel.output().await.unwrap();
        let (out, err) = (
            String::from_utf8(ran.stdout).unwrap(),
            String::from_utf8(ran.stderr).unwrap(),
        );
        assert_eq!(ran.status.code(), Some(0), "{err}");
        let reported: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let summary = &reported.last().unwrap()["summary"];
        let counted = |happened: &str, now: &str| {
            let counts = summary["counts"].as_array().unwrap().iter();
            let found = counts.filter(|count| count["happened"] == happened && count["now"] == now);
            found.map(|count| count["calls"].as_u64().unwrap()).sum::<u64>()
        };
        assert_eq!(summary["calls"], 4, "{out}");
        assert_eq!(
            (counted("ran", "allow"), counted("ran", "deny")),
            (1, 1),
            "the chat: {out}"
        );
        assert_eq!(
            (counted("approved", "require_approval"), counted("rejected", "deny")),
            (1, 1),
            "the thread: {out}"
        );
    }
}
