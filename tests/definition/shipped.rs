//! The agents that ship with gavel, and the examples of its documentation.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gavel::app;
use gavel::domain::definition::{Definition, Flow, Form, InputType, OutputSchema};
use serde_json::json;

fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("agents")
}

#[test]
fn every_shipped_definition_is_valid() {
    let loaded = app::agents_in(&shipped(), None).unwrap();
    assert_eq!(loaded.checked.errors, []);
    assert_eq!(loaded.checked.warnings, []);
    assert_eq!(loaded.checked.agents.len(), loaded.files.len());
}

/// D-E: the shipped `codebase_investigator` matches the reference.
#[test]
fn the_codebase_investigator_matches_the_reference() {
    let loaded = app::agents_in(&shipped(), None).unwrap();
    let agent = &loaded.checked.agents["codebase_investigator"];
    let definition = &agent.definition;
    assert_eq!(definition.inputs.keys().collect::<Vec<_>>(), ["objective"]);
    let objective = &definition.inputs["objective"];
    assert_eq!((objective.kind, objective.required), (InputType::String, true));
    let output = definition.output.as_ref().unwrap();
    assert_eq!(output.name, "report");
    assert_eq!(
        output.schema,
        OutputSchema::Named("CodebaseInvestigationReportSchema".to_owned())
    );
    assert_eq!(definition.tools, ["ls", "read_file", "glob", "grep"]);
    assert_eq!(
        (definition.model.temperature, definition.model.thinking_budget),
        (Some(0.1), Some(-1))
    );
    assert_eq!(definition.limits.max_time, Some(Duration::from_secs(300)));
    assert_eq!(definition.limits.max_turns, Some(15));
    assert_eq!(definition.flow, Flow::Single);
}

/// D-E, D-5: a report with locations that can be opened is valid; one without lines, or with other fields, is not.
#[test]
fn the_schema_of_its_report_requires_locations_that_can_be_opened() {
    let loaded = app::agents_in(&shipped(), None).unwrap();
    let schema = loaded.checked.agents["codebase_investigator"]
        .output_schema
        .clone()
        .unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let place = json!({"path": "src/main.rs", "first_line": 1, "last_line": 9, "symbols": ["main"], "reason": "It begins here."});
    let report = |place: serde_json::Value| json!({"summary": "It begins in main.", "relevant_locations": [place], "exploration": ["ls: one crate"], "open_questions": []});
    assert!(validator.is_valid(&report(place.clone())));
    for (field, value) in [
        ("first_line", json!(0)),
        ("last_line", json!("9")),
        ("path", json!("")),
        ("note", json!("x")),
    ] {
        let mut invalid = place.clone();
        invalid[field] = value;
        assert!(!validator.is_valid(&report(invalid)), "{field}");
    }
    for field in ["summary", "relevant_locations", "exploration", "open_questions"] {
        let mut invalid = report(place.clone());
        invalid.as_object_mut().unwrap().remove(field);
        assert!(!validator.is_valid(&invalid), "{field}");
    }
}

/// The formats that docs/reference/agent-files.md shows side by side are one definition; the examples of flows are valid.
#[test]
fn the_examples_of_the_documentation_are_valid() {
    let pages = ["docs/reference/agent-files.md", "docs/reference/agent-flows.md"];
    let read = |page| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).unwrap();
    let text = pages.map(read).concat();
    let mut hashes = std::collections::BTreeMap::<String, Vec<_>>::new();
    // A fence of four backticks: the Markdown format contains no such fence.
    for block in text.split("\n````").skip(1).step_by(2) {
        let (language, body) = block.split_once('\n').unwrap();
        let form = match language {
            "markdown" => Form::Markdown,
            "yaml" => Form::Yaml,
            "json" => Form::Json,
            _ => continue,
        };
        let definition = Definition::read(format!("{body}\n").as_bytes(), form, "docs")
            .unwrap_or_else(|errors| panic!("{errors:#?}\n{body}"));
        hashes
            .entry(definition.name.clone())
            .or_default()
            .push((form.as_str(), definition.hash));
    }
    let reviewers = &hashes["reviewer"];
    assert_eq!(
        reviewers.iter().map(|(form, _)| *form).collect::<Vec<_>>(),
        ["md", "yaml", "json"]
    );
    assert!(
        reviewers.iter().all(|(_, hash)| *hash == reviewers[0].1),
        "{reviewers:?}"
    );
    assert!(hashes.len() >= 3, "the flows are there too: {hashes:?}");
}
