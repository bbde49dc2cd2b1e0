//! the time limits of an agent, in the units of each field.

use std::time::Duration;

use gavel::domain::definition::{Definition, Form, SubAgent};
use serde_json::json;

use super::forms::from_json;

fn errors(line: &str) -> Vec<String> {
    let text = format!("name: a\ndescription: d\nsystem_prompt: s\n{line}\n");
    let errors = Definition::read(text.as_bytes(), Form::Yaml, "a.yaml").expect_err("it is invalid");
    errors.iter().map(ToString::to_string).collect()
}

fn limit(line: &str) -> Option<u64> {
    let text = format!("name: a\ndescription: d\nsystem_prompt: s\n{line}\n");
    let read = Definition::read(text.as_bytes(), Form::Yaml, "a.yaml");
    let definition = read.unwrap_or_else(|errors| panic!("{line}: {errors:#?}"));
    for form in [Form::Json, Form::Markdown, Form::Proto] {
        let again = Definition::read(&definition.write(form), form, "a").unwrap();
        assert_eq!(again, definition, "{line}: {form:?}");
    }
    definition.limits.max_time.map(|time| time.as_secs())
}

#[test]
fn each_field_of_time_has_its_own_unit() {
    for (line, seconds) in [
        ("default_timeout: 300", 300),
        ("default_timeout: 5m", 300),
        ("defaultTimeout: 90s", 90),
        ("runConfig: {default_timeout: 1h30m}", 5400),
        ("deadline_seconds: 45", 45),
        ("max_time_minutes: 5", 300),
        ("max_time_minutes: 0.5", 30),
        ("timeout_mins: 1.25", 75),
        ("runConfig: {max_time_minutes: 0.1}", 6),
        ("default_timeout: 300\nmax_time_minutes: 5", 300),
        ("default_timeout: 300\ndeadline_seconds: 5m", 300),
    ] {
        assert_eq!(limit(line), Some(seconds), "{line}");
    }
    let seconds = "allowed: a number of seconds from 1, or a text such as 90s, 5m or 1h30m";
    let minutes = "allowed: a number of minutes above 0; a fraction is rounded to whole seconds";
    assert_eq!(
        errors("default_timeout: 5 minutes"),
        [format!("a.yaml:4: default_timeout: found \"5 minutes\"; {seconds}")]
    );
    assert_eq!(
        errors("default_timeout: 0"),
        [format!("a.yaml:4: default_timeout: found 0; {seconds}")]
    );
    assert_eq!(
        errors("max_time_minutes: 5m"),
        [format!("a.yaml:4: max_time_minutes: found \"5m\"; {minutes}")]
    );
    assert_eq!(
        errors("default_timeout: 5\nmax_time_minutes: 5"),
        [
            "a.yaml:4: default_timeout: found 5 s, while the limit in minutes is 300 s; allowed: one value; both are the same limit"
        ]
    );
}

#[test]
fn a_sub_agent_and_a_step_have_their_own_time_limit() {
    let definition = from_json(&json!({
        "name": "a", "description": "d", "systemPrompt": "s",
        "sub_agents": ["b", {"agent": "c", "timeout": 90}, {"agent": "d", "timeout": "5m"}, {"agent": "e"}],
    }));
    let timeouts: Vec<_> = definition
        .sub_agents
        .iter()
        .map(|one| one.timeout.map(|time| time.as_secs()))
        .collect();
    assert_eq!(timeouts, [None, Some(90), Some(300), None]);
    assert_eq!(
        definition.sub_agents[1],
        SubAgent {
            agent: "c".to_owned(),
            timeout: Some(Duration::from_secs(90))
        }
    );
    assert_eq!(
        definition.to_json()["sub_agents"],
        json!(["b", {"agent": "c", "timeout": 90}, {"agent": "d", "timeout": 300}, "e"])
    );
    let flow = from_json(&json!({
        "name": "f", "description": "d", "flow_type": "sequential",
        "steps": ["b", {"agent": "c", "timeout": "2m"}],
    }));
    assert_eq!(flow.flow.steps()[1].timeout, Some(Duration::from_secs(120)));
    for one in [&definition, &flow] {
        for form in [Form::Json, Form::Yaml, Form::Markdown, Form::Proto] {
            assert_eq!(
                Definition::read(&one.write(form), form, "a").as_ref(),
                Ok(one),
                "{form:?}"
            );
        }
    }
    assert_eq!(
        errors(
            "sub_agents:\n- {agent: b, timeout: soon}\n- {agnt: b}\n- 5\n- {agent: c d}\n- c\n- {agent: c, timeout: 5}"
        ),
        [
            "a.yaml:5: sub_agents[0].timeout: found \"soon\"; allowed: a number of seconds from 1, or a text such as 90s, 5m or 1h30m",
            "a.yaml:6: sub_agents[1].agnt: found an unknown field; allowed: did you mean `agent`?",
            "a.yaml:7: sub_agents[2]: found 5; allowed: the name of an agent, or a map of agent and timeout",
            "a.yaml:8: sub_agents[3].agent: found \"c d\"; allowed: 1 to 64 letters, digits, `_` or `-`",
            "a.yaml:10: sub_agents[5]: found \"c\" a second time; allowed: each agent once",
        ]
    );
}

/// A call as a tool may set the agent's time limit, whatever names the agent's inputs have.
#[test]
fn the_timeout_of_an_agents_declaration_has_a_name_that_no_input_has() {
    let with = |inputs: &[&str]| {
        let described = |name: &&str| ((*name).to_owned(), json!({"description": "d", "type": "string"}));
        let inputs: serde_json::Map<_, _> = inputs.iter().map(described).collect();
        from_json(
            &json!({"name": "a", "description": "d", "systemPrompt": "s", "query": "q", "inputConfig": {"inputs": inputs}}),
        )
    };
    for (inputs, name) in [
        (&["topic"][..], "timeout"),
        (&["timeout"], "timeout_seconds"),
        (&["timeout", "timeout_seconds"], "timeout_seconds_seconds"),
    ] {
        let definition = with(inputs);
        let schema = definition.call_schema();
        assert_eq!(schema["properties"][name]["type"], "number", "{schema}");
        assert_eq!(
            schema["properties"].as_object().unwrap().len(),
            inputs.len() + 1,
            "{schema}"
        );
        let mut given = serde_json::Map::from_iter([(inputs[0].to_owned(), json!("x"))]);
        given.insert(name.to_owned(), json!(2.5));
        let checked = definition.check_call(given.clone()).unwrap();
        let (input, timeout) = definition.split_call(checked);
        assert_eq!((input.len(), timeout), (1, Some(Duration::from_millis(2500))));
        for invalid in [json!(0), json!(-5), json!("5m"), json!(true), json!(1e300)] {
            given.insert(name.to_owned(), invalid.clone());
            let errors = definition.check_call(given.clone()).expect_err("it is no time");
            assert_eq!(errors[0].name, name, "{invalid}");
        }
        given.insert(name.to_owned(), json!(null));
        assert_eq!(
            definition.check_call(given).map(|taken| definition.split_call(taken).1),
            Ok(None)
        );
    }
}
