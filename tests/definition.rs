//! Definitions: the constitution, the Markdown format, and the errors for an invalid one.
#![allow(clippy::unwrap_used)]

#[path = "definition/any.rs"]
mod any;
#[path = "definition/directory.rs"]
mod directory;
#[path = "definition/flows.rs"]
mod flows;
#[path = "definition/forms.rs"]
mod forms;
#[path = "definition/gemini_cli.rs"]
mod gemini_cli;
#[path = "definition/invalid_values.rs"]
mod invalid_values;
#[path = "definition/json_schema.rs"]
mod json_schema;
#[path = "definition/protobuf.rs"]
mod protobuf;
#[path = "definition/shipped.rs"]
mod shipped;
#[path = "definition/times.rs"]
mod times;

use std::time::Duration;

use gavel::domain::definition::{
    Approval, ChatLimits, Constitution, Definition, Form, InputType, OutputSchema, ReadError,
};
use proptest::prelude::*;
use serde_json::json;

const SMALL: &str = "---\nname: helper\ndescription: Helps.\n---\nBe kind.\n";

fn with(line: &str) -> String {
    SMALL.replacen("---\nBe", &format!("{line}\n---\nBe"), 1)
}

fn read(text: &str) -> Definition {
    Definition::read(text.as_bytes(), Form::Markdown, "x.md").unwrap_or_else(|errors| panic!("{errors:#?}"))
}

fn errors(text: &str) -> Vec<ReadError> {
    Definition::read(text.as_bytes(), Form::Markdown, "x.md").expect_err("the definition is invalid")
}

fn shown(text: &str) -> Vec<String> {
    errors(text).iter().map(ToString::to_string).collect()
}

/// C-FR-009: the program reads the allowlist from the constitution.
#[test]
fn the_built_in_constitution_grants_the_five_task_tools_and_no_others() {
    let constitution = Constitution::from_markdown(Constitution::BUILT_IN, "constitution.md").unwrap();
    assert_eq!(
        constitution.definition.tools,
        ["add_task", "list_tasks", "update_task", "complete_task", "delete_task"]
    );
    assert_eq!(constitution.definition.approval, Approval::Never);
    assert_eq!(
        constitution.limits,
        ChatLimits {
            iterations: 5,
            deadline: Duration::from_secs(30)
        }
    );
}

/// The functions and kinds that the engine offers are those in the constitution.
#[test]
fn the_built_in_constitution_names_every_verdict_kind() {
    for word in [
        "request_clarification",
        "refuse",
        "UNCLEAR_INTENT",
        "MULTIPLE_MATCHES",
        "OUT_OF_SCOPE",
        "MISSING_PERMISSION",
        "untrusted_data",
        "untrusted_message",
    ] {
        assert!(Constitution::BUILT_IN.contains(word), "{word}");
    }
}

/// D-4: the defaults are one string input and plain text output, no tools, and approval for effects.
#[test]
fn a_small_definition_gets_the_documented_defaults() {
    let definition = read(SMALL);
    let prompt = definition.prompt.unwrap();
    assert_eq!(
        (prompt.query.as_str(), prompt.system_prompt.as_str()),
        ("${query}", "Be kind.")
    );
    assert_eq!(definition.inputs["query"].kind, InputType::String);
    assert!(definition.inputs["query"].required);
    assert_eq!((definition.output, definition.process_output), (None, None));
    assert!(definition.tools.is_empty());
    assert_eq!(definition.approval, Approval::SideEffects);
    assert_eq!((definition.limits.max_turns, definition.limits.max_time), (None, None));
}

/// C-FR-011: a constitution without limits gets five iterations and thirty seconds.
#[test]
fn a_constitution_without_limits_gets_five_iterations_and_thirty_seconds() {
    let constitution = Constitution::from_markdown(SMALL, "x.md").unwrap();
    let limits = ChatLimits {
        iterations: 5,
        deadline: Duration::from_secs(30),
    };
    assert_eq!(constitution.limits, limits);
    assert_eq!(
        constitution.limits,
        ChatLimits {
            iterations: 5,
            deadline: Duration::from_secs(30)
        }
    );
}

/// C-FR-011: a constitution cannot raise the limits of the chat surface.
#[test]
fn a_constitution_cannot_raise_the_limits_of_the_chat_surface() {
    let text = with("iterations: 6\ndeadline_seconds: 601\noutputConfig: {outputName: r, description: d, schema: S}");
    let errors = Constitution::from_markdown(&text, "x.md").unwrap_err();
    let shown: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "x.md:6: outputConfig.outputName: found a structured output; allowed: no outputConfig: a chat answers with text",
            "x.md:4: runConfig.max_turns: found 6; allowed: 1 to 5 on the chat surface",
            "x.md:5: runConfig.deadline_seconds: found 601 s; allowed: at most 600 s on the chat surface",
        ]
    );
}

#[test]
fn a_constitution_has_no_inputs_but_the_message() {
    let text = with("inputConfig: {inputs: {a: {description: d, type: string}}}\nquery: do ${a}");
    let errors = Constitution::from_markdown(&text, "x.md").unwrap_err();
    assert_eq!(errors[0].field, "promptConfig.query");
    let errors = Constitution::from_markdown(&SMALL.replace("Be kind", "Answer ${query}"), "x.md").unwrap_err();
    assert_eq!(
        (errors[0].field.as_str(), errors[0].line),
        ("promptConfig.systemPrompt", Some(5))
    );
}

#[test]
fn all_errors_come_at_once_each_with_its_line() {
    let text = "---
name: two words
descripton: Helps.
tools: [a, a]
model_config:
  temp: 3
  top_k: 4
run_config:
  max_turns: 0
approval: sometimes
kind: remote
inputConfig:
  inputs:
    a: {type: text, requird: true}
outputConfig:
  schema: 5
---
";
    assert_eq!(
        shown(text),
        [
            "x.md: outputConfig.outputName: found nothing; allowed: a name",
            "x.md: outputConfig.description: found nothing; allowed: what the output is",
            "x.md: promptConfig.systemPrompt: found nothing; allowed: the agent's persona and rules",
            "x.md: promptConfig.query: found nothing; allowed: a text that names the inputs as ${input}",
            "x.md:2: name: found \"two words\"; allowed: 1 to 64 letters, digits, `_` or `-`, such as `two-words`",
            "x.md:3: descripton: found an unknown field; allowed: did you mean `description`?",
            "x.md:4: tools[1]: found \"a\" a second time; allowed: each name once",
            "x.md:6: model_config.temp: found 3; allowed: a number from 0 to 2",
            "x.md:7: model_config.top_k: found an unknown field; allowed: did you mean `top_p`?",
            "x.md:9: run_config.max_turns: found 0; allowed: a whole number from 1 to 2147483647",
            "x.md:10: approval: found \"sometimes\"; allowed: never, side_effects or always",
            "x.md:11: kind: found \"remote\"; allowed: local",
            "x.md:14: inputConfig.inputs.a.type: found \"text\"; allowed: string, number, integer, boolean, string[], number[], integer[] or boolean[]",
            "x.md:14: inputConfig.inputs.a.description: found nothing; allowed: what the argument is for",
            "x.md:14: inputConfig.inputs.a.requird: found an unknown field; allowed: did you mean `required`?",
            "x.md:16: outputConfig.schema: found 5; allowed: a JSON Schema, also as JSON text, or the name of a registered one (letters, digits, `_` or `-`)",
        ]
    );
}

#[test]
fn an_unknown_field_without_a_similar_name_lists_all_names() {
    // A field that belongs in a group is reported with that location.
    let grouped = self::errors(&with("provider: gemini"));
    assert_eq!(grouped[0].allowed, "did you mean `modelConfig.provider`?");
    let errors = errors(&with("colour: red"));
    assert_eq!((errors[0].line, errors[0].field.as_str()), (Some(4), "colour"));
    assert!(
        errors[0].allowed.contains("description, ") && errors[0].allowed.contains("runConfig"),
        "{}",
        errors[0]
    );
}

#[test]
fn invalid_front_matter_is_reported_with_its_line() {
    assert_eq!(errors("Be kind.")[0].line, Some(1));
    assert_eq!(errors("---\nname: a\nno end")[0].field, "front matter");
    assert_eq!(errors("---\nname: a\nb: [1, 2\n---\nx")[0].field, "front matter");
    let twice = errors("---\nname: a\nx: 1\nname: b\n---\nx");
    assert!(
        twice
            .iter()
            .any(|error| error.line == Some(4) && error.found == "the key a second time"),
        "{twice:?}"
    );
    assert_eq!(errors("---\n- a\n---\nx")[0].found, "a list");
    assert_eq!(
        errors(&format!("---\n{}\n---\n", "x".repeat(1 << 20)))[0].allowed,
        "at most 1 MiB"
    );
}

/// D-R4: for a text of 1 MiB full of errors, the first ones are reported with their lines, and the rest are
/// counted. The cost of an error does not grow with the others, or this would take minutes.
#[test]
fn of_very_many_errors_the_first_are_reported_and_the_rest_counted() {
    let reported = |text: &str, form: Form, expected: usize| {
        assert!(text.len() <= 1 << 20, "{}", text.len());
        let mut errors = Definition::read(text.as_bytes(), form, "x").expect_err("the definition is invalid");
        let rest = errors.pop().unwrap();
        assert_eq!(errors.len(), 100);
        assert_eq!(rest.found, format!("{} more errors", expected - 100));
        assert!(errors.iter().all(|error| error.to_string().len() < 2000));
        errors
    };
    let unclosed = reported(
        &format!("{SMALL}${{query}}{}", "${".repeat(9_000)),
        Form::Markdown,
        9_000,
    );
    assert!(unclosed.iter().all(|error| error.line == Some(6)), "{}", unclosed[0]);
    let unknown = reported(&format!("{SMALL}{}", "${x}\n".repeat(9_000)), Form::Markdown, 9_000);
    let lines: Vec<_> = unknown.iter().map(|error| error.line).collect();
    assert_eq!(lines, (6..106).map(Some).collect::<Vec<_>>());
    let text = |more: &str| format!("{{\"name\": \"a\", \"description\": \"d\", \"systemPrompt\": \"Go.\", {more}}}");
    // The key is unknown, and below it everything but the first key of a map occurs twice.
    let twice = text(&format!(
        "\"{}\": [{{\"b\": 1{}}}]",
        "k".repeat(500_000),
        ", \"b\": 1".repeat(8_000)
    ));
    reported(&twice, Form::Json, 8_001);
    let input: Vec<_> = (0..8_000).map(|n| format!("\n\"{n}\": \"${{\"")).collect();
    let steps = format!("{{\"agent\": \"b\", \"input\": {{{}}}}}", input.join(","));
    let flow =
        format!("{{\"name\": \"a\", \"description\": \"d\", \"flow_type\": \"sequential\", \"steps\": [{steps}]}}");
    // By name, each with its own line.
    let steps = reported(&flow, Form::Json, 8_000);
    let line = |error: &ReadError| error.field.rsplit('.').next().unwrap().parse::<u64>().unwrap() + 2;
    assert!(
        steps.iter().all(|error| error.line == Some(line(error))),
        "{}",
        steps[0]
    );
}

/// A definition within the maximum length that would take long to process is refused with the reason, and with its line
/// if there is one.
#[test]
fn a_definition_of_too_many_values_lines_or_placeholders_is_refused() {
    let refused = |text: &str, form: Form| {
        assert!(text.len() <= 1 << 20, "{}", text.len());
        let began = std::time::Instant::now();
        let errors = Definition::read(text.as_bytes(), form, "x").expect_err("it has too much");
        // A tenth of a second in a release build; tests are not optimized, and run in parallel.
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        errors[0].to_string()
    };
    let head = "name: a\ndescription: d\nsystem_prompt: s\n";
    for (text, says) in [
        (
            format!("{head}x: [{}]", "1,".repeat(400_000)),
            "x:4: the file: found more than 16384 values and names of fields",
        ),
        (
            format!("{head}x: [{}]", "{},".repeat(300_000)),
            "found more than 16384 values",
        ),
        (
            format!(
                "{head}{}",
                (0..60_000).map(|n| format!("k{n}: 1\n")).collect::<String>()
            ),
            "found more than 16384 values",
        ),
        (
            format!("{head}x: &x [{}]\ny: [{}]", "1,".repeat(1000), "*x,".repeat(900)),
            "found more than 16384 values",
        ),
        (format!("{head}x: 1\ny: [{}]", "&a 1,".repeat(2000)), "nchors"),
        (
            format!("{head}{}", "#\n".repeat(400_000)),
            "found more than 65536 lines",
        ),
    ] {
        let found = refused(&text, Form::Yaml);
        assert!(found.contains(says), "{says}: {found}");
        let found = refused(&format!("---\n{text}\n---\np\n"), Form::Markdown);
        let says = says.trim_start_matches("x:4: the file: ");
        assert!(found.contains(says), "{says}: {found}");
    }
    let deep = format!(
        "{{\"x\": {}{}1{}}}",
        "[".repeat(50),
        "1,".repeat(400_000),
        "]".repeat(50)
    );
    assert!(
        refused(&deep, Form::Json).contains("found more than 16384 values"),
        "{}",
        refused(&deep, Form::Json)
    );
    let marks = format!("{SMALL}{}", "${".repeat(20_000));
    assert!(refused(&marks, Form::Markdown).contains("20000 times `${`; allowed: at most 10000 times"));
}

/// `max_steps` and `max_turns` are synonyms, and so are the time limits.
#[test]
fn one_field_under_two_names_must_have_one_value() {
    assert_eq!(
        read(&with("max_steps: 7\nrunConfig: {max_turns: 7}")).limits.max_turns,
        Some(7)
    );
    assert_eq!(
        shown(&with("max_steps: 7\nrunConfig: {max_turns: 8}")),
        [
            "x.md:5: runConfig.max_turns: found 8, while line 4 says 7; allowed: one value; `runConfig.max_turns` and `max_steps` are the same field"
        ]
    );
    let five = Some(Duration::from_secs(300));
    assert_eq!(
        read(&with("timeout_mins: 5\nrun_config: {deadline_seconds: 300}"))
            .limits
            .max_time,
        five
    );
    assert_eq!(
        shown(&with("timeout_mins: 5\nrun_config: {deadline_seconds: 301}")),
        [
            "x.md:5: run_config.deadline_seconds: found 301 s, while the limit in minutes is 300 s; allowed: one value; both are the same limit"
        ]
    );
    assert_eq!(errors(&with("system_prompt: Be cruel."))[0].line, Some(6));
}

/// D-7: a placeholder that cannot be filled is an error before any run.
#[test]
fn each_placeholder_must_be_an_input() {
    let inputs = "inputConfig: {inputs: {topic: {description: d, type: string}}}\n";
    assert_eq!(
        read(&with(&format!("{inputs}query: About ${{topic}}")))
            .prompt
            .unwrap()
            .query,
        "About ${topic}"
    );
    assert_eq!(
        shown(&with(&format!("{inputs}query: About ${{topci}}"))),
        ["x.md:5: query: found the placeholder ${topci}; allowed: an input: did you mean `topic`?"]
    );
    assert_eq!(
        errors(&with(&format!("{inputs}query: About ${{topic")))[0].found,
        "\"${topic\""
    );
}

#[test]
fn gemini_cli_spellings_are_understood() {
    let text = with(
        "display_name: H\nkind: local\ntools:\n  - a\nmodel: inherit\ntemperature: 0.1\nmax_turns: 9\ntimeout_mins: 2",
    );
    let definition = read(&text);
    assert_eq!(definition.display_name.as_deref(), Some("H"));
    assert_eq!(definition.model.model, None, "inherit is the configured model");
    assert_eq!(definition.model.temperature, Some(0.1));
    assert_eq!(definition.limits.max_turns, Some(9));
    assert_eq!(definition.limits.max_time, Some(Duration::from_secs(120)));
}

#[test]
fn the_content_hash_depends_on_the_content_and_on_nothing_else() {
    let one = read(&with("tools: [a, b]\nmax_steps: 3"));
    let other = read(&with(
        "# a comment\ntoolConfig:\n  tools:\n  - a\n  - b\nrunConfig:\n  maxTurns: 3",
    ));
    let windows = read(&with("tools: [a, b]\nmax_steps: 3").replace('\n', "\r\n"));
    assert_eq!(one, other);
    assert_eq!(one.hash, windows.hash);
    assert_eq!(one.hash.len(), 64);
    assert_ne!(one.hash, read(&with("tools: [a]\nmax_steps: 3")).hash);
    assert_ne!(
        one.hash,
        read(&with("tools: [a, b]\nmax_steps: 3").replace("kind.", "kind!")).hash
    );
    // If unset, the canonical form omits it, so that stored definitions keep their hashes.
    assert!(!one.to_json().to_string().contains("includeThoughts"));
    for thoughts in [true, false] {
        let text = format!("tools: [a, b]\nmax_steps: 3\nincludeThoughts: {thoughts}");
        let same = format!("tools: [a, b]\nmax_steps: 3\nmodel_config: {{include_thoughts: {thoughts}}}");
        let reported = read(&with(&text));
        assert_eq!(reported.to_json()["modelConfig"]["includeThoughts"], thoughts);
        assert_eq!(reported.hash, read(&with(&same)).hash);
        assert_ne!(one.hash, reported.hash);
    }
}

/// D-8: stored as a protobuf float, so 0.1 is written back as 0.1.
#[test]
fn the_portable_format_keeps_numbers_as_written() {
    let definition = read(&with("modelConfig: {temp: 0.1, thinkingBudget: -1}\ntimeout_mins: 5"));
    let json = definition.to_json();
    assert_eq!(json["modelConfig"], json!({"temp": 0.1, "thinkingBudget": -1}));
    assert_eq!(json["runConfig"], json!({"max_time_minutes": 5}));
    assert_eq!(json.to_string().matches("null").count(), 0);
}

#[test]
fn an_inline_schema_is_kept_as_it_is() {
    let text = with("outputConfig: {outputName: r, description: d, schema: {type: object, default: null}}");
    let Some(output) = read(&text).output else {
        panic!("no output")
    };
    assert_eq!(
        output.schema,
        OutputSchema::Inline(json!({"type": "object", "default": null}))
    );
}

fn name() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9_-]{1,12}"
}

fn words() -> impl Strategy<Value = String> {
    "[^\\p{Z}\\p{C}$][^\\p{C}$]{0,20}[^\\p{Z}\\p{C}$]"
}

proptest! {
    /// D: the portable format reads back as the same definition, value for value.
    #[test]
    fn the_portable_format_reads_back_unchanged(
        (id, title, about, persona) in (name(), proptest::option::of(words()), words(), words()),
        tools in proptest::collection::btree_set(name(), 0..4),
        (temp, top_p, budget) in (proptest::option::of(0.0..=2.0f32), proptest::option::of(0.0..=1.0f32), proptest::option::of(-1..i32::MAX)),
        (turns, seconds) in (proptest::option::of(1..i32::MAX), proptest::option::of(1..i32::MAX)),
        approval in proptest::sample::select(vec!["never", "side_effects", "always"]),
    ) {
        let given = json!({
            "name": id, "displayName": title, "description": about, "promptConfig": {"systemPrompt": persona},
            "modelConfig": {"temp": temp, "top_p": top_p, "thinkingBudget": budget},
            "toolConfig": {"tools": tools}, "runConfig": {"max_turns": turns, "deadline_seconds": seconds},
            "approval": approval,
        });
        // JSON is YAML, so it may be the front matter.
        let first = read(&format!("---\n{given}\n---\n"));
        let second = read(&format!("---\n{}\n---\n", first.to_json()));
        prop_assert_eq!(&first.model.temperature, &temp);
        prop_assert_eq!(first, second);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "(---\n)?([a-z_]{1,12}: ?[\\PC]{0,20}\n){0,4}(---\n)?\\PC{0,40}") {
        let _ = Constitution::from_markdown(&text, "x.md");
    }
}
