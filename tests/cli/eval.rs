//! `gavel eval`.

use std::fs;

use serde_json::Value;

use super::harness::Place;

const CASES: &str = "\
kind: clear
language: en
cases:
  - {id: add, message: add a task to call mom, expect: {decision: INVOKE_TOOL, tasks: [call mom]}}
  - {id: list, message: show my tasks, tasks: [buy milk, {description: pay rent, done: true}], expect: {decision: INVOKE_TOOL, tasks: unchanged}}
";

#[test]
fn an_evaluation_reports_gates_and_leaves_nothing_behind() {
    let place = Place::new();
    fs::write(place.path().join("cases.yaml"), CASES).unwrap();
    let table = place
        .run(&["eval", "cases.yaml", "--json", "r.json", "--junit", "r.xml"])
        .ended(0);
    assert!(table.contains("no evidence about Gemini"), "{table}");
    let report: Value = serde_json::from_str(&fs::read_to_string(place.path().join("r.json")).unwrap()).unwrap();
    assert_eq!(report["clear_requests"]["succeeded"], 2);
    assert!(
        fs::read_to_string(place.path().join("r.xml"))
            .unwrap()
            .starts_with("<?xml")
    );
    let mut left: Vec<_> = fs::read_dir(place.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["cases.yaml", "r.json", "r.xml"]);

    fs::write(
        place.path().join("wrong.yaml"),
        CASES.replace("[call mom]", "[call dad]"),
    )
    .unwrap();
    let failed = place.run(&["eval", "wrong.yaml"]);
    assert!(
        failed
            .err
            .contains("not met: 1 of 2 clear requests succeeded, 50.0 % (clear 1/2); at least 90 % are required"),
        "{}",
        failed.err
    );
    assert_eq!(failed.status, 1);
    place.run(&["eval", "wrong.yaml", "--fail-under", "0.5"]).ended(0);
    let hostile = place
        .run(&["eval", "cases.yaml", "--model-kind", "hostile", "--json", "-"])
        .json();
    assert_eq!(hostile["invariants_broken"].as_array().unwrap().len(), 0);
    assert_eq!(place.run(&["eval", "cases.yaml", "--case", "nope"]).status, 2);
}
