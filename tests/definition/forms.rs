//! D: four formats, one definition.

use std::collections::BTreeMap;

use gavel::domain::definition::{Definition, Flow, Form, OutputSchema, Provider};
use proptest::prelude::*;
use prost::Message;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::any;

const FORMS: [Form; 4] = [Form::Json, Form::Yaml, Form::Markdown, Form::Proto];

pub(crate) fn from_json(value: &Value) -> Definition {
    let text = value.to_string();
    Definition::read(text.as_bytes(), Form::Json, "x.json").unwrap_or_else(|errors| panic!("{errors:#?}\n{text}"))
}

fn errors(text: impl AsRef<[u8]>, form: Form) -> Vec<String> {
    let errors = Definition::read(text.as_ref(), form, "x").expect_err("the definition is invalid");
    errors.iter().map(ToString::to_string).collect()
}

fn again(definition: &Definition, form: Form) -> Definition {
    let written = definition.write(form);
    Definition::read(&written, form, "x")
        .unwrap_or_else(|errors| panic!("{form:?}: {errors:#?}\n{}", String::from_utf8_lossy(&written)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// D, D-P: converted through the formats in any order, any number of times, a definition stays the same, value for
    /// value.
    #[test]
    fn any_definition_converts_through_all_four_formats_without_loss(
        given in any::definition(),
        order in Just(FORMS.to_vec()).prop_shuffle(),
        more in prop::collection::vec(proptest::sample::select(FORMS.to_vec()), 0..3),
    ) {
        let first = from_json(&given);
        let mut last = first.clone();
        for form in order.into_iter().chain(more) {
            last = again(&last, form);
            prop_assert_eq!(&last, &first, "{:?}", form);
        }
        if let Some(temp) = given["modelConfig"]["temp"].as_f64() {
            prop_assert_eq!(last.model.temperature, Some(temp as f32));
        }
    }

    /// Written twice, the bytes are equal: a file under version control changes only where the definition does.
    #[test]
    fn a_definition_is_written_the_same_each_time(given in any::definition()) {
        let definition = from_json(&given);
        for form in FORMS {
            prop_assert_eq!(again(&definition, form).write(form), definition.write(form));
        }
    }

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..60), text in "\\PC{0,60}") {
        for form in FORMS {
            let _ = Definition::read(&bytes, form, "x");
            let _ = Definition::read(text.as_bytes(), form, "x");
        }
    }
}

fn everything() -> Definition {
    let long = "Look at everything that was asked for, then at what was not asked for and matters all the same, and write it down.";
    from_json(&json!({
        "name": "reviewer", "displayName": "Reviewer", "description": long,
        "inputConfig": {"inputs": {
            "topic": {"description": "What to look at.", "type": "string", "required": true},
            "limits": {"description": "How far", "type": "number[]"},
        }},
        "outputConfig": {"outputName": "report", "description": "What was found.", "schema": {
            "type": "object", "properties": {"score": {"type": "number", "maximum": 0.1}, "text": {"type": "string", "pattern": "^\\S"}},
        }},
        "processOutput": "${text} (${score})",
        "promptConfig": {"query": "About ${topic}:\n${limits}", "systemPrompt": "You review.\n\n# Rules\n\n- Be exact: yes or no.\n---\nEnd."},
        "modelConfig": {"model": "gemini-flash", "provider": "vertex", "temp": 0.1, "top_p": 0.95, "thinkingBudget": -1, "includeThoughts": false},
        "toolConfig": {"tools": ["ls", "files__grep"]},
        "runConfig": {"max_time_minutes": 5, "max_turns": 15},
        "sub_agents": ["helper"], "flow_type": "loop", "max_iterations": 4, "approval": "always",
    }))
}

#[test]
fn each_format_is_pretty_printed() {
    let definition = everything();
    let text = |form| String::from_utf8(definition.write(form)).unwrap();
    insta::assert_snapshot!("markdown", text(Form::Markdown));
    insta::assert_snapshot!("yaml", text(Form::Yaml));
    insta::assert_snapshot!("json", text(Form::Json));
}

/// D-P: the fixed field numbers, as any other program has them.
#[derive(Clone, PartialEq, Message)]
struct Theirs {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    display_name: String,
    #[prost(string, tag = "3")]
    description: String,
    #[prost(message, optional, tag = "4")]
    input_config: Option<TheirInputs>,
    #[prost(message, optional, tag = "5")]
    output_config: Option<TheirOutput>,
    #[prost(message, optional, tag = "6")]
    prompt_config: Option<TheirPrompt>,
    #[prost(message, optional, tag = "7")]
    model_config: Option<TheirModel>,
    #[prost(message, optional, tag = "8")]
    tool_config: Option<TheirTools>,
    #[prost(message, optional, tag = "9")]
    run_config: Option<TheirRun>,
}
#[derive(Clone, PartialEq, Message)]
struct TheirInputs {
    #[prost(btree_map = "string, message", tag = "1")]
    inputs: BTreeMap<String, TheirArgument>,
}
#[derive(Clone, PartialEq, Message)]
struct TheirArgument {
    #[prost(string, tag = "1")]
    description: String,
    #[prost(string, tag = "2")]
    kind: String,
    #[prost(bool, tag = "3")]
    required: bool,
}
#[derive(Clone, PartialEq, Message)]
struct TheirOutput {
    #[prost(string, tag = "1")]
    output_name: String,
    #[prost(string, tag = "2")]
    description: String,
    #[prost(string, tag = "3")]
    schema: String,
}
#[derive(Clone, PartialEq, Message)]
struct TheirPrompt {
    #[prost(string, tag = "1")]
    query: String,
    #[prost(string, tag = "2")]
    system_prompt: String,
}
#[derive(Clone, PartialEq, Message)]
struct TheirModel {
    #[prost(string, tag = "1")]
    model: String,
    #[prost(float, optional, tag = "2")]
    temperature: Option<f32>,
    #[prost(float, optional, tag = "3")]
    top_p: Option<f32>,
    #[prost(int32, optional, tag = "4")]
    thinking_budget: Option<i32>,
}
#[derive(Clone, PartialEq, Message)]
struct TheirTools {
    #[prost(string, repeated, tag = "1")]
    tools: Vec<String>,
}
#[derive(Clone, PartialEq, Message)]
struct TheirRun {
    #[prost(int32, optional, tag = "1")]
    max_time_minutes: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    max_turns: Option<i32>,
}

fn theirs() -> Theirs {
    let argument = TheirArgument {
        description: "What.".to_owned(),
        kind: "string".to_owned(),
        required: true,
    };
    Theirs {
        name: "a".to_owned(),
        display_name: "A".to_owned(),
        description: "Does.".to_owned(),
        input_config: Some(TheirInputs {
            inputs: BTreeMap::from([("topic".to_owned(), argument)]),
        }),
        output_config: Some(TheirOutput {
            output_name: "report".to_owned(),
            description: "Out.".to_owned(),
            schema: r#"{"type": "object", "maxProperties": 18446744073709551615}"#.to_owned(),
        }),
        prompt_config: Some(TheirPrompt {
            query: "${topic}".to_owned(),
            system_prompt: "Be kind.".to_owned(),
        }),
        model_config: Some(TheirModel {
            model: "m".to_owned(),
            temperature: Some(0.1),
            top_p: Some(0.95),
            thinking_budget: Some(-1),
        }),
        tool_config: Some(TheirTools {
            tools: vec!["ls".to_owned()],
        }),
        run_config: Some(TheirRun {
            max_time_minutes: Some(5),
            max_turns: Some(15),
        }),
    }
}

/// D-P, D-8: another program's message is read by the fixed numbers, and its floats are decimal as people write them.
#[test]
fn another_programs_message_is_read_by_the_fixed_numbers_with_decimal_floats() {
    let definition = Definition::read(&theirs().encode_to_vec(), Form::Proto, "x.binpb").unwrap();
    let schema = json!({"type": "object", "maxProperties": u64::MAX});
    assert_eq!(definition.output.as_ref().unwrap().schema, OutputSchema::Inline(schema));
    let portable = definition.to_json();
    assert_eq!(
        portable["modelConfig"],
        json!({"model": "m", "temp": 0.1, "top_p": 0.95, "thinkingBudget": -1})
    );
    assert_eq!(portable["runConfig"], json!({"max_time_minutes": 5, "max_turns": 15}));
    assert_eq!(definition.tools, ["ls"]);
    // The other program reads what gavel writes, except for gavel's own fields.
    let mut back = Theirs::decode(definition.write(Form::Proto).as_slice()).unwrap();
    let output = back.output_config.as_mut().unwrap();
    output.schema = output.schema.replace(':', ": ").replace(",\"", ", \"");
    let mut given = theirs();
    let sorted = r#"{"maxProperties": 18446744073709551615, "type": "object"}"#;
    given.output_config.as_mut().unwrap().schema = sorted.to_owned();
    assert_eq!(back, given);
}

/// "What is not supported is named": prost alone would drop such a field.
#[test]
fn a_message_with_fields_that_gavel_does_not_know_is_refused() {
    let mut bytes = theirs().encode_to_vec();
    // Field 55, a varint.
    bytes.extend([0xb8, 0x03, 0x01]);
    assert!(errors(&bytes, Form::Proto)[0].contains("fields that this version does not know"));
    assert!(errors([0xff, 0xff], Form::Proto)[0].contains("not this message"));
}

/// An error in a format without lines is reported without one.
#[test]
fn an_invalid_message_is_reported_by_field() {
    let mut given = theirs();
    given.model_config.as_mut().unwrap().temperature = Some(f32::NAN);
    given.run_config.as_mut().unwrap().max_turns = Some(-1);
    given.output_config.as_mut().unwrap().schema = "{\"type\": 5}".to_owned();
    given.input_config = None;
    let shown = errors(given.encode_to_vec(), Form::Proto);
    assert_eq!(
        shown,
        [
            "x: output_config.schema.type: found 5; allowed: array, boolean, integer, null, number, object, string, or a list of these",
            "x: prompt_config.query: found the placeholder ${topic}; allowed: an input: query; or `$${` for a literal `${`",
            "x: model_config.temperature: found \"NaN\"; allowed: a number from 0 to 2",
            "x: run_config.max_turns: found -1; allowed: a whole number from 1 to 2147483647",
        ]
    );
}

/// JSON is parsed strictly; a tab, and an emoji as a pair of escapes, are valid JSON.
#[test]
fn json_is_read_strictly_and_its_errors_have_lines() {
    let right = "{\n\t\"name\": \"a\",\r\n\t\"description\": \"\\ud83d\\ude00\\t!\",\n\t\"system_prompt\": \"x\"\n}\n";
    let definition = Definition::read(right.as_bytes(), Form::Json, "x.json").unwrap();
    assert_eq!(definition.description, "😀\t!");
    for (invalid, line) in [
        ("{\n\"name\": 'a'\n}", 2),
        ("{\n\"name\": \"a\",\n}", 3),
        ("name: a", 1),
        ("{\n# no\n}", 2),
        ("{\"name\":\n\"\\ud83d\"}", 2),
    ] {
        let shown = &errors(invalid, Form::Json)[0];
        assert!(
            shown.starts_with(&format!("x:{line}: the file: found text that is not JSON (")),
            "{shown}"
        );
    }
    let shown = errors(
        "{\n\t\"name\": \"a\",\n\t\"temp\": \"hot\",\n\t\"descripton\":\n\"b\"\n}",
        Form::Json,
    );
    assert!(
        shown.contains(&"x:3: temp: found \"hot\"; allowed: a number from 0 to 2".to_owned()),
        "{shown:?}"
    );
    assert!(
        shown.contains(&"x:4: descripton: found an unknown field; allowed: did you mean `description`?".to_owned())
    );
}

#[test]
fn yaml_errors_have_lines_and_non_json_numbers_are_refused() {
    let head =
        "name: a\ndescription: b\nsystem_prompt: |\n  c\noutput_config:\n  output_name: r\n  description: d\n  schema:";
    for number in [".inf", "-.inf", ".nan", "1e400"] {
        let shown = errors(format!("{head}\n    maximum: {number}\n"), Form::Yaml);
        assert!(
            shown[0].starts_with("x:9: the file: found text that is not YAML (value `"),
            "{shown:?}"
        );
    }
    let shown = errors("name: a\n\tdescription: b\n", Form::Yaml);
    assert!(
        shown[0].contains(": the file: found text that is not YAML (while scanning"),
        "{shown:?}"
    );
    assert!(
        errors(b"name: a\ndescription: \xff\n", Form::Yaml)[0]
            .starts_with("x:2: the file: found bytes that are not UTF-8")
    );
}

#[test]
fn the_line_ends_of_a_checkout_change_nothing() {
    for form in [Form::Json, Form::Yaml, Form::Markdown] {
        let definition = everything();
        let text = String::from_utf8(definition.write(form)).unwrap();
        let windows = format!("\u{feff}{}", text.replace('\n', "\r\n"));
        assert_eq!(
            Definition::read(windows.as_bytes(), form, "x").unwrap().hash,
            definition.hash,
            "{form:?}"
        );
    }
}

/// D-4: newer fields are omitted from the canonical form if they are unused, so recorded hashes stay valid.
#[test]
fn a_definition_without_newer_fields_keeps_its_hash() {
    let canonical = concat!(
        r#"{"approval":"side_effects","description":"Helps.","inputConfig":{"inputs":{"query":{"description":"#,
        r#""What the agent is asked to do.","required":true,"type":"string"}}},"name":"helper","#,
        r#""promptConfig":{"query":"${query}","systemPrompt":"Be kind."},"toolConfig":{"tools":[]}}"#
    );
    let definition = Definition::read(super::SMALL.as_bytes(), Form::Markdown, "x.md").unwrap();
    assert_eq!(*definition.hash, *hex::encode(Sha256::digest(canonical)));
    assert_eq!((definition.flow, definition.provider), (Flow::Single, None::<Provider>));
}

/// The largest accepted definition is checked in a moment, however many entries it lists.
#[test]
fn a_definition_that_lists_too_much_is_refused_at_once() {
    let names: Vec<_> = (0..5_000).map(|n| format!("t{n}")).collect();
    let began = std::time::Instant::now();
    for field in ["tools", "sub_agents", "steps"] {
        let flow = if field == "steps" {
            "flow_type: loop"
        } else {
            "system_prompt: s"
        };
        let shown = errors(
            format!("name: a\ndescription: d\n{flow}\n{field}: [{}]", names.join(",")),
            Form::Yaml,
        );
        assert_eq!(
            shown,
            [format!("x:4: {field}: found 5000 of them; allowed: at most 512")]
        );
    }
    let inputs: String = names.iter().map(|name| format!("    {name}: {{}}\n")).collect();
    let text = format!("name: a\ndescription: d\nsystem_prompt: s\ninputConfig:\n  inputs:\n{inputs}");
    let shown = errors(text, Form::Yaml);
    assert!(
        shown[0].ends_with("of them; allowed: at most 512") && shown.len() == 1,
        "{:?}",
        shown.len()
    );
    assert!(
        began.elapsed() < std::time::Duration::from_secs(30),
        "{:?}",
        began.elapsed()
    );
}

/// D-7: text is kept as written, white space included, in all four formats. In Markdown one blank line before the text
/// and the last line end belong to the file.
#[test]
fn text_is_kept_as_it_was_written() {
    for text in [
        " leading",
        "trailing ",
        "\n\nlines before",
        "lines behind\n\n",
        "\n  \t both \n \n",
        "  indented\n    more\n  less\n",
        "a\n\n\nb",
        "\ttab",
        "#hash",
        "---\nrule",
    ] {
        let input = json!({"description": text, "type": "string"});
        let definition = from_json(&json!({
            "name": "a", "displayName": text, "description": text, "inputConfig": {"inputs": {"topic": input}},
            "outputConfig": {"outputName": "report", "description": text, "schema": {"type": "object", "description": text}},
            "processOutput": format!("{text}${{report}}{text}"),
            "promptConfig": {"query": format!("{text}${{topic}}{text}"), "systemPrompt": text},
        }));
        assert_eq!(definition.description, text);
        assert_eq!(definition.prompt.as_ref().unwrap().system_prompt, text);
        for form in FORMS {
            assert_eq!(again(&definition, form), definition, "{form:?} {text:?}");
        }
        let flow = from_json(&json!({
            "name": "f", "description": text, "flow_type": "sequential", "steps": [{"agent": "b", "input": {"query": text}}],
        }));
        assert_eq!(flow.flow.steps()[0].input["query"], text);
        for form in FORMS {
            assert_eq!(again(&flow, form), flow, "{form:?} {text:?}");
        }
    }
    for (body, prompt) in [
        ("Be kind.", "Be kind."),
        ("Be kind.\n", "Be kind."),
        ("\nBe kind.\n", "Be kind."),
        ("\n\n  Be kind.  \n\n", "\n  Be kind.  \n"),
    ] {
        let text = format!("---\nname: a\ndescription: d\n---\n{body}");
        let definition = Definition::read(text.as_bytes(), Form::Markdown, "a.md").unwrap();
        assert_eq!(definition.prompt.unwrap().system_prompt, prompt, "{body:?}");
    }
}

/// D-5: a schema may be given as JSON text in every format, and is read as the schema.
#[test]
fn a_schema_may_be_json_text_in_every_format() {
    let with = |schema: Value| json!({"name": "a", "description": "d", "systemPrompt": "s", "outputConfig": {"outputName": "r", "description": "d", "schema": schema}});
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let text = serde_json::to_string_pretty(&schema).unwrap();
    let definition = from_json(&with(json!(format!(" {text}\n"))));
    assert_eq!(definition, from_json(&with(schema)));
    for form in [Form::Yaml, Form::Markdown] {
        let given = format!("{}\n", with(json!(text)));
        let given = if form == Form::Markdown {
            format!("---\n{given}---\n")
        } else {
            given
        };
        assert_eq!(
            Definition::read(given.as_bytes(), form, "a").as_ref(),
            Ok(&definition),
            "{form:?}"
        );
    }
    let head = "name: a\ndescription: d\nsystemPrompt: s\noutputConfig:\n  outputName: r\n  description: d\n  schema: ";
    for (schema, reported) in [
        (
            "'{\"type\": \"objct\"}'",
            "x:7: outputConfig.schema.type: found \"objct\"; allowed: array, boolean",
        ),
        ("'{\"type\": '", "this JSON text cannot be read: "),
        (
            "'{\"type\": \"object\", \"type\": \"array\"}'",
            "this JSON text cannot be read: the key \"type\" a second time",
        ),
    ] {
        let shown = errors(format!("{head}{schema}\n"), Form::Yaml);
        assert!(
            shown.len() == 1 && shown[0].starts_with("x:7: outputConfig.schema") && shown[0].contains(reported),
            "{shown:?}"
        );
    }
}

#[test]
fn every_form_holds_the_thinking_level_and_none_holds_a_budget_beside_it() {
    let forms = [Form::Markdown, Form::Yaml, Form::Json, Form::Proto];
    let with = |model: serde_json::Value| json!({"name": "a", "description": "d", "promptConfig": {"query": "q", "systemPrompt": "s"}, "modelConfig": model});
    for level in ["minimal", "low", "medium", "high", "xhigh"] {
        let portable = with(json!({"thinkingLevel": level}));
        let definition = Definition::read(portable.to_string().as_bytes(), Form::Json, "a.json").unwrap();
        assert_eq!(definition.model.thinking_level.unwrap().as_str(), level);
        for form in forms {
            let read = Definition::read(&definition.write(form), form, "a").unwrap();
            assert_eq!(read.to_json()["modelConfig"]["thinkingLevel"], level, "{form:?}");
            assert_eq!(read.hash, definition.hash, "{form:?}");
        }
    }
    for (model, error) in [
        (
            json!({"thinkingLevel": "low", "thinkingBudget": 0}),
            "modelConfig.thinkingLevel: found \"low\" beside a thinkingBudget of 0; allowed: one of the two",
        ),
        (
            json!({"thinking_level": "most"}),
            "modelConfig.thinking_level: found \"most\"; allowed: minimal, low, medium, high or xhigh",
        ),
    ] {
        let portable = with(model).to_string();
        let found = Definition::read(portable.as_bytes(), Form::Json, "a.json").unwrap_err();
        assert!(found.iter().any(|found| found.to_string().contains(error)), "{found:?}");
    }
}
