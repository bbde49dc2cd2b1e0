//! the syntax of flows.

use gavel::domain::definition::{Definition, Flow, Form, Step};
use serde_json::json;

use super::forms::from_json;

fn errors(text: &str) -> Vec<String> {
    let text = format!("name: f\ndescription: d\n{text}");
    let errors = Definition::read(text.as_bytes(), Form::Yaml, "f.yaml").expect_err("the flow is invalid");
    errors.iter().map(ToString::to_string).collect()
}

fn read(text: &str) -> Definition {
    let text = format!("name: f\ndescription: d\n{text}");
    Definition::read(text.as_bytes(), Form::Yaml, "f.yaml").unwrap_or_else(|errors| panic!("{errors:#?}"))
}

/// an agent without a flow type is single.
#[test]
fn an_agent_without_a_flow_type_is_single() {
    assert_eq!(read("system_prompt: s").flow, Flow::Single);
    assert_eq!(read("system_prompt: s\nflow_type: single").flow, Flow::Single);
    assert_eq!(
        read("system_prompt: s").hash,
        read("system_prompt: s\nflow_type: single").hash
    );
}

/// a step is the name of an agent, or an object with more fields.
#[test]
fn a_step_is_the_name_of_an_agent_or_an_object() {
    let definition =
        read("flow_type: sequential\nsteps:\n- a\n- {name: b2, agent: b, input: {topic: \"On ${a} and ${query}\"}}");
    let plain = Step {
        name: "a".to_owned(),
        agent: "a".to_owned(),
        input: [].into(),
        timeout: None,
    };
    let more = Step {
        name: "b2".to_owned(),
        agent: "b".to_owned(),
        input: [("topic".to_owned(), "On ${a} and ${query}".to_owned())].into(),
        timeout: None,
    };
    assert_eq!(
        definition.flow,
        Flow::Sequential {
            steps: vec![plain, more]
        }
    );
    assert_eq!(definition.prompt, None, "a flow of steps has no prompt for a model");
    assert_eq!(definition.calls(|_| false), ["a", "b"]);
    assert_eq!(
        definition.to_json()["steps"],
        json!(["a", {"name": "b2", "agent": "b", "input": {"topic": "On ${a} and ${query}"}}])
    );
}

/// an agent with its own prompt and no steps is its own only step. All fields of D are allowed beside the flow's
/// type.
#[test]
fn a_sequential_agent_without_steps_is_its_own_only_step() {
    let definition = read("flow_type: sequential\nsystem_prompt: s\ntools: [x]\nmodelConfig: {temp: 0.5}");
    assert_eq!(definition.flow, Flow::Sequential { steps: vec![] });
    assert!(definition.prompt.is_some());
    assert_eq!(definition.to_json()["flow_type"], "sequential");
    assert_ne!(
        definition.hash,
        read("system_prompt: s\ntools: [x]\nmodelConfig: {temp: 0.5}").hash
    );
}

/// a loop has three rounds unless its definition sets another number.
#[test]
fn a_loop_has_three_rounds_by_default() {
    let rounds = |definition: &Definition| match &definition.flow {
        Flow::Loop { max_iterations, steps } => (*max_iterations, steps.len()),
        other => panic!("{other:?}"),
    };
    assert_eq!(rounds(&read("system_prompt: s\nflow_type: loop")), (3, 0));
    assert_eq!(
        rounds(&read("flow_type: loop\nmax_iterations: 7\nsteps: [writer, critic]")),
        (7, 2)
    );
    let default = from_json(&json!({"name": "f", "description": "d", "system_prompt": "s", "flow_type": "loop"}));
    assert_eq!(
        default.hash,
        read("system_prompt: s\nflow_type: loop\nmax_iterations: 3").hash
    );
}

/// In a loop a step sees the outputs of the previous round, so it may name a later step.
#[test]
fn a_step_names_only_outputs_that_exist_by_then() {
    let steps = "steps:\n- {agent: a, input: {x: \"${b}\"}}\n- {agent: b, input: {x: \"${a} ${query} ${c}\"}}";
    assert_eq!(
        errors(&format!("flow_type: sequential\n{steps}")),
        [
            "f.yaml:5: steps[0].input.x: found the placeholder ${b}; allowed: an input of the flow or an earlier step, not a later one",
            "f.yaml:6: steps[1].input.x: found the placeholder ${c}; allowed: an input of the flow or an earlier step: query, a",
        ]
    );
    assert_eq!(
        errors(&format!("flow_type: loop\n{steps}")),
        [
            "f.yaml:6: steps[1].input.x: found the placeholder ${c}; allowed: an input of the flow or an earlier step: query, a, b"
        ]
    );
}

#[test]
fn contradictory_fields_are_reported() {
    assert_eq!(
        errors("steps: [a]\nmax_iterations: 2\nsystem_prompt: s"),
        ["f.yaml:3: steps: found a flow of the type single; allowed: flow_type loop, or nothing here"]
    );
    assert_eq!(
        errors("max_iterations: 2\nsystem_prompt: s"),
        ["f.yaml:3: max_iterations: found a flow of the type single; allowed: flow_type loop, or nothing here"]
    );
    assert_eq!(
        errors("flow_type: sequential"),
        ["f.yaml: promptConfig.systemPrompt: found nothing; allowed: the agent's persona and rules; or `steps`"]
    );
    assert_eq!(
        errors(
            "flow_type: sequential\nsteps: [a]\nsystem_prompt: s\ntoolConfig: {tools: [x]}\napproval: never\ntemp: 1\n\
             includeThoughts: false"
        ),
        [
            "f.yaml:5: system_prompt: found `system_prompt`, `toolConfig.tools`, `approval`, `temp`, `includeThoughts` beside `steps`; allowed: only steps, \
             whose agents have their own prompts, models and tools; or only these, without steps: then the agent itself is the only step"
        ]
    );
    assert_eq!(
        errors("flow_type: parallel\nsystem_prompt: s"),
        ["f.yaml:3: flow_type: found \"parallel\"; allowed: single, sequential or loop"]
    );
}

#[test]
fn an_invalid_step_is_reported_by_its_number() {
    assert_eq!(
        errors(
            "flow_type: sequential\nsteps:\n- a\n- 5\n- {agnt: b}\n- a\n- {name: query, agent: b}\n- {agent: c d, input: {x: 1}}"
        ),
        [
            "f.yaml:6: steps[1]: found 5; allowed: the name of an agent, or a map of name, agent, input and timeout",
            "f.yaml:7: steps[2].agnt: found an unknown field; allowed: did you mean `agent`?",
            "f.yaml:8: steps[3].name: found \"a\"; another step has this name too; allowed: a unique `name` for each step, because later steps refer to its output by name",
            "f.yaml:9: steps[4].name: found \"query\"; an input has this name too; allowed: a unique `name` for each step, because later steps refer to its output by name",
            "f.yaml:10: steps[5].agent: found \"c d\"; allowed: 1 to 64 letters, digits, `_` or `-`",
            "f.yaml:10: steps[5].input.x: found 1; allowed: text that is not blank",
        ]
    );
}
