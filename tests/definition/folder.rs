//! Definitions that belong together: what one of them cannot know of itself.

use std::path::Path;

use gavel::domain::definition::{Checked, DefinitionError, Form, SchemaSource, Source, check};

fn folder(files: &[(&str, &str)]) -> Checked {
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

fn shown(errors: &[DefinitionError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

fn agent(name: &str, more: &str) -> String {
    format!("---\nname: {name}\ndescription: d\n{more}\n---\nBe kind.\n")
}

fn names(checked: &Checked) -> Vec<&str> {
    checked.agents.keys().map(String::as_str).collect()
}

/// D-7: twenty mistakes of many kinds, in files of three forms, are twenty errors: none hides another, none begets another.
#[test]
fn a_folder_with_twenty_mistakes_gets_twenty_precise_errors() {
    let checked = folder(&[
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

#[test]
fn names_are_unique_over_all_files() {
    let checked = folder(&[
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

/// D-5: a schema is named or stands there, and it is one.
#[test]
fn a_named_schema_is_there_and_is_one() {
    let output = |schema: &str| format!("outputConfig: {{outputName: report, description: d, schema: {schema}}}");
    let right = r#"{"type": "object", "properties": {"summary": {"type": "string"}}}"#;
    let checked = folder(&[
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
            "b.md:4: outputConfig.schema: found \"Reprot\"; allowed: a schema that is there: did you mean `Report`?",
            "c.md:4: outputConfig.schema: found \"Broken\", which is wrong; allowed: a schema that is right",
            "d.md:5: processOutput: found the placeholder ${sumary}; allowed: the output or a property of it: did you mean `summary`?",
            "e.md:4: processOutput: found no outputConfig; allowed: an outputConfig with it: without one the output is plain text, as the agent wrote it",
            "f.md:4: outputConfig.schema: found Pointer '/$defs/missing' does not exist; allowed: a schema whole in itself, each $ref to a part of it",
            "schemas/Broken.json:4: the schema.properties.a.minLength: found -1; allowed: what JSON Schema allows there: -1 is less than the minimum of 0",
        ]
    );
    assert_eq!(names(&checked), ["a"]);
    assert_eq!(
        **checked.agents["a"].output_schema.as_ref().unwrap(),
        serde_json::from_str::<serde_json::Value>(right).unwrap()
    );
}

/// X-15: sub-agents and the agents of steps are there, and none leads back to the one that calls it.
#[test]
fn sub_agents_are_there_and_lead_nowhere_back() {
    let checked = folder(&[
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
            "alone.md:4: sub_agents[0]: found \"helpr\"; allowed: an agent that is there: did you mean `helper`?",
            "name.md:2: name: found \"complete_task\"; allowed: another name: a function by which agents end has this one",
            "self.md:4: sub_agents[0]: found the cycle self → self; allowed: agents that do not lead back to the one that calls them",
            "tool.md:4: sub_agents: found \"helper\", which is granted as a tool too; allowed: names that are no tool's: both would be called by the one name",
        ]
    );
    assert_eq!(
        names(&checked),
        ["helper"],
        "what calls a wrong agent cannot work either"
    );
}

/// An agent that is there and wrong is no unknown one.
#[test]
fn a_wrong_agent_is_told_of_once_and_not_by_those_that_call_it() {
    let checked = folder(&[
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

/// X-2: a step hands its agent what that needs, and no more.
#[test]
fn a_step_gives_its_agent_what_that_requires() {
    let inputs = "inputConfig: {inputs: {topic: {description: d, type: string, required: true}, depth: {description: d, type: integer}}}\n\
                  query: ${topic} ${depth}";
    let flow = |steps: &str| {
        format!(
            "name: f\ndescription: d\nflow_type: sequential\ninputConfig:\n  inputs:\n    topic: {{description: d, type: string}}\n    \
             depth: {{description: d, type: number}}\nsteps:\n{steps}"
        )
    };
    let both = |steps: &str| {
        folder(&[
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
    assert_eq!(
        shown(&both("- {name: query, agent: w, input: {depth: '1 ${topic}'}}\n- q\n").errors),
        [
            "f.yaml:7: inputConfig.inputs.depth: found the input \"depth\", which no step takes; allowed: inputs that a step takes: by an argument of the same name, or by ${depth} in its input"
        ]
    );
    let right =
        both("- {agent: w, input: {depth: '${topic} ${depth}'}}\n- {agent: q, input: {query: 'Sum up ${w}'}}\n");
    assert_eq!(shown(&right.errors), [""; 0]);
    assert_eq!(names(&right), ["f", "q", "w"]);
}

/// X-5, X-8: limits that cannot do what they say are told of and stop nothing.
#[test]
fn limits_that_cannot_work_are_warned_of() {
    let checked = folder(&[
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
            "a.md:4: sub_agents[0]: found slow with 360 s, in an agent with 300 s; allowed: no more time than the agent that calls it has: it is cut short with that one",
            "a.md:6: max_turns: found 501; allowed: at most 500: a run ends there over all its resumes",
            "quick.md:6: max_turns: found 1, so the model never sees the result of a tool; allowed: 2 or more for an agent with tools",
            "t.md:4: modelConfig.thinkingBudget: found 1000, which leaves nothing of 1000 output tokens for an answer; allowed: less than maxOutputTokens, which counts thinking too",
        ]
    );
    assert_eq!(shown(&checked.errors), [""; 0]);
    assert_eq!(names(&checked), ["a", "quick", "slow", "t"]);
}
