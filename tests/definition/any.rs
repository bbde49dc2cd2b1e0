//! Any possible definition, as portable JSON that a person could have written.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

pub(crate) fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-zA-Z0-9_-]{1,12}",
        // Names that YAML could read as other values.
        proptest::sample::select(vec![
            "null",
            "true",
            "no",
            "12",
            "1e3",
            "0x1F",
            "-",
            "---",
            "2026-01-01",
            "_"
        ])
        .prop_map(str::to_owned),
    ]
    .prop_filter("it is the function's", |name| name != "complete_task")
}

/// Text that is not blank and has no placeholders: it includes YAML's numbers, booleans, dates and anchors, several
/// lines, every script, and invisible characters.
pub(crate) fn text() -> impl Strategy<Value = String> {
    let odd = proptest::sample::select(vec![
        "~",
        "null",
        "True",
        "NO",
        "on",
        "1",
        "-1.5",
        "1e3",
        ".5",
        "0x1F",
        "1_000",
        "12:30:45",
        "2026-11-22",
        "2026-11-22T10:00:00Z",
        ".inf",
        ".NaN",
        "&anchor",
        "*anchor",
        "!!str x",
        "- a",
        "a: b",
        "a #b",
        "# a",
        "? a",
        "|",
        ">-",
        "%YAML 1.2",
        "---",
        "...",
        "@a",
        "{a: b}",
        "[a]",
        "'",
        "\"",
        "\\n",
        "a\tb",
        "a\n\nb",
        "a\n b\n  c",
        "a \nb",
        "a\r\nb",
        "a\rb",
        "a\u{85}b",
        "a\u{2028}b",
        "😀",
        "a\0b",
        "a\n---\nb",
        "---\nname: b\n---",
        "a\n...\nb",
        "$",
        "$$",
        "{x}",
        "a\u{1b}[0m",
    ]);
    prop_oneof![
        2 => odd.prop_map(str::to_owned),
        3 => "[A-Z][a-z]{1,9}( [a-z]{1,9}){1,5}",
        1 => "[a-z]{1,9}( {1,2}[a-z#:-]{1,30}){5,20}",
        1 => "([ -~]{0,40}\n){1,6}[ -~\t]{1,40}",
        1 => "(?s).{1,40}",
    ]
    .prop_map(|text| text.replace("${", "$ {"))
    .prop_filter("blank", |text| {
        text.chars().any(|c| !c.is_whitespace() && c != '\u{feff}')
    })
}

/// A value within a schema.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter("finite", |f| f.is_finite())
            .prop_map(Value::from),
        "(?s).{0,20}".prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("(?s).{0,8}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// A schema with arbitrary values where JSON Schema allows any, and properties with the given names.
fn schema() -> impl Strategy<Value = Value> {
    let inline = (any_json(), any_json(), prop::collection::vec(text(), 0..3)).prop_map(|(default, constant, texts)| {
        json!({
            "type": "object",
            "description": texts.join("\n"),
            "default": default,
            "properties": {"found": {"const": constant}, "0": {"enum": texts.iter().collect::<std::collections::BTreeSet<_>>()}},
        })
    });
    prop_oneof![inline, name().prop_map(Value::from)]
}

fn inputs() -> impl Strategy<Value = Map<String, Value>> {
    let kinds = vec![
        "string",
        "number",
        "integer",
        "boolean",
        "string[]",
        "number[]",
        "integer[]",
        "boolean[]",
    ];
    let input = (text(), proptest::sample::select(kinds), any::<bool>())
        .prop_map(|(about, kind, required)| json!({"description": about, "type": kind, "required": required}));
    prop::collection::btree_map(name(), input, 0..4).prop_map(|inputs| inputs.into_iter().collect())
}

fn limits() -> impl Strategy<Value = Value> {
    let count = || proptest::option::of(1..i32::MAX);
    (count(), count(), count()).prop_map(
        |(turns, seconds, tokens)| json!({"max_turns": turns, "deadline_seconds": seconds, "max_tokens": tokens}),
    )
}

/// References to each input, after some text.
fn query(text: &str, inputs: &Map<String, Value>) -> String {
    let named: Vec<_> = inputs.keys().map(|name| format!("${{{name}}}")).collect();
    format!("{text} {} end", named.join("\n"))
}

/// An agent with a model.
fn working() -> impl Strategy<Value = Value> {
    let model = (
        proptest::option::of(text().prop_filter("Gemini CLI's word", |model| model != "inherit")),
        proptest::option::of(0.0..=2.0f32),
        proptest::option::of(0.0..=1.0f32),
        proptest::option::of(-1..i32::MAX),
        proptest::option::of(1..i32::MAX),
        proptest::option::of(proptest::sample::select(vec!["gemini", "vertex"])),
        proptest::option::of(any::<bool>()),
        proptest::option::of(proptest::sample::select(vec![
            "minimal", "low", "medium", "high", "xhigh",
        ])),
    )
        .prop_map(|(model, temp, top_p, thinking, most, provider, thoughts, level)| {
            json!({
                "model": model, "temp": temp, "top_p": top_p, "thinkingBudget": thinking, "maxOutputTokens": most,
                "provider": provider, "includeThoughts": thoughts,
                "thinkingLevel": level.filter(|_| thinking.is_none()),
            })
        });
    let output = proptest::option::of((name(), text(), schema(), any::<bool>()));
    let grants = (
        prop::collection::btree_set("[!-)+-~]{1,20}", 0..4),
        prop::collection::btree_set(name(), 0..3),
        proptest::sample::select(vec!["never", "side_effects", "always"]),
        proptest::option::of(1..i32::MAX),
    );
    let texts = (text(), text());
    (inputs(), texts, model, output, grants).prop_map(
        |(inputs, (asked, persona), model, output, (tools, agents, approval, rounds))| {
            let mut definition = json!({
                "inputConfig": {"inputs": inputs},
                "promptConfig": {"query": query(&asked, &inputs), "systemPrompt": persona},
                "modelConfig": model,
                "toolConfig": {"tools": tools},
                "sub_agents": agents.iter().filter(|name| !tools.contains(*name)).map(|name| match name.len() % 2 {
                    0 => json!(name),
                    _ => json!({"agent": name, "timeout": name.len()}),
                }).collect::<Vec<_>>(),
                "approval": approval,
            });
            if let Some((name, about, schema, processed)) = output {
                if processed {
                    definition["processOutput"] = json!(format!("x ${{{name}}} $${{y}}"));
                }
                definition["outputConfig"] = json!({"outputName": name, "description": about, "schema": schema});
            }
            if let Some(rounds) = rounds {
                definition["flow_type"] = json!("loop");
                definition["max_iterations"] = json!(rounds);
            }
            definition
        },
    )
}

/// A flow of steps.
fn flowing() -> impl Strategy<Value = Value> {
    let step = (
        name(),
        name(),
        prop::collection::btree_map(text(), text(), 0..3),
        any::<bool>(),
    );
    let rounds = proptest::option::of(1..i32::MAX);
    (inputs(), prop::collection::vec(step, 1..4), rounds).prop_map(|(inputs, given, rounds)| {
        let mut steps: Vec<Value> = Vec::new();
        let mut names: Vec<String> = inputs.keys().cloned().collect();
        for (name, agent, mut input, short) in given {
            let own = if short { agent.clone() } else { name };
            if names.contains(&own) {
                continue;
            }
            if let (Some(known), Some(template)) = (names.last(), input.values_mut().next()) {
                template.push_str(&format!(" ${{{known}}}"));
            }
            steps.push(if short {
                json!(agent)
            } else {
                json!({"name": own, "agent": agent, "input": input})
            });
            names.push(own);
        }
        if steps.is_empty() {
            steps.push(json!({"name": "only-this-one", "agent": "a"}));
        }
        let mut definition = json!({"inputConfig": {"inputs": inputs}, "steps": steps, "flow_type": "sequential"});
        if let Some(rounds) = rounds {
            definition["flow_type"] = json!("loop");
            definition["max_iterations"] = json!(rounds);
        }
        definition
    })
}

/// Any definition, with nulls for omitted fields.
pub(crate) fn definition() -> impl Strategy<Value = Value> {
    let rest = (name(), proptest::option::of(text()), text(), limits());
    (prop_oneof![3 => working().boxed(), 1 => flowing().boxed()], rest).prop_map(
        |(mut definition, (name, title, about, limits))| {
            definition["name"] = json!(name);
            definition["displayName"] = json!(title);
            definition["description"] = json!(about);
            definition["runConfig"] = limits;
            definition
        },
    )
}
