//! What of a tool's result is evidence: text that a person would read, in words that the model did not write itself.
//!
//! A quote counts if it occurs, in whole words, in one line of a text of the result. Keys, numbers, truth values, labels
//! and ids are the envelope of a result. A quote of which every word occurs in the call's arguments is the model's own.

use std::collections::BTreeSet;

use serde_json::Value;

/// The least letters and digits of a quote.
pub const SHORTEST: usize = 8;
/// The least letters among them: digits alone are a number or a time.
const LETTERS: usize = 3;
/// Fields that hold text even if it is a single word.
const TEXTS: [&str; 5] = ["stdout", "stderr", "output", "text", "content"];

/// Checks whether the result of a call with these arguments shows what is quoted.
///
/// # Errors
/// Why not, for the model. `step` is the call's step.
pub fn check(result: &str, arguments: &str, quote: &str, step: u32) -> Result<(), String> {
    let result = opened(result);
    if let Some(why) = unfinished(&result) {
        return Err(format!("the command of step {step} {why}, so it shows nothing"));
    }
    let quote = quote.trim();
    let mut texts = Vec::new();
    collect(&result, "text", &mut texts);
    if !texts
        .iter()
        .flat_map(|text| text.lines())
        .any(|line| occurs(line, quote))
    {
        return Err(format!(
            "the quote {quote:?} does not occur in a line of text of the result of step {step}; copy whole words from \
             one line of it literally, or say that the task is not complete. Keys, numbers, true, false, null, labels \
             and ids are no text"
        ));
    }
    match is_telling(quote, &own_words(arguments)) {
        true => Ok(()),
        false => Err(format!(
            "the quote {quote:?} shows too little: at least {SHORTEST} letters or digits are needed, {LETTERS} of them \
             letters, and a word that the call's own arguments do not have"
        )),
    }
}

/// The first line of a result that can be quoted.
pub fn quotable(result: &str, arguments: &str) -> Option<String> {
    let (result, own) = (opened(result), own_words(arguments));
    let mut texts = Vec::new();
    collect(&result, "text", &mut texts);
    let mut lines = texts.iter().flat_map(|text| text.lines()).map(str::trim);
    lines.find(|line| is_telling(line, &own)).map(str::to_owned)
}

/// The result as data. A text that is JSON as a whole is read as that, and so is each block of a list of texts.
fn opened(result: &str) -> Value {
    match serde_json::from_str(result).unwrap_or_default() {
        Value::Array(blocks) => Value::Array(blocks.into_iter().map(block).collect()),
        // Both forms of a result: text, and structure.
        Value::Object(mut fields) if fields.len() == 2 && fields.contains_key("structuredContent") => {
            let text = fields.remove("content").unwrap_or_default();
            let text = opened(&text.to_string());
            Value::Array(vec![text, Value::Object(fields)])
        }
        // How some servers wrap any result.
        Value::Object(mut fields) if fields.len() == 1 && fields.contains_key("result") => {
            block(fields.remove("result").unwrap_or_default())
        }
        other => block(other),
    }
}

fn block(value: Value) -> Value {
    match &value {
        Value::String(text) if text.trim_start().starts_with(['{', '[']) => serde_json::from_str(text).unwrap_or(value),
        _ => value,
    }
}

/// How a command ended, unless it came to its own end with exit code 0. What was cut short has no exit code, or one of its
/// own choice.
fn unfinished(result: &Value) -> Option<String> {
    let fields = match result {
        Value::Array(parts) => return parts.iter().find_map(unfinished),
        Value::Object(fields) => fields,
        _ => return None,
    };
    let field = |names: &[&str]| {
        let is_named = |key: &str| names.contains(&&*key.replace(['_', '-'], "").to_ascii_lowercase());
        fields.iter().find(|(key, _)| is_named(key)).map(|(_, value)| value)
    };
    if field(&["timedout"]) == Some(&Value::Bool(true)) || field(&["interrupted"]) == Some(&Value::Bool(true)) {
        return Some("was cut short".to_owned());
    }
    match field(&["exitcode", "exitstatus", "returncode"]) {
        Some(Value::Null) => Some("did not end by itself".to_owned()),
        Some(code) if code.as_f64() != Some(0.0) && code != "0" => Some(format!("ended with exit code {code}")),
        _ => fields.values().find_map(unfinished),
    }
}

/// Collects the texts below a field. A single word elsewhere than in a field for text is a label or an id.
fn collect<'a>(value: &'a Value, field: &str, texts: &mut Vec<&'a str>) {
    let is_label = |text: &str| text.chars().all(|c| is_of_word(c) || c == '-') && !TEXTS.contains(&field);
    match value {
        Value::String(text) if !is_label(text) && !field.to_ascii_lowercase().ends_with("type") => texts.push(text),
        Value::Array(items) => items.iter().for_each(|item| collect(item, field, texts)),
        Value::Object(fields) => fields.iter().for_each(|(name, value)| collect(value, name, texts)),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Does the quote occur in the text, not as a part of longer words?
fn occurs(text: &str, quote: &str) -> bool {
    let joined = |a: Option<char>, b: Option<char>| a.is_some_and(is_of_word) && b.is_some_and(is_of_word);
    text.match_indices(quote).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + quote.len()..]);
        !joined(before.chars().next_back(), quote.chars().next())
            && !joined(quote.chars().next_back(), after.chars().next())
    })
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase)
}

/// The words in a call's arguments.
fn own_words(arguments: &str) -> BTreeSet<String> {
    fn add(value: &Value, all: &mut BTreeSet<String>) {
        match value {
            Value::String(text) => all.extend(words(text)),
            Value::Array(items) => items.iter().for_each(|item| add(item, all)),
            Value::Object(fields) => fields.values().for_each(|value| add(value, all)),
            other => all.extend(words(&other.to_string())),
        }
    }
    let mut all = BTreeSet::new();
    add(&serde_json::from_str(arguments).unwrap_or_default(), &mut all);
    all
}

fn is_telling(quote: &str, own: &BTreeSet<String>) -> bool {
    let count = |counts: fn(char) -> bool| quote.chars().filter(|c| counts(*c)).count();
    let is_new = |word: String| !word.is_empty() && !own.contains(&word);
    count(char::is_alphanumeric) >= SHORTEST && count(char::is_alphabetic) >= LETTERS && words(quote).any(is_new)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn says(result: &Value, arguments: &Value, quote: &str) -> bool {
        check(&result.to_string(), &arguments.to_string(), quote, 1).is_ok()
    }

    fn command() -> Value {
        json!({
            "stdout": "running 118 tests\nall 118 tests passed\n{\"failed\": \"none of them\"}\n    \n",
            "stderr": "warning: deprecated_call in src/weeks.rs",
            "exitCode": 0, "signal": null, "timedOut": false, "interrupted": false, "truncated": false,
            "sandbox": "landlock_v4", "durationMs": 12_345_678, "id": "0199c4e0-1f3a-7c55-8001-aabbccddeeff",
            "contentType": "text/html; charset=utf-8", "at": "2026-11-28T10:11:12Z", "container": "3f1c9ab53f1c9ab5",
        })
    }

    /// P-303: forgeries are quotes of what no person reads in a result, or of what the model wrote itself.
    #[test]
    fn a_quote_counts_only_in_whole_words_of_a_text_that_the_model_did_not_write() {
        let (result, none) = (command(), json!({}));
        for quote in [
            "all 118 tests passed",
            "118 tests passed",
            "  118 tests passed ",
            "{\"failed\": \"none of them\"}",
            "warning: deprecated_call",
        ] {
            assert!(says(&result, &none, quote), "{quote}");
        }
        for quote in [
            "\"timedOut\":false",
            "timedOut",
            "exitCode",
            "\"exitCode\":0",
            "\"exitCode\": 0",
            "null",
            "true",
            "false",
            "interrupted",
            "durationMs",
            "12345678",
            "    ",
            "",
            "....----",
            "118",
            "landlock_v4",
            "0199c4e0-1f3a-7c55-8001-aabbccddeeff",
            "3f1c9ab53f1c9ab5",
            "text/html; charset=utf-8",
            "2026-11-28T10:11:12Z",
            "running 118 tests\nall",
            "118 tests pass",
            "18 tests passed",
            "ll 118 tests passed",
            "deprecated in src",
            "warning: deprecated",
            "of them\"}\nwarning: deprecated_call",
            "119 tests passed",
        ] {
            assert!(!says(&result, &none, quote), "{quote}");
        }
        // A number and a label remain what they are in a result that is one text.
        for (result, quote) in [
            (json!("all 118 tests passed"), true),
            (json!(["a", "all 118 tests passed"]), true),
            (json!("12345678"), false),
            (json!(["12345678"]), false),
            (json!({"test": "all 118 tests passed"}), true),
            (json!({"all 118 tests passed": true}), false),
        ] {
            let given = if result.to_string().contains("tests") {
                "all 118 tests passed"
            } else {
                "12345678"
            };
            assert_eq!(says(&result, &none, given), quote, "{result}");
        }
        assert!(says(&json!({"stdout": "authenticated"}), &none, "authenticated"));
        assert!(!says(&json!({"state": "authenticated"}), &none, "authenticated"));
        assert!(says(
            &json!({"stdout": "週の番号を受け取れる"}),
            &none,
            "週の番号を受け取れる"
        ));
    }

    /// The same result as one text, as text blocks, and beside its structure.
    #[test]
    fn a_result_that_is_json_in_a_text_has_the_same_evidence() {
        let (whole, none) = (command(), json!({}));
        let mut failed = command();
        failed["exitCode"] = json!(1);
        let forms = |of: &Value| {
            let text = of.to_string();
            [
                of.clone(),
                json!(text),
                json!([text]),
                json!({"content": text, "structuredContent": {"ok": true}}),
                json!({"content": [text], "structuredContent": {"ok": true}}),
                json!({"content": "In short.", "structuredContent": of}),
                json!({"result": of}),
                json!({"result": text}),
                json!({"runs": [of]}),
            ]
        };
        for result in forms(&whole) {
            assert!(says(&result, &none, "all 118 tests passed"), "{result}");
            for forged in ["\"timedOut\":false", "exitCode\":0", "interrupted", "landlock_v4"] {
                assert!(!says(&result, &none, forged), "{forged}: {result}");
            }
        }
        for result in forms(&failed) {
            assert!(!says(&result, &none, "all 118 tests passed"), "{result}");
        }
    }

    #[test]
    fn a_command_that_did_not_end_well_shows_nothing() {
        for (field, value) in [
            ("exitCode", json!(1)),
            ("exitCode", json!(null)),
            ("exit_code", json!(-9)),
            ("exitStatus", json!("2")),
            ("returncode", json!(127)),
            ("timedOut", json!(true)),
            ("timed_out", json!(true)),
            ("interrupted", json!(true)),
        ] {
            let result = json!({"stdout": "all 118 tests passed", field: value});
            assert!(!says(&result, &json!({}), "all 118 tests passed"), "{result}");
        }
        for code in [json!(0), json!(0.0), json!("0")] {
            let result = json!({"stdout": "all 118 tests passed", "exitCode": code});
            assert!(says(&result, &json!({}), "all 118 tests passed"), "{result}");
        }
    }

    /// A command can print anything.
    #[test]
    fn words_of_the_calls_own_arguments_show_nothing() {
        let result = json!({"stdout": "all 118 tests passed\n", "exitCode": 0});
        for command in [
            "echo 'all 118 tests passed'",
            "echo all 118; echo tests passed",
            "printf 'all %s tests %s' 118 PASSED | tr A-Z a-z",
            "cat <<E\nall 118 tests\npassed\nE",
        ] {
            let arguments = json!({"command": command, "env": [{"n": 118}]});
            assert!(!says(&result, &arguments, "all 118 tests passed"), "{command}");
        }
        assert!(says(
            &result,
            &json!({"command": "make test", "n": 118}),
            "all 118 tests passed"
        ));
        // What GitHub adds to the title that it was given.
        let made = json!({"issue": {"number": 7, "title": "Accept ISO weeks", "htmlUrl": "https://github.com/acme/dates/issues/7"}});
        let arguments = json!({"owner": "acme", "repo": "dates", "title": "Accept ISO weeks"});
        assert!(!says(&made, &arguments, "Accept ISO weeks"));
        assert!(says(&made, &arguments, "https://github.com/acme/dates/issues/7"));
    }

    #[test]
    fn the_first_line_that_can_be_quoted_can_be_quoted() {
        let (result, arguments) = (command(), json!({"command": "make running tests"}));
        let quote = quotable(&result.to_string(), &arguments.to_string()).unwrap();
        assert!(says(&result, &arguments, &quote));
        assert_eq!(quotable(r#"{"pullRequests": [], "truncated": false}"#, "{}"), None);
    }
}
