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
//!       max_steps: 10
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::domain::agent_run::AgentRun;
use crate::domain::canonical;
use crate::domain::schema::{CheckError, Effort, JsonSchema};

/// The cases of one agent.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentCases {
    /// Its name.
    pub agent: String,
    /// The directory that the files server serves, relative to the file; [`load`] makes it absolute.
    #[serde(default)]
    pub root: Option<PathBuf>,
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
    /// The expected result.
    #[serde(default)]
    pub expect: Expected,
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
    /// Most model calls.
    pub max_steps: Option<u32>,
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
    if let Some(root) = &cases.root {
        let whole = file.parent().unwrap_or(Path::new(".")).join(root);
        cases.root = Some(fs::canonicalize(&whole).map_err(|error| format!("root {}: {error}", whole.display()))?);
    }
    for case in &cases.cases {
        if let Some(schema) = &case.expect.output {
            JsonSchema::compile(canonical::to_raw(schema))
                .map_err(|error| format!("{}: output is not a JSON Schema: {error}", case.id))?;
        }
        if let Some(pattern) = &case.expect.summary {
            Regex::new(pattern)
                .map_err(|error| format!("{}: summary is not a regular expression: {error}", case.id))?;
        }
    }
    Ok(cases)
}

/// The differences between a run and its expectation, each as one line; empty if the run is as expected. `calls` are
/// the tools that were called successfully.
#[must_use]
pub fn judge(expected: &Expected, run: &AgentRun, calls: &[String]) -> Vec<String> {
    let mut invalid = Vec::new();
    let status = expected.status.as_deref().unwrap_or("completed");
    if run.status.as_str() != status {
        let why = run.error_message.as_deref().unwrap_or("no reason given");
        invalid.push(format!("the run is {}, not {status}: {why}", run.status.as_str()));
    }
    if let Some(schema) = &expected.output {
        let output = run
            .output
            .as_deref()
            .map(|output| serde_json::from_str(output.get()).unwrap_or_default());
        match output {
            None => invalid.push("there is no output".to_owned()),
            Some(output) => invalid.extend(differences(schema, &output)),
        }
    }
    if let Some(pattern) = &expected.summary {
        let summary = run.summary.as_deref().unwrap_or_default();
        if !Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(summary)) {
            invalid.push(format!("the summary does not match {pattern}: {summary}"));
        }
    }
    for tool in expected.calls.iter().filter(|tool| !calls.contains(tool)) {
        invalid.push(format!("{tool} was not called successfully"));
    }
    if let Some(most) = expected.max_steps.filter(|most| run.steps > *most) {
        invalid.push(format!("it took {} steps, not {most} at most", run.steps));
    }
    invalid
}

fn differences(schema: &Value, output: &Value) -> Vec<String> {
    let schema = match JsonSchema::compile(canonical::to_raw(schema)) {
        Ok(schema) => schema,
        Err(error) => return vec![format!("the expectation is not a JSON Schema: {error}")],
    };
    match schema.check(output, Effort::Full) {
        Ok(()) => Vec::new(),
        Err(CheckError::Invalid(errors)) => errors.iter().map(|error| format!("output{error}")).collect(),
        Err(CheckError::TooCostly) => vec![format!("output: {}", CheckError::TooCostly)],
    }
}
