//! Cases of agents: their inputs and the expected results. A file is a map:
//!
//! ```yaml
//! agent: docs_checker
//! root: shop                 # directory next to the file, for the bundled files server; absent: none
//! cases:
//!   - id: one-wrong-number
//!     input: {document: docs/buying.md}
//!     tasks: [buy milk]      # the user's tasks before
//!     expect:
//!       status: completed    # the default
//!       output: {…}          # a JSON Schema that the output conforms to
//!       summary: "regex"     # for an agent that answers in text
//!       calls: [read_file]   # tools that were called successfully
//!       no_calls: [grep]     # tools that were not called at all
//!       max_steps: 10
//! ```
//!
//! The agents of planning sessions need a `repository`, a directory like `root`: its files are those of a repository on
//! a stand-in for GitHub, behind the real github server. `input.task` is the goal.
//!
//! ```yaml
//! agent: task_worker
//! repository: dates          # the files of acme/dates
//! cases:
//!   - id: quotes-what-it-saw
//!     input: {task: Find out which formats are accepted}
//!     files: {AGENT.md: "…"} # in place of, or beside, those of the directory
//!     issues: [{title: "…", body: "…"}]   # 1, 2, 3 …
//!     plan:                  # for task_worker: the plan that is confirmed
//!       - {title: "…", goal: "…", doneWhen: "…", tools: [getFileContents]}
//!     expect:
//!       status: completed    # of the session, in small letters
//!       output: {…}          # of planner: the plan; of task_worker: the session, with `reactHistory` in each task
//! ```

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use gavel_reading::{At, Entries, List, Mapped, Node, Record, Scalar, TEXT, Whole, With, record};
use regex::Regex;
use serde::Serialize;
use serde_json::{Map, Value};

/// The agent that plans.
pub(super) const PLANNER: &str = "planner";
/// The agent that works on a task of a plan.
pub(super) const TASK_WORKER: &str = "task_worker";

/// The most values in a file of cases.
const MOST_NODES: usize = 250_000;

record! {
    /// The cases of one agent.
    #[derive(Clone, Debug)]
    pub struct AgentCases {
        /// Its name.
        agent: String = "agent": TEXT, required;
        /// The directory that the files server serves, relative to the file; [`load`] makes it absolute.
        root: Option<PathBuf> = "root": PATH;
        /// The directory with the files of the repository, relative to the file; [`load`] makes it absolute.
        repository: Option<PathBuf> = "repository": PATH;
        /// The cases, in order.
        cases: Vec<AgentCase> = "cases": List(Record("a case", AgentCase::read)), required;
    }
}

record! {
    /// One case.
    #[derive(Clone, Debug)]
    pub struct AgentCase {
        /// Its name.
        id: String = "id": TEXT, required;
        /// The agent's inputs.
        input: Map<String, Value> = "input": INPUT, or Map::new();
        /// The user's tasks before the run.
        tasks: Vec<String> = "tasks": List(TEXT);
        /// Files of the repository, by path, in place of or beside those of the directory.
        files: BTreeMap<String, String> = "files": Mapped(Entries(TEXT), BTreeMap::from_iter);
        /// The repository's issues, from number 1 on.
        issues: Vec<SeedIssue> = "issues": List(Record("a map of title and body", SeedIssue::read));
        /// The plan that is confirmed; only for `task_worker`.
        plan: Vec<PlanTask> = "plan": List(Record("a map of title, goal, doneWhen and tools", PlanTask::read));
        /// The expected result.
        expect: Expected = "expect": Record("a map of what to expect", Expected::read), or Expected::default();
    }
}

record! {
    /// A task of a plan, as gavel's API takes it.
    #[derive(Clone, Debug, Serialize)]
    #[serde(rename_all = "camelCase")]
    pub struct PlanTask {
        /// The task in a line.
        title: String = "title": TEXT, required;
        /// What it must reach.
        goal: String = "goal": TEXT, required;
        /// What can be observed once it is done.
        done_when: String = "doneWhen": TEXT, required;
        /// The tools that it needs.
        tools: Vec<String> = "tools": List(TEXT), required;
    }
}

record! {
    /// An issue of the repository.
    #[derive(Clone, Debug)]
    pub struct SeedIssue {
        /// Its title.
        title: String = "title": TEXT, required;
        /// Its text.
        body: String = "body": TEXT, or String::new();
    }
}

record! {
    /// The expected result of a case.
    #[derive(Clone, Debug, Default)]
    pub struct Expected {
        /// Absent: `completed`.
        status: Option<String> = "status": TEXT;
        /// A JSON Schema of the output.
        output: Option<Value> = "output": With("a JSON Schema", schema);
        /// A regular expression that the summary must match.
        summary: Option<String> = "summary": PATTERN;
        /// Tools that must be called successfully.
        calls: Vec<String> = "calls": List(TEXT);
        /// Tools that must not be called, with any result.
        no_calls: Vec<String> = "no_calls": List(TEXT);
        /// Most model calls; for `task_worker`, most steps of all tasks.
        max_steps: Option<u32> = "max_steps": Whole(0..=u32::MAX);
    }
}

const PATH: Scalar<PathBuf> = Scalar {
    allowed: "the path of a directory",
    read: |node| node.text().map(PathBuf::from),
};
const INPUT: Scalar<Map<String, Value>> = Scalar {
    allowed: "a map of inputs",
    read: |node| match node.to_json() {
        Value::Object(input) => Some(input),
        _ => None,
    },
};
const PATTERN: Scalar<String> = Scalar {
    allowed: "a regular expression",
    read: |node| node.text().filter(|text| Regex::new(text).is_ok()).map(str::to_owned),
};

fn schema(at: &At<'_>) -> Option<Value> {
    let schema = at.node.to_json();
    let invalid = jsonschema::validator_for(&schema).err();
    if let Some(error) = &invalid {
        at.error(format!("no JSON Schema: {error}"), "a JSON Schema");
    }
    invalid.is_none().then_some(schema)
}

/// The result of a case.
#[derive(Clone, Debug, Default)]
pub struct CaseResult {
    /// The status of the run or of the session, in small letters.
    pub status: String,
    /// Why it did not succeed.
    pub reason: Option<String>,
    /// The output.
    pub output: Option<Value>,
    /// The summary of an agent that answers in text.
    pub summary: Option<String>,
    /// Model calls, or steps of all tasks.
    pub steps: u32,
    /// Each tool that was called, and whether one of its calls was successful.
    pub calls: BTreeMap<String, bool>,
}

impl CaseResult {
    /// Each tool of a list of calls, and whether one of its calls was successful.
    pub(super) fn calls_of(calls: &Value, is_successful: impl Fn(&Value) -> bool) -> BTreeMap<String, bool> {
        let mut tools = BTreeMap::new();
        for call in calls.as_array().into_iter().flatten() {
            if let Some(tool) = call["tool"].as_str() {
                *tools.entry(tool.to_owned()).or_default() |= is_successful(call);
            }
        }
        tools
    }
}

/// Reads every `*.yaml` file of a directory, sorted by name.
///
/// # Errors
/// The error of each invalid file.
pub fn load(directory: &Path) -> Result<Vec<AgentCases>, Vec<String>> {
    let listed = fs::read_dir(directory).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let mut files: Vec<_> = match listed {
        Ok(entries) => entries.into_iter().map(|entry| entry.path()).collect(),
        Err(error) => return Err(vec![format!("{}: {error}", directory.display())]),
    };
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    let (mut read, mut errors) = (Vec::new(), Vec::new());
    for file in files {
        match one(&file) {
            Ok(cases) => read.push(cases),
            Err(found) => errors.extend(found),
        }
    }
    if errors.is_empty() && read.is_empty() {
        errors.push(format!(
            "{}: contains no cases; give a directory of *.yaml files",
            directory.display()
        ));
    }
    if errors.is_empty() { Ok(read) } else { Err(errors) }
}

fn one(file: &Path) -> Result<AgentCases, Vec<String>> {
    let name = file.display().to_string();
    let text = fs::read_to_string(file).map_err(|error| vec![format!("{name}: {error}")])?;
    let root = Node::parse(&text, MOST_NODES).map_err(|error| {
        let line = error.line.map(|line| format!(":{line}")).unwrap_or_default();
        vec![format!("{name}{line}: {}", error.message)]
    })?;
    let errors = RefCell::default();
    let whole = At::root(&errors, &name, &root);
    let mut cases = whole.record(AgentCases::read);
    if let Some(cases) = &mut cases {
        for (field, directory) in [("root", &mut cases.root), ("repository", &mut cases.repository)] {
            if let Some(given) = directory {
                let path = file.parent().unwrap_or(Path::new(".")).join(&*given);
                match fs::canonicalize(&path) {
                    Ok(found) => *given = found,
                    Err(error) => whole
                        .clone()
                        .named(field)
                        .error(format!("{}: {error}", path.display()), PATH.allowed),
                }
            }
        }
        let in_session = [PLANNER, TASK_WORKER].contains(&&*cases.agent);
        if in_session != cases.repository.is_some() {
            let allowed = format!("for the cases of {PLANNER} and {TASK_WORKER}, which need it");
            whole
                .clone()
                .named("repository")
                .error(format!("the agent {}", cases.agent), allowed);
        }
        for case in cases
            .cases
            .iter()
            .filter(|case| (cases.agent == TASK_WORKER) == case.plan.is_empty())
        {
            let allowed = format!("for the cases of {TASK_WORKER}, which need it");
            whole
                .clone()
                .named("plan")
                .error(format!("the case {}", case.id), allowed);
        }
    }
    let errors = errors.into_inner().into_vec(&name);
    let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
    cases.filter(|_| errors.is_empty()).ok_or(errors)
}

/// The differences between a result and its expectation, each as one line; empty if it is as expected.
pub fn judge(expected: &Expected, result: &CaseResult) -> Vec<String> {
    let mut invalid = Vec::new();
    let status = expected.status.as_deref().unwrap_or("completed");
    if result.status != status {
        let why = result.reason.as_deref().unwrap_or("no reason given");
        invalid.push(format!("the status is {}, not {status}: {why}", result.status));
    }
    if let Some(schema) = &expected.output {
        match &result.output {
            None => invalid.push("there is no output".to_owned()),
            Some(output) => invalid.extend(differences(schema, output)),
        }
    }
    if let Some(pattern) = &expected.summary {
        let summary = result.summary.as_deref().unwrap_or_default();
        if !Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(summary)) {
            invalid.push(format!("the summary does not match {pattern}: {summary}"));
        }
    }
    for tool in expected
        .calls
        .iter()
        .filter(|tool| result.calls.get(*tool) != Some(&true))
    {
        invalid.push(format!("{tool} was not called successfully"));
    }
    for tool in expected.no_calls.iter().filter(|tool| result.calls.contains_key(*tool)) {
        invalid.push(format!("{tool} was called"));
    }
    if let Some(most) = expected.max_steps.filter(|most| result.steps > *most) {
        invalid.push(format!("it took {} steps, not {most} at most", result.steps));
    }
    invalid
}

/// Most errors that are listed of one output.
const MOST_ERRORS: usize = 8;

fn differences(schema: &Value, output: &Value) -> Vec<String> {
    let schema = match jsonschema::validator_for(schema) {
        Ok(schema) => schema,
        Err(error) => return vec![format!("the expectation is not a JSON Schema: {error}")],
    };
    let errors = schema.iter_errors(output).take(MOST_ERRORS);
    errors
        .map(|error| {
            let at = match error.instance_path().as_str() {
                "" => "/",
                path => path,
            };
            // The error quotes the value.
            let error = error.to_string();
            let rest = if error.chars().nth(500).is_some() { "…" } else { "" };
            format!("output{at}: {}{rest}", error.chars().take(500).collect::<String>())
        })
        .collect()
}
