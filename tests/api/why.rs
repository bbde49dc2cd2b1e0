//! Why a decision was made as it was, and why an action needed a person, over HTTP on both databases.

use std::fs;

use serde_json::{Value, json};

use crate::gemini::Reply;
use crate::harness::{App, Setup, spawn_app};
use crate::threads::{add, both};

const RULES: &str = r#"
rules:
- {name: tasks, tools: add_task, then: allow, reason: harmless}
- {name: no-secrets, tools: add_task, when: 'arguments.description.contains("password")', then: deny, reason: no secrets}
- {name: ask-first, tools: add_task, surfaces: [thread], then: require_approval, reason: a person decides}
"#;

/// The setups with these rules, and the file that must outlive them.
fn ruled() -> (tempfile::NamedTempFile, [Setup; 2]) {
    let policy = tempfile::NamedTempFile::new().unwrap();
    fs::write(policy.path(), RULES).unwrap();
    let path = policy.path().display().to_string();
    (policy, both().map(|setup| setup.env("GAVEL_POLICY", path.as_str())))
}

async fn why(app: &App, decision: &Value) -> Value {
    let (status, why) = app
        .get(&format!("/v1/decisions/{}/why", decision.as_str().unwrap()))
        .await;
    assert_eq!(status, 200, "{why}");
    why
}

#[tokio::test]
async fn a_chat_is_explained_by_its_rules_its_limits_and_the_audit_log() {
    let (_policy, setups) = ruled();
    for setup in setups {
        let mut script = vec![add("call mom"), add("the password is x"), Reply::Text("Half of it.")];
        script.extend((0..5).map(|_| Reply::call("list_tasks", json!({}))));
        let app = spawn_app(setup.script(script)).await;
        let decision = app.chat_as("ann", "add both").await["decision_id"].clone();
        let found = why(&app, &decision).await;
        assert_eq!(
            found["outcome"],
            json!({"category": "REFUSAL:POLICY_DENIED", "call": 2, "limits": [],
                "because": "Call 2 of add_task (denied) was not allowed, and no later call made up for it."}),
            "{found}"
        );
        let [allowed, denied] = &found["gate"].as_array().unwrap()[..] else {
            panic!("{found}")
        };
        assert_eq!(
            (&allowed["verdict"], &allowed["status"]),
            (&json!("allow"), &json!("completed")),
            "{found}"
        );
        assert_eq!(
            (&denied["verdict"], &denied["rule"]),
            (&json!("deny"), &json!("rule no-secrets")),
            "{found}"
        );
        assert_eq!(
            denied["lost"][0],
            json!({"by": "rule tasks", "says": "allow"}),
            "{found}"
        );
        let asked: Vec<_> = found["turns"]
            .as_array()
            .unwrap()
            .iter()
            .map(|turn| turn["asked"].clone())
            .collect();
        assert_eq!(asked, [json!([1]), json!([2]), json!([])], "{found}");
        assert_eq!(found["definition"]["is_current"], true, "{found}");
        assert_eq!(found["definition"]["diff_to_current"], Value::Null, "{found}");
        assert!(
            found["offered"].as_array().unwrap().contains(&json!("add_task")),
            "{found}"
        );
        let time = |name: &str| found["time"][name].as_u64().unwrap();
        let parts: u64 = ["model_ms", "tool_ms", "human_ms", "own_ms"].map(time).iter().sum();
        assert_eq!(parts, time("total_ms"), "{found}");
        let kinds = |found: &Value| -> Vec<Value> {
            found["audit"]["rows"]
                .as_array()
                .unwrap()
                .iter()
                .map(|row| row["kind"].clone())
                .collect()
        };
        assert_eq!(kinds(&found), ["effect_intended", "effect_completed"], "{found}");
        assert_eq!(found["audit"]["verified"], true, "{found}");

        let decision = app.chat_as("ann", "list for ever").await["decision_id"].clone();
        let found = why(&app, &decision).await;
        let limit = json!({"name": "model_calls", "limit": 5});
        assert_eq!(found["outcome"]["limits"], json!([limit]), "{found}");
        assert_eq!(
            found["outcome"]["because"], "The run reached a limit (model_calls 5).",
            "{found}"
        );
        assert_eq!(found["gate"][4]["limit"], limit, "{found}");
        assert_eq!(found["gate"][3]["limit"], Value::Null, "{found}");
        assert_eq!(found["audit"], json!({"rows": [], "verified": null}), "{found}");

        let bob = app
            .get_by("bob", &format!("/v1/decisions/{}/why", decision.as_str().unwrap()))
            .await;
        bob.problem(404, "not_found");
        app.stop().await;
    }
}

#[tokio::test]
async fn an_action_says_why_a_person_was_asked_and_by_which_grant_the_next_was_not() {
    let (_policy, setups) = ruled();
    for setup in setups {
        let script = || [add("bob@example.com"), Reply::Text("Done.")];
        let setup = setup.tool("add_task", json!({"recipients": ["description"]}));
        let app = spawn_app(setup.script(script().into_iter().chain(script()).collect())).await;
        let waiting = app.say("Put bob on my list.").await;
        let action = &waiting["actions"][0];
        let path = |id: &Value| format!("/api/agent/actions/{}/why", id.as_str().unwrap());
        let asked = app.get_by("ann", &path(&action["actionId"])).await.expect(200);
        assert_eq!(
            (&asked["state"], &asked["verdict"]),
            (&json!("awaiting_confirmation"), &json!("require_approval"))
        );
        assert_eq!(asked["rule"], "rule ask-first", "{asked}");
        assert!(
            asked["reason"].as_str().unwrap().contains("a person decides"),
            "{asked}"
        );
        assert_eq!(asked["lost"], json!([{"by": "rule tasks", "says": "allow"}]), "{asked}");
        assert_eq!(asked["audit"]["rows"][0]["kind"], "approval_requested", "{asked}");
        assert_eq!(asked["audit"]["verified"], true, "{asked}");
        // The id of the approval request leads to the same.
        let same = app.get_by("ann", &path(&action["approvalId"])).await.expect(200);
        assert_eq!(same, asked);
        app.get_by("bob", &path(&action["actionId"]))
            .await
            .problem(404, "not_found");

        app.resolve(&action["approvalId"], "approve_and_always_allow_recipient")
            .await;
        let found = why(&app, &waiting["runId"]).await;
        let call = &found["gate"][0];
        assert_eq!(
            (&call["verdict"], &call["rule"]),
            (&json!("require_approval"), &json!("rule ask-first")),
            "{found}"
        );
        let approval = &call["approval"];
        assert_eq!(approval["resolution"], "approve_and_always_allow_recipient", "{found}");
        assert_eq!(approval["resolved_by"], "service:local for user:ann", "{found}");
        let grant = format!("grant {}", approval["grant_id"].as_str().unwrap());
        assert_eq!(found["definition"]["is_current"], true, "{found}");
        assert_eq!(found["audit"]["verified"], true, "{found}");

        let more = json!({"prompt": "Again.", "threadId": waiting["threadId"]});
        let again = app.say_as("ann", more).await.expect(200);
        assert_eq!(again["status"], "completed", "{again}");
        let found = why(&app, &again["runId"]).await;
        let call = &found["gate"][0];
        assert_eq!(
            (&call["verdict"], &call["rule"]),
            (&json!("allow"), &json!(grant)),
            "{found}"
        );
        let lost = json!({"by": "rule ask-first", "says": "require_approval"});
        assert!(call["lost"].as_array().unwrap().contains(&lost), "{found}");
        assert_eq!(call["approval"]["approval_id"], Value::Null, "{found}");
        app.stop().await;
    }
}

#[tokio::test]
async fn with_hashed_contents_an_explanation_has_no_words_of_anybody() {
    let (_policy, setups) = ruled();
    for setup in setups {
        let setup = setup
            .env("GAVEL_RECORDS_CONTENT", "hash")
            .env("GAVEL_RECORDS_KEY", "a key of at least thirty-two characters, and more");
        let script = vec![
            add("canary call mom"),
            add("canary password"),
            Reply::call("canary_tool", json!({"canary": "canary"})),
            Reply::Text("canary"),
        ];
        let app = spawn_app(setup.script(script)).await;
        let decision = app.chat("canary, add it").await["decision_id"].clone();
        let found = why(&app, &decision).await;
        assert_eq!(found["gate"].as_array().unwrap().len(), 3, "{found}");
        assert_eq!(found["gate"][1]["rule"], "rule no-secrets", "{found}");
        assert!(!found.to_string().contains("canary"), "{found}");
        app.stop().await;
    }
}
