//! A model that works through a fixed plan. It has no memory: the number of results in the conversation says which step
//! is next, so it continues after a crash where the journal is.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::gemini::Reply;

/// Makes the arguments of a step from the results of the task so far.
type Arguments = Arc<dyn Fn(&[Value]) -> Value + Send + Sync>;

/// One step: a call.
#[derive(Clone)]
pub struct Step {
    pub tool: &'static str,
    pub arguments: Arguments,
}

/// A task, which is done after its last step. That step's result has the quote.
#[derive(Clone)]
pub struct Task {
    pub title: &'static str,
    /// The tools that the plan names for it.
    pub tools: &'static [&'static str],
    pub steps: Vec<Step>,
    pub quote: &'static str,
}

/// A call with fixed arguments.
pub fn call(tool: &'static str, arguments: Value) -> Step {
    Step {
        tool,
        arguments: Arc::new(move |_| arguments.clone()),
    }
}

/// A call about the container that the task has seen last; further arguments are added.
pub fn in_container(tool: &'static str, further: Value) -> Step {
    let arguments = move |results: &[Value]| {
        let mut arguments = further.clone();
        arguments["containerId"] = container(results).into();
        arguments
    };
    Step {
        tool,
        arguments: Arc::new(arguments),
    }
}

/// A script in that container.
pub fn script(text: &str) -> Step {
    in_container("executeScript", json!({ "script": text, "timeoutSeconds": 120 }))
}

/// The id of the container that was created or listed last.
fn container(results: &[Value]) -> String {
    let id = |result: &Value| {
        let listed = result["containers"][0]["id"].as_str();
        listed.or_else(|| result["id"].as_str()).map(str::to_owned)
    };
    results.iter().rev().find_map(id).expect("a container")
}

/// The answers to every request, in any order.
pub fn model(tasks: Vec<Task>) -> Reply {
    Reply::from(move |request| {
        let config = &request["toolConfig"]["functionCallingConfig"];
        let allowed = config["allowedFunctionNames"].to_string();
        match config["mode"].as_str() {
            Some("NONE") => Reply::Text("I do what is missing."),
            Some("ANY") if allowed.contains("reflect") => reflect(&tasks, request),
            Some("ANY") => act(&tasks, request),
            _ => proposal(&tasks),
        }
    })
}

/// The plan.
pub fn proposal(tasks: &[Task]) -> Reply {
    let tasks: Vec<_> = tasks
        .iter()
        .map(|task| json!({"title": task.title, "goal": task.title, "doneWhen": task.quote, "tools": task.tools}))
        .collect();
    Reply::call(
        "complete_task",
        json!({"plan": {"summary": "In short.", "tasks": tasks}}),
    )
}

/// The task that the request is about.
fn current<'a>(tasks: &'a [Task], request: &Value) -> &'a Task {
    let first = request["contents"][0]["parts"][0]["text"].as_str().unwrap();
    let number = first.split_once("Your task is t").unwrap().1;
    let number: usize = number.split_once(' ').unwrap().0.parse().unwrap();
    &tasks[number - 1]
}

/// What the calls of the task have resulted in, in order.
pub fn results(request: &Value) -> Vec<Value> {
    let contents = request["contents"].as_array().unwrap();
    let parts = contents.iter().flat_map(|content| content["parts"].as_array().unwrap());
    let responses = parts.filter_map(|part| part.get("functionResponse"));
    let of_tools = responses.filter(|response| response["name"] != "reflect");
    let data = |response: &Value| match &response["response"]["output"]["untrusted_data"] {
        Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_| text.clone().into()),
        Value::Null => response["response"].clone(),
        data => data.clone(),
    };
    of_tools.map(data).collect()
}

fn act(tasks: &[Task], request: &Value) -> Reply {
    let results = results(request);
    let steps = &current(tasks, request).steps;
    let step = &steps[results.len().min(steps.len() - 1)];
    Reply::call(step.tool, (step.arguments)(&results))
}

fn reflect(tasks: &[Task], request: &Value) -> Reply {
    let task = current(tasks, request);
    let made = results(request).len();
    let is_done = made >= task.steps.len();
    let evidence: Vec<_> = is_done
        .then(|| json!({"observation": made, "quote": task.quote}))
        .into_iter()
        .collect();
    Reply::call(
        "reflect",
        json!({"is_task_complete": is_done, "summary": "as far as it is seen", "evidence": evidence}),
    )
}
