//! What the decision log keeps of a decision beside its outcome: what it was asked with, each model call, and where the
//! time went.

use std::time::Duration;

use serde_json::{Value, json};

use crate::gemini::Reply;
use crate::harness::spawn_app;
use crate::threads::{both, said};

fn ms(record: &Value, name: &str) -> u64 {
    record[name].as_u64().unwrap_or_else(|| panic!("{name}: {record}"))
}

/// The parts of its time that were not gavel's own.
fn parts(record: &Value) -> u64 {
    ["human_ms", "model_ms", "tool_ms"]
        .map(|name| ms(record, name))
        .iter()
        .sum()
}

#[tokio::test]
async fn a_chat_records_what_it_was_asked_with_and_each_model_call() {
    for setup in both() {
        let script = vec![
            Reply::call("list_tasks", json!({})),
            Reply::After(Duration::from_millis(150), Box::new(Reply::Text("You have no tasks."))),
            Reply::Words(Duration::from_millis(30), &["You still ", "have none."]),
        ];
        let app = spawn_app(setup.script(script)).await;
        let body = json!({
            "message": "what is open?", "user_id": "ann", "time_zone": "Asia/Kolkata", "tools": ["list_tasks"],
            "history": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}],
        });
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let traceparent = format!("00-{trace}-00f067aa0ba902b7-01");
        let (status, _, decision) = app.post_with(&[("traceparent", &traceparent)], body.to_string()).await;
        assert_eq!(status, 200, "{decision}");
        let record = app.decision(&decision["decision_id"]).await;
        for (name, value) in [
            ("agent_id", Value::Null),
            ("time_zone", json!("Asia/Kolkata")),
            ("tools_subset", json!(["list_tasks"])),
            ("history_entries", json!(2)),
            ("trace_id", json!(trace)),
            ("finish_reason", json!("STOP")),
            ("attempts", json!(2)),
            ("human_ms", json!(0)),
        ] {
            assert_eq!(record[name], value, "{name}: {record}");
        }
        let turns = record["turns"].as_array().unwrap();
        assert_eq!(turns.len(), 2, "{record}");
        let tokens = turns.iter().map(|turn| turn["usage"]["input_tokens"].as_u64().unwrap());
        assert_eq!(tokens.sum::<u64>(), record["usage"]["input_tokens"], "{record}");
        assert!(
            ms(&turns[1], "duration_ms") >= 150 && ms(&record, "model_ms") >= 150,
            "{record}"
        );
        assert!(parts(&record) <= ms(&record, "duration_ms"), "{record}");
        assert!(
            record["closed_at"].as_str() >= record["created_at"].as_str(),
            "{record}"
        );
        assert_eq!(
            turns[1]["first_text_ms"],
            Value::Null,
            "only a stream has a first text: {record}"
        );

        let streamed = app.stream(&json!({"message": "and now?", "user_id": "ann"})).await;
        let last: Value = serde_json::from_str(streamed.lines().last().unwrap()).unwrap();
        let record = app.decision(&last["decision_id"]).await;
        let turn = &record["turns"][0];
        assert!(ms(turn, "first_text_ms") <= ms(turn, "duration_ms"), "{record}");
        assert_eq!(
            (&record["time_zone"], &record["tools_subset"]),
            (&json!("UTC"), &Value::Null),
            "{record}"
        );
        app.stop().await;
    }
}

#[tokio::test]
async fn a_run_records_its_agent_and_how_long_its_approver_took() {
    for setup in both() {
        let model = Reply::from(|request| match said(request) {
            1 => Reply::call("add_task", json!({"description": "milk"})),
            _ => Reply::Text("It is on the list."),
        });
        let app = spawn_app(setup.script(vec![model])).await;
        let waiting = app.say("Put milk on my list.").await;
        tokio::time::sleep(Duration::from_millis(400)).await;
        let done = app.resolve(&waiting["actions"][0]["approvalId"], "approve_once").await;
        assert_eq!(done["status"], "completed", "{done}");
        let record = app.decision(&done["runId"]).await;
        assert!(record["agent_id"].is_string(), "{record}");
        assert_eq!(record["turns"].as_array().unwrap().len(), 2, "{record}");
        assert!(ms(&record, "human_ms") >= 400, "{record}");
        assert!(parts(&record) <= ms(&record, "duration_ms"), "{record}");
        let filter = format!("/v1/decisions?filter=agent_id%20%3D%20{}", record["agent_id"]);
        let (_, page) = app.get(&filter.replace('"', "%22")).await;
        assert_eq!(page["decisions"][0]["decision_id"], done["runId"], "{page}");
        app.stop().await;
    }
}
