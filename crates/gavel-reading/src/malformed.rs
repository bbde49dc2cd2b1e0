//! Errors in JSON text, in gavel's own words. A parser's words name its Rust types and reach no caller and no model.

use serde_json::error::Category;

/// Describes an error. For text that is not JSON: what and where (`a comma is missing (line 2, column 7)`). For JSON
/// with unexpected members: which members.
pub fn words(error: &serde_json::Error) -> String {
    match error.classify() {
        Category::Data => members(said(&error.to_string())),
        Category::Eof | Category::Syntax | Category::Io => {
            format!("{} (line {}, column {})", syntax(error), error.line(), error.column())
        }
    }
}

/// Why a text is not JSON, without the position.
pub fn syntax(error: &serde_json::Error) -> &'static str {
    if error.is_eof() {
        return "it ends too early";
    }
    match said(&error.to_string()) {
        "expected `:`" => "a colon is missing",
        "expected `,` or `]`" => "a comma or `]` is missing",
        "expected `,` or `}`" => "a comma or `}` is missing",
        "expected value" => "a value is missing",
        "expected ident" => "a word other than true, false or null",
        "key must be a string" => "a key without double quotes",
        "trailing comma" => "a trailing comma",
        "trailing characters" => "extra text after the end",
        "invalid escape" => "an invalid escape",
        "lone leading surrogate in hex escape" | "unexpected end of hex escape" => {
            "half of a surrogate pair in an escape"
        }
        "invalid unicode code point" => "bytes that are not UTF-8",
        "invalid number" => "an invalid number",
        "number out of range" => "a number that is too large",
        "recursion limit exceeded" => "it nests too deeply",
        control if control.starts_with("control character") => "a control character in a text, without an escape",
        _ => "it is not JSON",
    }
}

/// The message without the position.
fn said(whole: &str) -> &str {
    whole.rsplit_once(" at line ").map_or(whole, |(said, _)| said)
}

/// Rewrites serde's messages about members. Messages of gavel's own types remain unchanged.
fn members(said: &str) -> String {
    let name = said.split('`').nth(1).unwrap_or_default();
    let begins = |words: &str| said.strip_prefix(words);
    if begins("missing field ").is_some() {
        return format!("`{name}` is missing");
    }
    if begins("unknown field ").is_some() {
        return format!("`{name}` is not a known field");
    }
    if begins("unknown variant ").is_some() {
        return format!("`{name}` is not one of the allowed values");
    }
    if begins("duplicate field ").is_some() {
        return format!("`{name}` is given twice");
    }
    let unfit = ["invalid type: ", "invalid value: ", "invalid length "];
    let Some((found, expected)) = unfit
        .iter()
        .find_map(|words| begins(words))
        .and_then(|rest| rest.rsplit_once(", expected "))
    else {
        return said.to_owned();
    };
    format!("found {}, where {} is allowed", of_json(found), of_json(expected))
}

/// The JSON name of a type.
fn of_json(kind: &str) -> &str {
    match kind {
        "map" | "a map" => "an object",
        "sequence" | "a sequence" => "an array",
        "unit" => "null",
        "a borrowed string" | "string or map" | "variant identifier" => "a string",
        _ if ["struct ", "tuple struct ", "internally tagged enum "]
            .iter()
            .any(|ours| kind.starts_with(ours)) =>
        {
            "an object"
        }
        _ if kind.starts_with("enum ") => "a string",
        _ => kind,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Given {
        name: String,
        block: Option<Block>,
        kind: Option<Kind>,
        pair: Option<(u8, u8)>,
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code)]
    struct Block {
        text: bool,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Kind {
        Good,
    }

    #[test]
    fn what_is_malformed_is_named_without_a_parsers_words() {
        for (text, says) in [
            ("{}", "`name` is missing"),
            (r#"{"name": 7}"#, "found integer `7`, where a string is allowed"),
            (r#"{"name": null}"#, "found null, where a string is allowed"),
            (r#"{"name": {}}"#, "found an object, where a string is allowed"),
            (r#"{"name": "a", "name": "b"}"#, "`name` is given twice"),
            (r#"{"name": "a", "more": 1}"#, "`more` is not a known field"),
            (
                r#"{"name": "a", "block": 7}"#,
                "found integer `7`, where an object is allowed",
            ),
            (
                r#"{"name": "a", "block": {"text": []}}"#,
                "found an array, where a boolean is allowed",
            ),
            (
                r#"{"name": "a", "kind": "bad"}"#,
                "`bad` is not one of the allowed values",
            ),
            (
                r#"{"name": "a", "pair": [1]}"#,
                "found 1, where a tuple of size 2 is allowed",
            ),
            ("", "it ends too early (line 1, column 0)"),
            ("{", "it ends too early (line 1, column 1)"),
            ("{\n\"name\" 7}", "a colon is missing (line 2, column 8)"),
            (r#"{"name": }"#, "a value is missing (line 1, column 10)"),
            (r#"{"name": "a" "b"}"#, "a comma or `}` is missing (line 1, column 14)"),
            (r#"{"name": "a"} x"#, "extra text after the end (line 1, column 15)"),
            ("{a: 1}", "a key without double quotes (line 1, column 2)"),
            (r#"{"name": "\x"}"#, "an invalid escape (line 1, column 12)"),
            (
                r#"{"name": tru}"#,
                "a word other than true, false or null (line 1, column 13)",
            ),
        ] {
            assert_eq!(words(&serde_json::from_str::<Given>(text).unwrap_err()), says, "{text}");
        }
    }
}
