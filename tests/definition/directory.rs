//! Definitions that belong together: errors that no definition shows alone.

use std::path::Path;

use gavel::domain::definition::{Checked, Form, ReadError, SchemaSource, Source, check};

fn directory(files: &[(&str, &str)]) -> Checked {
    let sources: Vec<_> = files
        .iter()
        .filter(|(file, _)| !file.starts_with("schemas/"))
        .map(|(file, text)| Source {
            file: (*file).to_owned(),
            form: Form::of_path(Path::new(file)).unwrap(),
            bytes: text.as_bytes().to_vec(),
        })
        .collect();
    let schemas: Vec<_> = files
        .iter()
        .filter_map(|(file, text)| {
            Some(SchemaSource {
                name: file.strip_prefix("schemas/")?.strip_suffix(".json")?.to_owned(),
                file: (*file).to_owned(),
                bytes: text.as_bytes().to_vec(),
            })
        })
        .collect();
    check(&sources, &schemas)
}

fn shown(errors: &[ReadError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

fn agent(name: &str, more: &str) -> String {
    format!("---\nname: {name}\ndescription: d\n{more}\n---\nBe kind.\n")
}

fn names(checked: &Checked) -> Vec<&str> {
    checked.agents.keys().map(String::as_str).collect()
}

/// D-7: twenty errors of many kinds, in files of three formats, give twenty messages: none hides or causes another.
#[test]
fn a_directory_with_twenty_errors_gets_twenty_precise_messages() {
    let checked = directory(&[
        (
            "reviewer.md",
            "---
name: code reviewer
descripton: Reviews changes.
tools: [ls, grep, ls, '*']
inputConfig:
  inputs:
    change: {description: The change., type: text}
    depth: {type: integer, requird: true}
promptConfig:
  query: Review ${chnge} to the depth ${depth}.
modelConfig:
  temp: 3
  thinkingBudget: -2
runConfig:
  max_turns: 0
approval: sometimes
mcpServers: {}
---
Be exact about ${change}.
",
        ),
        (
            "pipeline.yaml",
            "name: pipeline
description: Plans, then writes.
flow_type: sequential
steps:
- planner
- {agent: writr, input: {topic: '${planner}'}}
- {name: check, agent: planner, input: {query: '${plan'}}
",
        ),
        (
            "planner.json",
            "{
  \"name\": \"planner\",
  \"description\": \"Plans.\",
  \"system_prompt\": \"Plan.\",
  \"outputConfig\": {
    \"outputName\": \"plan\",
    \"description\": \"The plan.\",
    \"schema\": {
      \"type\": \"objct\"
    }
  },
  \"processOutput\": \"${paln}\",
  \"sub_agents\": [
    \"planner2\",
    \"writer\"
  ]
}
",
        ),
        (
            "writer.md",
            "---\nname: writer\ndescription: Writes.\ntemp: 1\ntemperature: 2\n---\nWrite.\n",
        ),
        ("schemas/Report.json", "{\n  \"type\": \"object\",\n}\n"),
    ]);
    insta::assert_snapshot!(shown(&checked.errors).join("\n"));
    assert_eq!(checked.errors.len(), 20);
    assert_eq!(names(&checked), [""; 0]);
}

/// D-7: no error hides another, within a file or between files, and none causes another.
#[test]
fn no_error_hides_another() {
    let schema = "outputConfig: {outputName: report, description: d, schema: Broken}";
    let checked = directory(&[
        (
            "broken_placeholder.md",
            "---\nname: a1\ndescription: d\ninputConfig: {inputs: {a: {description: d, type: string}}}\n\
             query: ${a} ${zz} ${\n---\nBe kind.\n",
        ),
        ("two_names.md", &agent("a2", "temp: 3\ntemperature: 1")),
        (
            "output.md",
            &agent(
                "a3",
                "outputConfig: {outputName: o, schema: {type: object}}\nprocessOutput: ${x}",
            ),
        ),
        (
            "schema.md",
            &agent("a4", &format!("{schema}\nprocessOutput: ${{sumary}}\ntemp: 3")),
        ),
        (
            "schema_alone.md",
            &agent("a5", &format!("{schema}\nprocessOutput: ${{sumary}}")),
        ),
        (
            "flow.yaml",
            "name: flow\ndescription: d\nflow_type: sequential\nsteps:\n\
             - {agent: worker, input: {quary: '${nix} ${', n: '${query}'}}\n\
             - {name: second, agent: worker}\n",
        ),
        (
            "typed.yaml",
            "name: typed\ndescription: d\nflow_type: sequental\nsteps:\n- {agent: worker, input: {m: '${query}'}}\n",
        ),
        (
            "worker.md",
            &agent(
                "worker",
                "inputConfig: {inputs: {n: {description: d, type: string, required: true}}}\nquery: ${n}\ntemp: 3",
            ),
        ),
        (
            "schemas/Broken.json",
            "{\"type\": \"objct\", \"properties\": {\"summary\": {}}}",
        ),
    ]);
    assert_eq!(
        shown(&checked.errors),
        [
            "broken_placeholder.md:5: query: found \"${\"; allowed: `${name}` with letters, digits, `_` or `-`, or `$${` for a literal `${`",
            "broken_placeholder.md:5: query: found the placeholder ${zz}; allowed: an input: a; or `$${` for a literal `${`",
            "flow.yaml:5: steps[0].input.quary: found \"${\"; allowed: `${name}` with letters, digits, `_` or `-`, or `$${` for a literal `${`",
            "flow.yaml:5: steps[0].input.quary: found the placeholder ${nix}; allowed: an input of the flow or an earlier step: query",
            "flow.yaml:5: steps[0].input.quary: found an argument that worker does not take; allowed: n",
            "flow.yaml:6: steps[1]: found nothing for `n`, which worker requires; allowed: `input: {n: …}`, or an input of the flow or an earlier step of that name",
            "output.md: outputConfig.description: found nothing; allowed: what the output is",
            "output.md:5: processOutput: found the placeholder ${x}; allowed: the output or a property of it: o",
            "schema.md:5: processOutput: found the placeholder ${sumary}; allowed: the output or a property of it: did you mean `summary`?",
            "schema.md:6: temp: found 3; allowed: a number from 0 to 2",
            "schema_alone.md:4: outputConfig.schema: found \"Broken\", which is invalid; allowed: a valid schema",
            "schema_alone.md:5: processOutput: found the placeholder ${sumary}; allowed: the output or a property of it: did you mean `summary`?",
            "schemas/Broken.json:1: the schema.type: found \"objct\"; allowed: array, boolean, integer, null, number, object, string, or a list of these",
            "two_names.md:4: temp: found 3; allowed: a number from 0 to 2",
            "two_names.md:5: temperature: found 1, while line 4 says 3; allowed: one value; `temperature` and `temp` are the same field",
            "typed.yaml:3: flow_type: found \"sequental\"; allowed: single, sequential or loop",
            "typed.yaml:5: steps[0].input.m: found an argument that worker does not take; allowed: n",
            "typed.yaml:5: steps[0]: found nothing for `n`, which worker requires; allowed: `input: {n: …}`, or an input of the flow or an earlier step of that name",
            "worker.md:6: temp: found 3; allowed: a number from 0 to 2",
        ]
    );
}

/// A duplicate key is one error, and the rest of the file is read; in every format, and in a schema.
#[test]
fn a_duplicate_key_hides_no_other_error() {
    let checked = directory(&[
        (
            "a.md",
            &agent(
                "a",
                "tools: [ls]\ntools: [grep]\ntemp: 3\nmodelConfig:\n  top_p: 1\n  top_p: 0.5",
            ),
        ),
        (
            "b.json",
            "{\"name\": \"b\", \"description\": \"d\",\n\"description\": \"e\", \"tmep\": 1, \"system_prompt\": \"s\"}",
        ),
        (
            "c.yaml",
            "name: c\ndescription: d\nsystem_prompt: s\nname: d\nsub_agents: [a, b, none]\n",
        ),
        (
            "schemas/S.json",
            "{\"type\": \"object\",\n\"type\": \"array\", \"minItems\": -1}",
        ),
    ]);
    assert_eq!(
        shown(&checked.errors),
        [
            "a.md:5: tools: found the key a second time; allowed: each key once",
            "a.md:6: temp: found 3; allowed: a number from 0 to 2",
            "a.md:9: modelConfig.top_p: found the key a second time; allowed: each key once",
            "b.json:2: description: found the key a second time; allowed: each key once",
            "b.json:2: tmep: found an unknown field; allowed: did you mean `temp`?",
            "c.yaml:4: name: found the key a second time; allowed: each key once",
            "c.yaml:5: sub_agents[2]: found \"none\"; allowed: an existing agent: a, b",
            "schemas/S.json:2: type: found the key a second time; allowed: each key once",
            "schemas/S.json:2: the schema.minItems: found -1; allowed: what JSON Schema allows there: -1 is less than the minimum of 0",
        ]
    );
}

/// A file that cannot be read causes no errors in the agents that call it, and no error suggests its name.
#[test]
fn an_unreadable_file_is_never_suggested_as_a_name() {
    let checked = directory(&[
        ("boss.md", &agent("boss", "sub_agents: [lost, losst, helper]")),
        ("helper.md", &agent("helper", "")),
        ("lost.md", "no front matter"),
        ("two.yaml", "name: two\n---\nname: three\n"),
    ]);
    assert_eq!(
        shown(&checked.errors),
        [
            "boss.md:4: sub_agents[1]: found \"losst\"; allowed: an existing agent: helper",
            "lost.md:1: front matter: found \"no front matter\"; allowed: a first line `---`, the fields, and a closing line `---`",
            "two.yaml:3: the file: found text that is not YAML (only single YAML document expected but multiple found); allowed: YAML",
        ]
    );
}

/// The line is that of the placeholder itself, wherever its text is in the file.
#[test]
fn a_placeholder_has_its_own_line() {
    let checked = directory(&[
        (
            "a.yaml",
            "name: a\ndescription: d\nquery: |\n  ${query}\n\n  $${x} ${x}\nsystem_prompt: >-\n  Be\n  kind ${y}\n  ${z\n",
        ),
        (
            "b.json",
            "{\"name\": \"b\", \"description\": \"d\",\n\"system_prompt\": \"s\\n\\n${x}\"}",
        ),
        (
            "c.yaml",
            "name: c\ndescription: d\nflow_type: sequential\nsteps:\n- agent: b\n  input:\n    query: |\n      ${query}\n      ${x}\n",
        ),
    ]);
    let places: Vec<_> = checked
        .errors
        .iter()
        .map(|error| format!("{}:{}", error.file, error.line.unwrap()))
        .collect();
    assert_eq!(places, ["a.yaml:6", "a.yaml:9", "a.yaml:10", "b.json:2", "c.yaml:9"]);
}

/// X-2, D-R4: the input of a step has the type that its agent requires, as far as that is known before a run.
#[test]
fn a_step_cannot_pass_text_to_a_number_input() {
    let counts = "inputConfig: {inputs: {n: {description: d, type: integer, required: true}}}\nquery: ${n}";
    let number = "outputConfig: {outputName: o, description: d, schema: {type: integer}}";
    let flow = |name: &str, first: &str, input: &str| {
        format!(
            "name: {name}\ndescription: d\nflow_type: sequential\nsteps:\n- {{name: n, agent: {first}}}\n\
             - {{agent: counts, {input}}}\n"
        )
    };
    let checked = directory(&[
        ("says.md", &agent("says", "")),
        ("counts.md", &agent("counts", counts)),
        ("number.md", &agent("number", number)),
        (
            "words.md",
            &agent("words", &format!("{number}\nprocessOutput: about ${{o}}")),
        ),
        ("f1.yaml", &flow("f1", "says", "input: {n: '${n}'}")),
        ("f2.yaml", &flow("f2", "says", "name: second")),
        ("f3.yaml", &flow("f3", "words", "input: {n: '${n}'}")),
        ("f4.yaml", &flow("f4", "number", "input: {n: 'at ${n}'}")),
        ("right.yaml", &flow("right", "number", "input: {n: '${n}'}")),
    ]);
    assert_eq!(
        shown(&checked.errors),
        [
            "f1.yaml:6: steps[1].input.n: found the output of n, which is text; allowed: the type integer, which `n` of counts has",
            "f2.yaml:6: steps[1]: found the output of n, which is text; allowed: the type integer, which `n` of counts has",
            "f3.yaml:6: steps[1].input.n: found the output of n, which is text; allowed: the type integer, which `n` of counts has",
            "f4.yaml:6: steps[1].input.n: found the text \"at ${n}\"; allowed: the type integer, which `n` of counts has",
        ]
    );
    assert!(checked.agents.contains_key("right"));
}

#[test]
fn names_are_unique_over_all_files() {
    let checked = directory(&[
        ("a.md", &agent("a", "")),
        ("b.yaml", "description: d\nsystem_prompt: s\nname: a\n"),
        ("c.md", &agent("c", "")),
    ]);
    assert_eq!(
        shown(&checked.errors),
        ["b.yaml:3: name: found \"a\", as a.md:2 is named; allowed: a name that no other agent has"]
    );
    assert_eq!(names(&checked), ["a", "c"]);
}

/// D-5: a schema that is named must exist, and a schema must be valid.
#[test]
fn a_named_schema_must_exist_and_be_valid() {
    let output = |schema: &str| format!("outputConfig: {{outputName: report, description: d, schema: {schema}}}");
    let right = r#"{"type": "object", "properties": {"summary": {"type": "string"}}}"#;
    let checked = directory(&[
        ("a.md", &agent("a", &output("Report"))),
        ("b.md", &agent("b", &output("Reprot"))),
        ("c.md", &agent("c", &output("Broken"))),
        (
            "d.md",
            &agent(
                "d",
                &format!(
                    "{}\nprocessOutput: ${{summary}} ${{sumary}} ${{report}}",
                    output("Report")
                ),
            ),
        ),
        ("e.md", &agent("e", "processOutput: ${x}")),
        ("f.md", &agent("f", &output("{$ref: '#/$defs/missing'}"))),
        ("schemas/Report.json", right),
        (
            "schemas/Broken.json",
            "{\n  \"properties\": {\n    \"a\": {\n      \"minLength\": -1\n    }\n  }\n}",
        ),
    ]);
    assert_eq!(
        shown(&checked.errors),
        [
            "b.md:4: outputConfig.schema: found \"Reprot\"; allowed: a registered schema: did you mean `Report`?",
            "c.md:4: outputConfig.schema: found \"Broken\", which is invalid; allowed: a valid schema",
            "d.md:5: processOutput: found the placeholder ${sumary}; allowed: the output or a property of it: did you mean `summary`?",
            "e.md:4: processOutput: found no outputConfig; allowed: an outputConfig with it: without one the output is plain text, as the agent wrote it",
            "f.md:4: outputConfig.schema: found the reference #/$defs/missing does not point to a part of the schema; allowed: a self-contained schema in which each $ref points to a part of it",
            "schemas/Broken.json:4: the schema.properties.a.minLength: found -1; allowed: what JSON Schema allows there: -1 is less than the minimum of 0",
        ]
    );
    assert_eq!(names(&checked), ["a"]);
    assert_eq!(
        **checked.agents["a"].output_schema.as_ref().unwrap(),
        serde_json::from_str::<serde_json::Value>(right).unwrap()
    );
}

/// X-15: sub-agents and the agents of steps must exist, and none may lead back to its caller.
#[test]
fn sub_agents_must_exist_and_not_form_a_cycle() {
    let checked = directory(&[
        ("alone.md", &agent("alone", "sub_agents: [helpr, helper]")),
        ("helper.md", &agent("helper", "")),
        ("self.md", &agent("self", "sub_agents: [self]")),
        ("a.md", &agent("a", "sub_agents:\n- helper\n- b")),
        ("b.md", &agent("b", "sub_agents: [c]")),
        ("c.yaml", "name: c\ndescription: d\nflow_type: sequential\nsteps: [a]\n"),
        ("above.md", &agent("above", "sub_agents: [b]")),
        ("tool.md", &agent("tool", "sub_agents: [helper]\ntools: [helper]")),
        ("name.md", &agent("complete_task", "")),
    ]);
    assert_eq!(
        shown(&checked.errors),
        [
            "a.md:6: sub_agents[1]: found the cycle a → b → c → a; allowed: agents that do not lead back to the one that calls them",
            "alone.md:4: sub_agents[0]: found \"helpr\"; allowed: an existing agent: did you mean `helper`?",
            "name.md:2: name: found \"complete_task\"; allowed: another name: it is reserved for a function that ends an agent",
            "self.md:4: sub_agents[0]: found the cycle self → self; allowed: agents that do not lead back to the one that calls them",
            "tool.md:4: sub_agents[0]: found \"helper\", which `tools` names too; allowed: each name in one of the two: an agent that `tools` names is called as a tool too",
        ]
    );
    assert_eq!(
        names(&checked),
        ["helper"],
        "an agent that calls an invalid agent is invalid too"
    );
}

/// An invalid agent is not reported as an unknown one.
#[test]
fn an_invalid_agent_is_reported_once_and_not_by_its_callers() {
    let checked = directory(&[
        ("a.md", &agent("a", "sub_agents: [b]")),
        ("b.md", &agent("b", "temp: hot")),
        ("f.yaml", "name: f\ndescription: d\nflow_type: sequential\nsteps: [b]\n"),
    ]);
    assert_eq!(
        shown(&checked.errors),
        ["b.md:4: temp: found \"hot\"; allowed: a number from 0 to 2"]
    );
    assert_eq!(names(&checked), [""; 0]);
}

/// X-2: a step passes its agent all required inputs, and no unknown ones.
#[test]
fn a_step_must_pass_the_required_inputs_of_its_agent() {
    let inputs = "inputConfig: {inputs: {topic: {description: d, type: string, required: true}, depth: {description: d, type: integer}}}\n\
                  query: ${topic} ${depth}";
    let flow = |steps: &str| {
        format!(
            "name: f\ndescription: d\nflow_type: sequential\ninputConfig:\n  inputs:\n    topic: {{description: d, type: string}}\n    \
             depth: {{description: d, type: number}}\nsteps:\n{steps}"
        )
    };
    let both = |steps: &str| {
        directory(&[
            ("w.md", &agent("w", inputs)),
            ("q.md", &agent("q", "")),
            ("f.yaml", &flow(steps)),
        ])
    };
    assert_eq!(
        shown(&both("- {agent: w, input: {depht: x, depth: '${depth}'}}\n- q\n").errors),
        [
            "f.yaml:9: steps[0].input.depht: found an argument that w does not take; allowed: did you mean `depth`?",
            "f.yaml:9: steps[0].input.depth: found the input `depth` of the type number; allowed: the type integer, which `depth` of w has",
            "f.yaml:10: steps[1]: found nothing for `query`, which q requires; allowed: `input: {query: …}`, or an input of the flow or an earlier step of that name",
        ]
    );
    let unused = both("- {name: query, agent: w, input: {depth: '1 ${topic}'}}\n- q\n");
    assert_eq!(
        shown(&unused.warnings),
        [
            "f.yaml:7: inputConfig.inputs.depth: found the input \"depth\", which no step takes; allowed: inputs that a step takes: by an argument of the same name, or by ${depth} in its input"
        ]
    );
    assert_eq!(
        shown(&unused.errors),
        [
            "f.yaml:9: steps[0].input.depth: found the text \"1 ${topic}\"; allowed: the type integer, which `depth` of w has"
        ]
    );
    let right =
        flow("- {agent: w, input: {topic: '${topic} ${depth}'}}\n- {agent: q, input: {query: 'Sum up ${w}'}}\n");
    let right = directory(&[
        ("w.md", &agent("w", inputs)),
        ("q.md", &agent("q", "")),
        ("f.yaml", &right.replace("type: number", "type: integer")),
    ]);
    assert_eq!(shown(&right.errors), [""; 0]);
    assert_eq!(names(&right), ["f", "q", "w"]);
}

/// D-1, X-15: an agent named in `tools` is called as a tool and checked as a sub-agent: its errors affect its callers,
/// and no cycle is allowed. A name that is no agent's is a tool, which cannot be checked here.
#[test]
fn an_agent_that_tools_names_is_checked_as_a_sub_agent() {
    let checked = directory(&[
        ("boss.md", &agent("boss", "tools: [ls, helper]\ntimeout_mins: 1")),
        ("helper.md", &agent("helper", "tools: [helpr]\ntimeout_mins: 2")),
        ("a.md", &agent("a", "tools: [x, b]")),
        ("b.md", &agent("b", "sub_agents: [a]")),
        ("self.md", &agent("self", "tools: [self]")),
        ("calls_wrong.md", &agent("calls_wrong", "tools: [wrong]")),
        ("wrong.md", &agent("wrong", "temp: hot")),
    ]);
    assert_eq!(
        shown(&checked.errors),
        [
            "a.md:4: tools[1]: found the cycle a → b → a; allowed: agents that do not lead back to the one that calls them",
            "self.md:4: tools[0]: found the cycle self → self; allowed: agents that do not lead back to the one that calls them",
            "wrong.md:4: temp: found \"hot\"; allowed: a number from 0 to 2",
        ]
    );
    assert_eq!(
        shown(&checked.warnings),
        [
            "boss.md:4: tools[1]: found helper with 120 s, in an agent with 60 s; allowed: no more time than its caller has: it is stopped together with its caller"
        ]
    );
    assert_eq!(names(&checked), ["boss", "helper"]);
    let boss = &checked.agents["boss"].definition;
    let is_agent = |name: &str| checked.agents.contains_key(name);
    assert_eq!(
        (boss.calls(is_agent), boss.server_tools(is_agent)),
        (vec!["helper"], vec!["ls".to_owned()])
    );
    let granted: Vec<_> = checked
        .tools
        .iter()
        .map(|tool| (tool.name.as_str(), tool.is_agent))
        .collect();
    assert!(
        granted.contains(&("helper", true)) && granted.contains(&("helpr", false)),
        "{granted:?}"
    );
}

/// D-7: an input that no prompt uses is a warning, and so is an input of a flow that no step uses; each with its own
/// line.
#[test]
fn an_unused_input_causes_a_warning() {
    let inputs =
        "inputConfig:\n  inputs:\n    topic: {description: d, type: string}\n    depth: {description: d, type: string}";
    let checked = directory(&[
        ("a.md", &agent("a", &format!("{inputs}\nquery: About ${{topic}}"))),
        ("b.md", "---\nname: b\ndescription: d\nquery: Go.\n---\nBe kind.\n"),
        (
            "c.md",
            &agent("c", &format!("{inputs}\nquery: About ${{topic}}")).replace("Be kind", "Be ${depth}"),
        ),
    ]);
    assert_eq!(shown(&checked.errors), [""; 0]);
    assert_eq!(
        shown(&checked.warnings),
        [
            "a.md:7: inputConfig.inputs.depth: found the input \"depth\", which no prompt names, so no model reads it; allowed: ${depth} in the query or the system prompt",
            "b.md:4: query: found the input \"query\", which no prompt names, so no model reads it; allowed: ${query} in the query or the system prompt",
        ]
    );
    assert_eq!(names(&checked), ["a", "b", "c"]);
}

/// D-6: a definition is data, so its `processOutput` is a template. For any other value the error shows a template with
/// the definition's own names.
#[test]
fn an_invalid_output_template_error_shows_a_valid_one() {
    let output =
        "outputConfig: {outputName: verdict, description: d, schema: {type: object, properties: {accept: {}}}}";
    let errors = |text: &str| {
        let file = agent("a", &format!("{output}\nprocessOutput: '{text}'"));
        shown(&directory(&[("a.md", &file)]).errors)
    };
    let form = "allowed: a template, since a definition is data: text with `${verdict}` for the whole output, or `${accept}` for its \
                property; without processOutput the final text is the output as JSON";
    for function in [
        "(output) => JSON.stringify(output, null, 2)",
        "output => `${output.accept}`",
        "function (output) { return output.accept; }",
    ] {
        assert_eq!(
            errors(function),
            [format!("a.md:5: processOutput: found a function; {form}")],
            "{function}"
        );
    }
    for text in ["Done.", "$${verdict}", "verdict"] {
        assert_eq!(
            errors(text),
            [format!(
                "a.md:5: processOutput: found a text without a placeholder; {form}"
            )],
            "{text}"
        );
    }
    assert_eq!(errors("Accepted: ${accept}"), [""; 0]);
}

/// X-5, X-8: limits that cannot have an effect are warnings only.
#[test]
fn limits_without_an_effect_cause_a_warning() {
    let checked = directory(&[
        (
            "a.md",
            &agent("a", "sub_agents: [slow, quick]\ntimeout_mins: 5\nmax_turns: 501"),
        ),
        ("slow.md", &agent("slow", "timeout_mins: 6")),
        (
            "quick.md",
            &agent("quick", "timeout_mins: 5\ntools: [ls]\nmax_turns: 1"),
        ),
        (
            "t.md",
            &agent("t", "modelConfig: {thinkingBudget: 1000, maxOutputTokens: 1000}"),
        ),
    ]);
    assert_eq!(
        shown(&checked.warnings),
        [
            "a.md:4: sub_agents[0]: found slow with 360 s, in an agent with 300 s; allowed: no more time than its caller has: it is stopped together with its caller",
            "a.md:6: max_turns: found 501; allowed: at most 500: a run ends there over all its resumes",
            "quick.md:6: max_turns: found 1, so the model never sees the result of a tool; allowed: 2 or more for an agent with tools",
            "t.md:4: modelConfig.thinkingBudget: found 1000, which leaves nothing of 1000 output tokens for an answer; allowed: less than maxOutputTokens, which counts thinking too",
        ]
    );
    assert_eq!(shown(&checked.errors), [""; 0]);
    assert_eq!(names(&checked), ["a", "quick", "slow", "t"]);
}
