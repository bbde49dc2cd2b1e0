//! Reads cases. A file is a map:
//!
//! ```yaml
//! kind: clear            # for all its cases: clear, ambiguous, out_of_scope, harmful, multi_step, languages
//! language: en           # default for its cases
//! tasks: [buy milk]      # default for its cases
//! cases:
//!   - id: add-plain
//!     message: add a task to call mom
//!     language: en
//!     history: [{role: user, content: hi}, {role: assistant, content: Hello!}]
//!     tasks: [buy milk, {description: pay rent, due: +3, priority: high, notes: n, done: true}]
//!     expect:
//!       decision: INVOKE_TOOL              # or a list: any of them
//!       outcome: SUCCESS:TASK_COMPLETED    # or a list; absent: any
//!       calls:                             # successful calls; others may occur between them
//!         - {tool: add_task, arguments: {description: {contains: mom}, due: absent}}
//!       in_order: false                    # default true
//!       forbidden: [delete_task]           # or `effects`, or `all`
//!       response: {contains: mom}
//!       tasks: [{description: buy milk}, {description: {contains: mom}, done: false}]  # exactly these, or `unchanged`
//! ```
//!
//! A matcher is a text (`equals`), `absent`, or a map of `equals`, `contains`, `contains_any`, `lacks`, `regex`, `on`
//! (a day: `today`, `tomorrow`, a weekday, `+3`, a date), all of which must hold. If nothing may change (`forbidden:
//! effects` or `all`), `tasks` defaults to `unchanged`.

mod cases;
mod expectations;

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

use gavel_reading::{At, Node, ReadError};

use super::case::Case;

/// The most values in a file of cases.
const MOST_NODES: usize = 250_000;

/// Reads every `*.yaml` and `*.yml` file of a directory, sorted by name, or one file. A case may expect these outcomes.
///
/// # Errors
/// Every error of every file at once; also a directory without cases, and a duplicate id.
pub fn load(path: &Path, outcomes: &[&str]) -> Result<Vec<Case>, Vec<ReadError>> {
    let unreadable = |path: &Path, error: &std::io::Error| ReadError {
        file: path.display().to_string(),
        line: None,
        field: "the file".to_owned(),
        found: error.to_string(),
        allowed: "a file of cases, or a directory of such files".to_owned(),
    };
    let files = match yaml_files(path) {
        Ok(files) => files,
        Err(error) => return Err(vec![unreadable(path, &error)]),
    };
    let (mut cases, mut errors) = (Vec::new(), Vec::new());
    for file in &files {
        let name = file.display().to_string();
        match fs::read_to_string(file).map_err(|error| vec![unreadable(file, &error)]) {
            Ok(text) => match parse(&text, &name, outcomes) {
                Ok(more) => cases.extend(more),
                Err(more) => errors.extend(more),
            },
            Err(more) => errors.extend(more),
        }
    }
    let mut seen: HashMap<&str, &Case> = HashMap::new();
    for case in &cases {
        if let Some(first) = seen.insert(&case.id, case) {
            errors.push(ReadError {
                file: case.place.0.clone(),
                line: Some(case.place.1),
                field: "id".to_owned(),
                found: format!("{:?}, which {}:{} also has", case.id, first.place.0, first.place.1),
                allowed: "an id that no other case has".to_owned(),
            });
        }
    }
    if errors.is_empty() && cases.is_empty() {
        errors.push(ReadError {
            file: path.display().to_string(),
            line: None,
            field: "cases".to_owned(),
            found: "none".to_owned(),
            allowed: "at least one case in a file *.yaml".to_owned(),
        });
    }
    if errors.is_empty() { Ok(cases) } else { Err(errors) }
}

fn yaml_files(path: &Path) -> std::io::Result<Vec<std::path::PathBuf>> {
    if fs::metadata(path)?.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "yaml" || extension == "yml")
        {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Reads the text of one file; `file` is used only in errors.
///
/// # Errors
/// Every error at once.
pub fn parse(text: &str, file: &str, outcomes: &[&str]) -> Result<Vec<Case>, Vec<ReadError>> {
    let root = Node::parse(text, MOST_NODES).map_err(|error| {
        vec![ReadError {
            file: file.to_owned(),
            line: error.line,
            field: "the file".to_owned(),
            found: error.message,
            allowed: "YAML".to_owned(),
        }]
    })?;
    let errors = RefCell::default();
    let cases = At::root(&errors, file, &root).record(|fields| cases::file(fields, file, outcomes));
    let errors = errors.into_inner();
    match cases {
        Some(cases) if errors.is_empty() => Ok(cases),
        _ => Err(errors.into_vec(file)),
    }
}
