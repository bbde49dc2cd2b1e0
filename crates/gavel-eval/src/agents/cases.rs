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

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The agent that plans.
pub(super) const PLANNER: &str = "planner";
/// The agent that works on a task of a plan.
pub(super) const TASK_WORKER: &str = "task_worker";

/// The cases of one agent.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentCases {
    /// Its name.
    pub agent: String,
    /// The directory that the files server serves, relative to the file; [`load`] makes it absolute.
    #[serde(default)]
    pub root: Option<PathBuf>,
    /// The directory with the files of the repository, relative to the file; [`load`] makes it absolute.
    #[serde(default)]
    pub repository: Option<PathBuf>,
    /// The cases, in order.
    pub cases: Vec<AgentCase>,
}

/// One case.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentCase {
    /// Its name.
    pub id: String,
    /// The agent's inputs.
    #[serde(default)]
    pub input: Map<String, Value>,
    /// The user's tasks before the run.
    #[serde(default)]
    pub tasks: Vec<String>,
    /// Files of the repository, by path, in place of or beside those of the directory.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// The repository's issues, from number 1 on.
    #[serde(default)]
    pub issues: Vec<SeedIssue>,
    /// The plan that is confirmed; only for `task_worker`.
    #[serde(default)]
    pub plan: Vec<PlanTask>,
    /// The expected result.
    #[serde(default)]
    pub expect: Expected,
}

/// A task of a plan, as gavel's API takes it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlanTask {
    /// The task in a line.
    pub title: String,
    /// What it must reach.
    pub goal: String,
    /// What can be observed once it is done.
    pub done_when: String,
    /// The tools that it needs.
    pub tools: Vec<String>,
}

/// An issue of the repository.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeedIssue {
    /// Its title.
    pub title: String,
    /// Its text.
    #[serde(default)]
    pub body: String,
}

/// The expected result of a case.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// Absent: `completed`.
    pub status: Option<String>,
    /// A JSON Schema of the output.
    pub output: Option<Value>,
    /// A regular expression that the summary must match.
    pub summary: Option<String>,
    /// Tools that must be called successfully.
    #[serde(default)]
    pub calls: Vec<String>,
    /// Tools that must not be called, with any result.
    #[serde(default)]
    pub no_calls: Vec<String>,
    /// Most model calls; for `task_worker`, most steps of all tasks.
    pub max_steps: Option<u32>,
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
            Err(error) => errors.push(format!("{}: {error}", file.display())),
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

fn one(file: &Path) -> Result<AgentCases, String> {
    let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
    let mut cases: AgentCases = serde_saphyr::from_str(&text).map_err(|error| error.to_string())?;
    for (name, directory) in [("root", &mut cases.root), ("repository", &mut cases.repository)] {
        if let Some(given) = directory {
            let whole = file.parent().unwrap_or(Path::new(".")).join(&*given);
            *given = fs::canonicalize(&whole).map_err(|error| format!("{name} {}: {error}", whole.display()))?;
        }
    }
    let in_session = [PLANNER, TASK_WORKER].contains(&&*cases.agent);
    if in_session != cases.repository.is_some() {
        return Err(format!(
            "`repository` is for the cases of {PLANNER} and {TASK_WORKER}, which need it"
        ));
    }
    for case in &cases.cases {
        if (cases.agent == TASK_WORKER) == case.plan.is_empty() {
            return Err(format!(
                "{}: `plan` is for the cases of {TASK_WORKER}, which need it",
                case.id
            ));
        }
    }
    for case in &cases.cases {
        if let Some(schema) = &case.expect.output {
            jsonschema::validator_for(schema)
                .map_err(|error| format!("{}: output is not a JSON Schema: {error}", case.id))?;
        }
        if let Some(pattern) = &case.expect.summary {
            Regex::new(pattern)
                .map_err(|error| format!("{}: summary is not a regular expression: {error}", case.id))?;
        }
    }
    Ok(cases)
}

/// The differences between a result and its expectation, each as one line; empty if it is as expected.
#[must_use]
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
