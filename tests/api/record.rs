//! What the decision log keeps of a decision beside its outcome: what it was asked with, each model call, and where the
//! time went.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gavel::adapters::gemini::{Endpoint, Gemini as Adapter, GeminiConfig};
use gavel::api::decisions::{AskedWith, DecisionRecord};
use gavel::domain::definition::{Definition, Form};
use gavel::domain::journal::Speaker;
use gavel::engine::context;
use gavel::engine::toolset::Offered;
use gavel::ports::model::{CallMode, Content, Functions, Model, ModelRequest};
use serde_json::{Value, json};

use crate::gemini::{Gemini, Reply};
use crate::harness::{App, spawn_app};
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

/// In dollars for a million tokens; each token costs a thousand billionths, from a cache a hundred, of output ten thousand.
const PRICES: &str = "
[[models]]
model = \"gemini-3.5-flash\"
valid_from = 2020-01-01
input = 1
cached = 0.1
output = 10
";

/// An answer whose prompt came mostly from a cache, in the tier at half the price.
fn cached_and_flexible() -> Reply {
    let body = json!({
        "candidates": [{"content": {"parts": [{"text": "None."}], "role": "model"}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 100, "cachedContentTokenCount": 80, "candidatesTokenCount": 10,
            "thoughtsTokenCount": 5, "totalTokenCount": 115, "serviceTier": "flex"},
        "modelVersion": "gemini-3.5-flash",
    });
    Reply::Raw(200, body.to_string())
}

#[tokio::test]
async fn a_decision_costs_what_the_models_that_answered_cost() {
    let prices = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(prices.path(), PRICES).unwrap();
    for setup in both() {
        let script = vec![
            Reply::call("list_tasks", json!({})),
            cached_and_flexible(),
            Reply::Text("Good morning."),
            Reply::Text("Good evening."),
            // It names no model.
            Reply::finish("SAFETY"),
        ];
        let app = spawn_app(
            setup
                .env("GAVEL_PRICES", prices.path().display().to_string())
                .script(script),
        )
        .await;
        let ask = async |message: &str| {
            let body = json!({"message": message, "user_id": "ann"});
            let (status, _, decision) = app.post_with(&[], body.to_string()).await;
            assert_eq!(status, 200, "{decision}");
            app.decision(&decision["decision_id"]).await
        };
        // Only this test has a price for this model.
        let counted = async || {
            let (_, page) = app.get("/metrics").await;
            let name = "gavel_model_cost_nanodollars_total{model=\"gemini-3.5-flash\"} ";
            let mut lines = page.as_str().unwrap().lines();
            let value = lines.find_map(|line| line.strip_prefix(name));
            value.map_or(0, |value| value.parse::<u64>().unwrap())
        };
        let before = counted().await;
        let costs = |record: &Value| {
            let turns = record["turns"].as_array().unwrap().iter();
            (
                record["cost_nano"].clone(),
                turns.map(|turn| turn["cost_nano"].clone()).collect::<Vec<_>>(),
            )
        };
        let asked = ask("what is open?").await;
        assert_eq!(
            costs(&asked),
            (json!(339_000), vec![json!(250_000), json!(89_000)]),
            "{asked}"
        );
        let price = "gemini-3.5-flash@2020-01-01:1/0.1/10";
        assert_eq!(asked["price_id"], format!("{price}, {price}x0.5"), "{asked}");
        assert_eq!(asked["turns"][0]["price_id"], price, "{asked}");
        let run = app.say("Good morning.").await;
        let run = app.decision(&run["runId"]).await;
        assert_eq!(costs(&run), (json!(250_000), vec![json!(250_000)]), "{run}");
        ask("good evening").await;
        let blocked = ask("what is not allowed?").await;
        assert_eq!(costs(&blocked), (Value::Null, vec![Value::Null]), "{blocked}");

        let list = async |query: &str| {
            let (status, page) = app.get(&format!("/v1/decisions?{query}")).await;
            assert_eq!(status, 200, "{page}");
            page["decisions"].as_array().unwrap().clone()
        };
        let of_today = "created_at%20%3E%3D%20%22".to_owned() + asked["created_at"].as_str().unwrap() + "%22";
        let largest = list(&format!(
            "filter={of_today}%20AND%20cost_nano%20%3E%200&order_by=cost_nano%20desc"
        ))
        .await;
        let largest: Vec<_> = largest.iter().map(|row| row["cost_nano"].as_u64().unwrap()).collect();
        assert_eq!(largest, [339_000, 250_000, 250_000]);
        assert_eq!(counted().await - before, 839_000);
        let unknown = list("filter=cost_nano%20%3D%20null").await;
        assert_eq!(
            (unknown.len(), &unknown[0]["decision_id"]),
            (1, &blocked["decision_id"])
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

/// Another process, or none, may be the last that asks the model: what it was asked with is in the row all the same.
#[tokio::test]
async fn a_run_that_waited_has_what_its_model_was_asked_with() {
    for setup in both() {
        let model = Reply::from(|request| match request["contents"].to_string().contains("milk") {
            true if !request["contents"].to_string().contains("functionResponse") => {
                Reply::call("add_task", json!({"description": "milk"}))
            }
            _ => Reply::Text("Noted."),
        });
        let app = spawn_app(setup.script(vec![model])).await;
        let first = app.say("Good morning.").await;
        let second = json!({"prompt": "Put milk on my list.", "threadId": first["threadId"]});
        let waiting = app.say_as("ann", second.clone()).await.expect(200);
        let done = app.resolve(&waiting["actions"][0]["approvalId"], "approve_once").await;
        assert_eq!(done["status"], "completed", "{done}");
        let (_, asked) = asked_with(&app, &json!({"decision_id": done["runId"]})).await;
        let said: Vec<_> = asked
            .history
            .iter()
            .map(|said| said.content.as_deref().unwrap())
            .collect();
        assert_eq!(said, ["Good morning.", "Noted."]);
        assert!(asked.toolset.unwrap().get().contains("add_task"));
        app.stop().await;
    }
}

/// What users and models said in recorded conversations, each with its role.
fn conversations() -> Option<Vec<Vec<(String, String)>>> {
    let shared = std::env::var_os("GAVEL_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"), Into::into);
    let Ok(files) = std::fs::read_dir(shared.join("gemini/recorded")) else {
        assert!(
            std::env::var_os("CI").is_none(),
            "{} has no recordings",
            shared.display()
        );
        eprintln!("skipped: {} has no recordings", shared.display());
        return None;
    };
    let mut all = Vec::new();
    for file in files
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
    {
        let recorded: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let mut said = Vec::new();
        for content in recorded["request"]["body"]["contents"].as_array().into_iter().flatten() {
            let role = if content["role"] == "model" {
                "assistant"
            } else {
                "user"
            };
            let texts = content["parts"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|part| part["text"].as_str());
            said.extend(texts.map(|text| (role.to_owned(), text.to_owned())));
        }
        // The last words are the user's: they are the message.
        while said
            .last()
            .is_some_and(|(role, text)| role != "user" || text.trim().is_empty())
        {
            said.pop();
        }
        if !said.is_empty() {
            all.push(said);
        }
    }
    assert!(all.len() > 20, "{} conversations", all.len());
    Some(all)
}

/// Asks the model again, with nothing but what the log keeps.
async fn ask_again(model: &Adapter, record: &DecisionRecord, asked: &AskedWith) {
    let definition = Definition::read(asked.definition.as_ref().unwrap().get().as_bytes(), Form::Json, "").unwrap();
    assert_eq!(*definition.hash, record.definition_hash);
    let offered: Offered<'_> = serde_json::from_str(asked.toolset.as_ref().unwrap().get()).unwrap();
    let zone = record.time_zone.as_deref().map(|zone| zone.parse().unwrap());
    let words = record.message.as_deref().unwrap();
    let message = context::message(words, record.created_at.0, zone, &offered.missing);
    let mut contents = Vec::new();
    for said in &asked.history {
        let speaker: Speaker = serde_json::from_value(json!(said.role)).unwrap();
        let text = said.content.as_deref().unwrap();
        // Gemini refuses parts without text.
        if !text.trim().is_empty() {
            contents.push(Content::Text(speaker, text));
        }
    }
    contents.push(Content::Text(Speaker::User, &message));
    let request = ModelRequest {
        settings: &definition.model,
        system: &definition.prompt.as_ref().unwrap().system_prompt,
        functions: &Arc::new(Functions {
            declarations: offered.functions.into_owned(),
            ..Functions::default()
        }),
        contents: &contents,
        mode: &CallMode::Auto,
        thoughts: definition.model.include_thoughts.unwrap_or_default(),
        deadline: Instant::now() + Duration::from_secs(20),
        holder: ("default", "ann"),
    };
    model.generate(request, None).await.unwrap();
}

async fn asked_with(app: &App, decision: &Value) -> (DecisionRecord, AskedWith) {
    let id = decision["decision_id"].as_str().unwrap();
    let request = app.request("GET", &format!("/v1/decisions/{id}/request"), &[]);
    let asked = request.send().await.unwrap().text().await.unwrap();
    let record = app.decision(&decision["decision_id"]).await;
    // From the text: a `Value` does not keep the order of a schema's members.
    let asked = serde_json::from_str(&asked).unwrap_or_else(|error| panic!("{error}: {asked}"));
    (serde_json::from_value(record).unwrap(), asked)
}

#[tokio::test]
async fn the_first_request_of_a_chat_is_made_again_from_the_log_byte_for_byte() {
    let Some(conversations) = conversations() else { return };
    for setup in [
        crate::harness::Setup::stdio_sqlite(),
        crate::harness::Setup::stdio_postgres(),
    ] {
        let app = spawn_app(setup.script(vec![Reply::Text("Yes.")])).await;
        let again = Gemini::scripted(vec![Reply::Text("Yes.")]).await;
        let endpoint = Endpoint::Developer {
            base_url: Some(again.url.clone()),
            api_key: "key".into(),
        };
        let model = Adapter::new(GeminiConfig::new(endpoint, "gemini-3.5-flash")).unwrap();
        for (n, said) in conversations.iter().enumerate() {
            let (last, before) = said.split_last().unwrap();
            let history: Vec<_> = before
                .iter()
                .map(|(role, text)| json!({"role": role, "content": text}))
                .collect();
            let mut body = json!({"message": last.1, "user_id": "ann", "history": history});
            if n % 2 == 1 {
                body["time_zone"] = json!("Pacific/Auckland");
                body["tools"] = json!(["add_task"]);
            }
            let (status, _, decision) = app.post_with(&[], body.to_string()).await;
            assert_eq!(status, 200, "{decision}");
            let (record, asked) = asked_with(&app, &decision).await;
            ask_again(&model, &record, &asked).await;
            assert_eq!(app.gemini.bytes().last(), again.bytes().last(), "{body}");
        }
        app.stop().await;
    }
}

/// Each field that is listed can be asked for with each of its operators.
#[tokio::test]
async fn every_field_that_is_listed_can_be_asked_for() {
    for setup in both() {
        let app = spawn_app(setup.script(vec![])).await;
        let (status, fields) = app.get("/v1/fields").await;
        assert_eq!(status, 200, "{fields}");
        let mut asked = 0;
        for (list, path) in [("decisions", "decisions"), ("tool_invocations", "tool-invocations")] {
            for field in fields[list].as_array().unwrap() {
                let value = match field["kind"].as_str().unwrap() {
                    "text" => "\"x\"".to_owned(),
                    "name" => field["values"][0].to_string(),
                    "number" | "milliseconds" => "1".to_owned(),
                    "time" => "\"2026-11-20T00:00:00Z\"".to_owned(),
                    "bool" => "true".to_owned(),
                    other => panic!("{other}"),
                };
                for op in field["operators"].as_array().unwrap() {
                    let filter = format!("{} {} {value}", field["name"].as_str().unwrap(), op.as_str().unwrap());
                    let query: String = url::form_urlencoded::byte_serialize(filter.as_bytes()).collect();
                    let (status, page) = app.get(&format!("/v1/{path}?filter={query}")).await;
                    assert_eq!(status, 200, "{filter}: {page}");
                    asked += 1;
                }
            }
        }
        assert!(asked > 120, "{asked}");
        let indexed = |name: &str| {
            let decisions = fields["decisions"].as_array().unwrap();
            decisions.iter().find(|field| field["name"] == name).unwrap()["indexed"].clone()
        };
        assert_eq!(
            (indexed("user_id"), indexed("finish_reason")),
            (json!(true), json!(false))
        );
        app.stop().await;
    }
}

#[tokio::test]
async fn what_no_model_was_asked_with_is_not_there_and_another_users_is_missing() {
    for setup in both() {
        let app = spawn_app(setup.script(vec![Reply::Text("Yes.")])).await;
        let (_, _, long) = app
            .post_with(
                &[],
                json!({"message": "a".repeat(40_000), "user_id": "ann"}).to_string(),
            )
            .await;
        assert_eq!(long["outcome_category"], "ERROR:USER_INPUT", "{long}");
        let (_, _, asked) = app
            .post_with(&[], json!({"message": "hi", "user_id": "ann"}).to_string())
            .await;
        for (decision, user, status) in [(&long, "ann", 404), (&asked, "ann", 200), (&asked, "bob", 404)] {
            let path = format!("/v1/decisions/{}/request", decision["decision_id"].as_str().unwrap());
            let answer = app
                .request("GET", &path, &[("x-gavel-user", user)])
                .send()
                .await
                .unwrap();
            assert_eq!(answer.status(), status, "{user}: {path}");
        }
        app.stop().await;
    }
}
