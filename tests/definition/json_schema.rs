//! The JSON Schema of definitions agrees with the reader.

use gavel::domain::definition::{Definition, Form, json_schema, json_schema_of_front_matter, reference};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::any;
use super::forms::from_json;

fn fits(schema: &Value, instance: &Value) -> bool {
    jsonschema::draft202012::new(schema).unwrap().is_valid(instance)
}

fn is_read(instance: &Value) -> bool {
    Definition::read(instance.to_string().as_bytes(), Form::Json, "x").is_ok()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Everything that gavel writes is valid to an editor.
    #[test]
    fn every_definition_is_valid_under_the_schema(given in any::definition()) {
        let written: Value = serde_json::from_slice(&from_json(&given).write(Form::Json)).unwrap();
        let validator = jsonschema::draft202012::new(&json_schema()).unwrap();
        let errors: Vec<_> = validator.iter_errors(&written).map(|error| error.to_string()).collect();
        prop_assert!(errors.is_empty(), "{:?}\n{:#}", errors, written);
    }
}

fn small() -> Value {
    json!({"name": "a", "description": "d", "systemPrompt": "s"})
}

fn with(more: Value) -> Value {
    let mut definition = small();
    for (name, value) in more.as_object().unwrap() {
        definition[name] = value.clone();
    }
    definition
}

/// Every spelling that the reader accepts is valid under the schema.
#[test]
fn every_accepted_spelling_is_valid_under_the_schema() {
    for more in [
        json!({"$schema": "../agent.schema.json", "kind": "local"}),
        json!({"display_name": "A", "tools": ["ls"], "model": "m", "temperature": 0.1, "max_turns": 3, "timeout_mins": 4}),
        json!({"model_config": {"temperature": 1, "topP": 0.5, "thinking_budget": -1, "max_output_tokens": 5, "name": "m"}}),
        json!({"model_config": {"include_thoughts": true}}),
        json!({"includeThoughts": false}),
        json!({"model_config": {"thinking_level": "xhigh"}}),
        json!({"thinkingLevel": "minimal"}),
        json!({"run_config": {"max_steps": 3, "default_timeout": 4}, "tool_config": {"tools": []}, "subAgents": ["b"]}),
        json!({"flow_type": "sequential", "maxTurns": 3, "max_time_minutes": 0.5}),
        json!({"runConfig": {"default_timeout": "1h30m"}, "sub_agents": ["b", {"agent": "c", "timeout": "90s"}]}),
        json!({"flowType": "loop", "maxIterations": 2, "process_output": "${r}",
            "output_config": {"output_name": "r", "description": "d", "schema": "Named"}}),
        json!({"input_config": {"inputs": {"a": {"description": "d", "type": "string[]"}}}, "prompt_config": {"query": "${a}"}}),
    ] {
        let given = with(more);
        assert!(is_read(&given), "{given}");
        assert!(fits(&json_schema(), &given), "{given}");
    }
}

/// A definition whose shape the reader refuses is invalid under the schema, so an editor marks it.
#[test]
fn a_refused_definition_is_invalid_under_the_schema() {
    let invalid = [
        json!({"name": "two words"}),
        json!({"name": 5}),
        json!({"description": " "}),
        json!({"colour": "red"}),
        json!({"kind": "remote"}),
        json!({"temp": 2.5}),
        json!({"modelConfig": {"temp": "hot"}}),
        json!({"modelConfig": {"top_k": 4}}),
        json!({"modelConfig": {"provider": "openai"}}),
        json!({"modelConfig": []}),
        json!({"thinkingBudget": -2}),
        json!({"modelConfig": {"includeThoughts": "yes"}}),
        json!({"includeThoughts": 1}),
        json!({"modelConfig": {"thinkingLevel": "most"}}),
        json!({"max_turns": 0}),
        json!({"max_turns": 1.5}),
        json!({"tools": "ls"}),
        json!({"tools": ["*"]}),
        json!({"tools": ["a", "a"]}),
        json!({"sub_agents": ["a b"]}),
        json!({"sub_agents": (0..513).map(|n| format!("a{n}")).collect::<Vec<_>>()}),
        json!({"tools": (0..513).map(|n| format!("t{n}")).collect::<Vec<_>>()}),
        json!({"flow_type": "loop", "steps": (0..513).map(|n| format!("s{n}")).collect::<Vec<_>>()}),
        json!({"approval": "sometimes"}),
        json!({"inputConfig": {"inputs": {"a": {"type": "string"}}}}),
        json!({"inputConfig": {"inputs": {"a": {"description": "d", "type": "text"}}}}),
        json!({"outputConfig": {"outputName": "r", "description": "d"}}),
        json!({"outputConfig": {"outputName": "r", "description": "d", "schema": 5}}),
        json!({"processOutput": "x"}),
        json!({"default_timeout": "5"}),
        json!({"default_timeout": "0s"}),
        json!({"default_timeout": 0}),
        json!({"max_time_minutes": 0}),
        json!({"max_time_minutes": "5m"}),
        json!({"sub_agents": [{"timeout": 5}]}),
        json!({"sub_agents": [{"agent": "b", "timeout": "soon"}]}),
        json!({"flow_type": "loop", "steps": [{"agent": "b", "timeout": 0}]}),
        json!({"flow_type": "sequential", "steps": []}),
        json!({"steps": ["a"]}),
        json!({"flow_type": "loop", "steps": [{"name": "x"}]}),
        json!({"flow_type": "loop", "max_iterations": 0}),
        json!({"max_iterations": 2}),
        json!({"mcpServers": {}}),
    ];
    for more in invalid {
        let given = with(more);
        assert!(!is_read(&given), "{given}");
        assert!(!fits(&json_schema(), &given), "{given}");
    }
    for missing in ["name", "description", "systemPrompt"] {
        let mut given = small();
        given.as_object_mut().unwrap().remove(missing);
        assert!(!is_read(&given) && !fits(&json_schema(), &given), "{missing}");
    }
}

#[test]
fn the_front_matter_may_omit_the_system_prompt_for_the_text_below() {
    let given = json!({"name": "a", "description": "d"});
    assert!(!fits(&json_schema(), &given));
    assert!(fits(&json_schema_of_front_matter(), &given));
    assert!(!fits(&json_schema_of_front_matter(), &json!({"name": "a"})));
}

/// `$schema` is for editors and not part of the definition.
#[test]
fn the_line_for_editors_changes_nothing() {
    let with_it = from_json(&with(json!({"$schema": "../agent.schema.json"})));
    assert_eq!(with_it, from_json(&small()));
}

/// The documentation's table of fields is generated from the reader's.
#[test]
fn the_documentation_has_the_table_of_fields() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/agent-fields.md");
    let text = std::fs::read_to_string(path).unwrap();
    assert!(
        text.contains(&reference()),
        "put the output of `gavel agents schema --reference` into docs/reference/agent-fields.md"
    );
}
