//! D and X as specified, read by a client with the types of the specification (D-1 to D-10, X-4, X-14, X-15): every
//! response in every state, without a field that the types lack.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::agents::path_of;
use crate::gemini::Reply;
use crate::harness::{Answer, App, Setup, spawn_app, until};
use crate::raw::{Answer as Raw, RawServer};
use crate::threads::said;

/// the statuses of a run.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Queued,
    Running,
    AwaitingConfirmation,
    Completed,
    Failed,
    Cancelled,
    Paused,
}

/// An AgentRun: the fields of the specification, followed by gavel's own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)]
struct Attempt {
    started_at: String,
    completed_at: String,
    stop_reason: Option<String>,
    error_message: Option<String>,
    summary: Option<String>,
    steps: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)]
struct AgentRun {
    id: String,
    project_id: String,
    agent_id: String,
    parent_run_id: Option<String>,
    status: Status,
    summary: Option<String>,
    output: Option<Value>,
    error_message: Option<String>,
    steps: u32,
    started_at: Option<String>,
    completed_at: Option<String>,
    duration_ms: Option<u64>,
    definition_hash: String,
    recovered_from: Option<String>,
    // gavel's own.
    created_at: String,
    definition_version: Option<i64>,
    attempts: Vec<Attempt>,
    stop_reason: Option<String>,
    in_doubt: Vec<InDoubt>,
    usage: Usage,
    outcome_category: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)]
struct InDoubt {
    action_id: String,
    tool: String,
    parameters: Value,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)]
struct Usage {
    input_tokens: u64,
    output_tokens: u64,
    thought_tokens: u64,
    cached_tokens: u64,
}

/// D-1 to D-10 in the portable format.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code)]
struct AgentDefinition {
    name: String,
    display_name: Option<String>,
    description: String,
    input_config: InputConfig,
    output_config: Option<OutputConfig>,
    process_output: Option<String>,
    prompt_config: PromptConfig,
    model_config: Option<ModelConfig>,
    tool_config: ToolConfig,
    run_config: Option<RunConfig>,
    // gavel's own.
    approval: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct InputConfig {
    inputs: BTreeMap<String, Input>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)]
struct Input {
    description: String,
    r#type: String,
    required: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code)]
struct OutputConfig {
    output_name: String,
    description: String,
    schema: Value,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PromptConfig {
    query: String,
    system_prompt: String,
}

/// D-8: the model's settings.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelConfig {
    model: Option<String>,
    temp: Option<f64>,
    top_p: Option<f64>,
    #[serde(rename = "thinkingBudget")]
    thinking_budget: Option<i32>,
    provider: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolConfig {
    tools: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunConfig {
    max_time_minutes: Option<f64>,
    max_turns: Option<u32>,
}

fn read<T: for<'de> Deserialize<'de>>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"))
}

/// the fields of each state.
fn run(value: &Value) -> AgentRun {
    let run: AgentRun = read(value);
    let over = matches!(
        run.status,
        Status::Completed | Status::Failed | Status::Cancelled | Status::Paused
    );
    assert_eq!(run.completed_at.is_some(), over, "{value}");
    assert_eq!(run.duration_ms.is_some(), over, "{value}");
    assert_eq!(run.outcome_category.is_some(), over, "{value}");
    assert_eq!(run.started_at.is_some(), run.status != Status::Queued, "{value}");
    if run.status == Status::Completed {
        assert!(run.summary.is_some() && run.error_message.is_none(), "{value}");
    }
    if matches!(run.status, Status::Failed | Status::Paused) {
        assert!(run.error_message.is_some(), "{value}");
    }
    run
}

impl App {
    async fn said_by_ann(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<Value>) -> Answer {
        let headers = [&[("x-gavel-user", "ann")], headers].concat();
        let request = self.request(method, path, &headers);
        Answer::of(match body {
            Some(body) => request.json(&body),
            None => request,
        })
        .await
    }

    /// The run that a trigger created, and the same run from its own route.
    async fn run_of(&self, agent: &str, query: &str, status: Status) -> AgentRun {
        let body = json!({"query": query});
        let reported = self.said_by_ann("POST", &path_of(agent), &[], Some(body)).await;
        assert!([200, 202].contains(&reported.status), "{}", reported.body);
        let first = run(&reported.body);
        assert_eq!(first.status, status, "{}", reported.body);
        assert_eq!((first.agent_id.as_str(), first.project_id.as_str()), (agent, "default"));
        self.again(&first.id).await
    }

    async fn again(&self, id: &str) -> AgentRun {
        run(&self
            .said_by_ann("GET", &format!("/api/runs/{id}"), &[], None)
            .await
            .expect(200))
    }
}

/// The specification's complete reference example: the stored definition equals the one that was put, value by value,
/// and its runs have its hash.
#[tokio::test]
async fn the_reference_definition_is_read_back_by_a_client_of_the_specification() {
    let example = json!({
        "name": "codebase_investigator",
        "displayName": "Codebase Investigator Agent",
        "description": "Finds out how a codebase works.",
        "inputConfig": {"inputs": {"objective": {
            "description": "A comprehensive description of the objective.", "type": "string", "required": true,
        }}},
        "outputConfig": {
            "outputName": "report", "description": "The final investigation report as a JSON object.",
            "schema": "CodebaseInvestigationReportSchema",
        },
        "promptConfig": {
            "query": "Your task is to investigate:\n<objective>\n${objective}\n</objective>\n",
            "systemPrompt": "You are the Codebase Investigator.\n",
        },
        "modelConfig": {"model": "gemini-2.5-pro", "temp": 0.1, "top_p": 0.95, "thinkingBudget": -1},
        "toolConfig": {"tools": ["ls", "read_file", "glob", "grep"]},
        "runConfig": {"max_time_minutes": 5, "max_turns": 15},
    });
    for setup in [Setup::stdio_sqlite(), Setup::stdio_postgres()] {
        let app = spawn_app(setup).await;
        let path = "/api/projects/demo/agents/codebase_investigator";
        let put = app
            .said_by_ann("PUT", path, &[], Some(example.clone()))
            .await
            .expect(201);
        let got = app.said_by_ann("GET", path, &[], None).await.expect(200);
        assert_eq!(put["definition"], got["definition"]);
        let definition: AgentDefinition = read(&got["definition"]);
        let Value::Object(given) = &example else { unreachable!() };
        for (name, value) in given {
            // A named schema may be returned by name or in full, as the specification allows.
            if name != "outputConfig" && name != "runConfig" {
                assert_eq!(&got["definition"][name], value, "{name}");
            }
        }
        let limits = definition.run_config.unwrap();
        assert_eq!((limits.max_time_minutes, limits.max_turns), (Some(5.0), Some(15)));
        assert_eq!(definition.output_config.unwrap().output_name, "report");
        assert_eq!(definition.input_config.inputs["objective"].r#type, "string");
        assert!(definition.prompt_config.query.ends_with("</objective>\n"), "verbatim");
        assert_eq!(
            definition.prompt_config.system_prompt,
            "You are the Codebase Investigator.\n"
        );
        assert_eq!(definition.tool_config.tools, ["ls", "read_file", "glob", "grep"]);
        app.stop().await;
    }
}

/// trigger, run, list, cancel and resume in every state of a run.
#[tokio::test]
async fn every_answer_about_a_run_is_read_by_a_client_of_the_specification() {
    let agent = |name: &str, rest: &str| {
        format!("---\nname: {name}\ndescription: Works.\n{rest}\n---\n\nYou are the {name}.\n")
    };
    let lost = RawServer::start(|request| match request.method() {
        "tools/list" => Some(Raw::Result(
            json!({"tools": [{"name": "send", "inputSchema": {"type": "object"}}]}),
        )),
        "tools/call" => Some(Raw::Close),
        _ => None,
    })
    .await;
    for setup in [Setup::stdio_sqlite(), Setup::stdio_postgres()] {
        let model = Reply::from(|request| {
            let who = request["systemInstruction"]["parts"][0]["text"].as_str().unwrap();
            let text = request["contents"][0]["parts"][0]["text"].as_str().unwrap();
            match (who, said(request)) {
                _ if text.contains("hang") => Reply::Hang,
                _ if text.contains("break") => Reply::Raw(400, "{}".to_owned()),
                (who, 1) if who.contains("counter") => Reply::call("complete_task", json!({"n": {"count": 3}})),
                (who, 1) if who.contains("short") || who.contains("helper") => Reply::call("list_tasks", json!({})),
                (who, 1) if who.contains("chief") => Reply::call("helper", json!({"query": "look"})),
                (who, 1) if who.contains("careful") => Reply::call("add_task", json!({"description": "milk"})),
                (who, 1) if who.contains("sender") => Reply::call("send", json!({})),
                _ => Reply::Text("Done."),
            }
        });
        let counter = "outputConfig: {outputName: n, description: A count., schema: {type: object, properties: {count: \
                       {type: integer}}, required: [count]}}";
        let setup = setup
            .agent("helper.md", &agent("helper", "approval: never\ntools: [list_tasks]"))
            .agent("chief.md", &agent("chief", "sub_agents: [helper]"))
            .agent(
                "short.md",
                &agent("short", "approval: never\ntools: [list_tasks]\nmax_turns: 1"),
            )
            .agent("careful.md", &agent("careful", "tools: [add_task]"))
            .agent("sender.md", &agent("sender", "approval: never\ntools: [send]"))
            .agent("counter.md", &agent("counter", counter))
            .beside("lost", json!({"url": lost.url}));
        let app = spawn_app(setup.script(vec![model])).await;

        let done = app.run_of("helper", "look", Status::Completed).await;
        assert_eq!((done.summary.as_deref(), done.output), (Some("Done."), None));
        let counted = app.run_of("counter", "count", Status::Completed).await;
        assert_eq!(counted.output, Some(json!({"count": 3})));
        let failed = app.run_of("helper", "break", Status::Failed).await;
        assert_eq!(failed.outcome_category.as_deref(), Some("ERROR:MODEL_UNAVAILABLE"));
        let in_doubt = app.run_of("sender", "go", Status::Paused).await;
        assert_eq!(in_doubt.in_doubt.len(), 1);
        app.run_of("careful", "go", Status::AwaitingConfirmation).await;

        // the called run names its caller.
        let chief = app.run_of("chief", "go", Status::Completed).await;
        let filter = format!("?filter=parent_run_id%20%3D%20%22{}%22", chief.id);
        let path = format!("/api/projects/default/runs{filter}");
        let called = app.said_by_ann("GET", &path, &[], None).await.expect(200);
        let called: Vec<AgentRun> = called["runs"].as_array().unwrap().iter().map(run).collect();
        assert_eq!((called.len(), called[0].parent_run_id.as_ref()), (1, Some(&chief.id)));

        // paused, then resumed.
        let paused = app.run_of("short", "go", Status::Paused).await;
        assert_eq!(
            (paused.stop_reason.as_deref(), paused.attempts.len()),
            (Some("step_limit"), 0)
        );
        let resume = format!("/api/runs/{}/resume", paused.id);
        let resumed = run(&app.said_by_ann("POST", &resume, &[], Some(json!({}))).await.expect(200));
        assert_eq!((resumed.status, &resumed.id), (Status::Completed, &paused.id));
        assert_eq!(resumed.attempts[0].stop_reason.as_deref(), Some("step_limit"));

        // In the background, and cancelled.
        let later = [("prefer", "respond-async")];
        let body = Some(json!({"query": "hang"}));
        let begun = run(&app
            .said_by_ann("POST", &path_of("helper"), &later, body)
            .await
            .expect(202));
        assert!(matches!(begun.status, Status::Queued | Status::Running), "{begun:?}");
        until("it to be worked on", || async {
            app.again(&begun.id).await.status == Status::Running
        })
        .await;
        let cancel = app
            .said_by_ann("POST", &format!("/api/runs/{}/cancel", begun.id), &[], None)
            .await;
        assert!([200, 202].contains(&cancel.status), "{}", cancel.body);
        run(&cancel.body);
        until("it to be cancelled", || async {
            app.again(&begun.id).await.status == Status::Cancelled
        })
        .await;
        let cancelled = app.again(&begun.id).await;
        assert_eq!(cancelled.outcome_category.as_deref(), Some("REFUSAL:CANCELLED"));

        let page = app
            .said_by_ann("GET", "/api/projects/default/runs", &[], None)
            .await
            .expect(200);
        assert_eq!(page["runs"].as_array().unwrap().iter().map(run).count(), 8, "{page}");
        app.stop().await;
    }
}
