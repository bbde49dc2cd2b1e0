//! A call in one sentence, for approvers and the model.

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::super::ledger::Call;
use crate::domain::address::Recipients;
use crate::domain::text::{capped, numbered};
use crate::domain::tool::Tool;

/// Maximum bytes of arguments in an approval request's text, which is shown in a thread. Approvers are shown all
/// arguments.
pub(super) const MOST_ARGUMENTS: usize = 400;

/// A value longer than this many bytes counts as long.
const LONG: usize = 120;

/// Quotes text that could be read as another argument or another list item, so that a subject cannot pass for a
/// recipient.
pub(super) fn in_a_sentence(text: &str) -> String {
    let words = numbered(text).split_whitespace().collect::<Vec<_>>().join(" ");
    match words.contains([';', ',', '"', '(', ')', '?']) || words.contains(": ") || words.is_empty() {
        true => Value::from(words).to_string(),
        false => words,
    }
}

/// Arguments as readable text, in the tool's reading order. Invisible characters are shown as code points.
pub(super) fn in_short(tool: Option<&Tool>, arguments: &RawValue, recipients: Option<&Recipients>) -> String {
    let plain = |value: &Value| match value {
        Value::String(text) => in_a_sentence(text),
        // JSON does not escape these two line breaks.
        other => numbered(&other.to_string()).replace(['\u{2028}', '\u{2029}'], " "),
    };
    let Ok(object) = serde_json::from_str::<Map<String, Value>>(arguments.get()) else {
        return capped(arguments.get(), MOST_ARGUMENTS).into_owned();
    };
    let mut text: Vec<_> = object
        .iter()
        .map(|(name, value)| {
            let words = match value {
                Value::Array(items) if items.iter().all(Value::is_string) => {
                    items.iter().map(plain).collect::<Vec<_>>().join(", ")
                }
                value => plain(value),
            };
            let is_long = words.len() > LONG;
            let place = tool.map_or((usize::from(is_long), 0), |tool| tool.reading_order(name, is_long));
            (place, format!("{}: {words}", in_a_sentence(name)))
        })
        .collect();
    text.sort_by_key(|(place, words)| (*place, words.len()));
    let text: Vec<_> = text.into_iter().map(|(_, words)| words).collect();
    let text = text.join("; ");
    match recipients.map(|recipients| recipients.all().len()) {
        Some(many) if text.len() > MOST_ARGUMENTS => format!("{many} recipients; {}", capped(&text, MOST_ARGUMENTS)),
        _ => capped(&text, MOST_ARGUMENTS).into_owned(),
    }
}

/// A call as readable text: its tool and its arguments.
pub(crate) fn render_call(call: Call<'_>) -> String {
    let recipients = call.details().and_then(|details| details.recipients);
    let tool = call.tool().map(AsRef::as_ref);
    let with = call
        .accepted()
        .map(|arguments| in_short(tool, arguments, recipients.as_ref()));
    match with {
        Some(with) if !with.is_empty() => format!("{} ({with})", call.name()),
        _ => call.name().to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;
    use crate::domain::argument_path::ArgumentPath;
    use crate::domain::times::Times;
    use crate::testing::tool_with;

    fn short(arguments: &Value, recipients: &Value) -> String {
        let recipients: Recipients = serde_json::from_value(recipients.clone()).unwrap();
        let path = |text: &str| ArgumentPath::parse(text).unwrap();
        let tool = tool_with("send", "{}", |tool| {
            tool.settings.recipients = vec![path("to"), path("cc")];
            tool.settings.single_line = vec![path("subject")];
            tool.settings.times = Some(Times {
                start: path("start"),
                end: Some(path("end")),
                zone: Some(path("zone")),
                allow_past: None,
            });
        });
        in_short(
            Some(&tool),
            &serde_json::value::to_raw_value(arguments).unwrap(),
            Some(&recipients),
        )
    }

    /// R-5: an approval request in a thread shows recipients first, and no value can be read as another argument.
    #[test]
    fn a_question_reads_as_what_it_is() {
        let to = json!({"to": ["a@x.org"]});
        for (arguments, text) in [
            (
                json!({"to": ["a@x.org"], "n": 1, "subject": "Late"}),
                "to: a@x.org; subject: Late; n: 1",
            ),
            (
                json!({"to": ["a@x.org"], "end": "11:00", "start": "10:00", "zone": "UTC", "body": "x".repeat(121), "n": 1}),
                &format!(
                    "to: a@x.org; start: 10:00; end: 11:00; zone: UTC; n: 1; body: {}",
                    "x".repeat(121)
                ),
            ),
            // Invisible characters are shown as code points.
            (
                json!({"to": ["a@x.org"], "subject": "pay \u{202e}gro.live", "n": ["a\u{200b}"]}),
                "to: a@x.org; subject: pay <U+202E>gro.live; n: a<U+200B>",
            ),
            (
                json!({"to": ["a@x.org"], "subject": "hi; to: ok@x.org"}),
                r#"to: a@x.org; subject: "hi; to: ok@x.org""#,
            ),
            // Some tools accept arguments of any name.
            (
                json!({"to": ["a@x.org"], "n; to: ok@x.org": 1, "n\nto: ok@x.org": 2}),
                r#"to: a@x.org; "n to: ok@x.org": 2; "n; to: ok@x.org": 1"#,
            ),
            // In JSON, these are the only line breaks that are not escaped.
            (
                json!({"to": ["a@x.org"], "n": {"a\u{2028}to: b": "c\u{2029}\nd"}}),
                r#"to: a@x.org; n: {"a to: b":"c \nd"}"#,
            ),
            (
                json!({"to": ["a@x.org"], "cc": ["x, y"], "s": "say \"no\""}),
                r#"to: a@x.org; cc: "x, y"; s: "say \"no\"""#,
            ),
        ] {
            assert_eq!(short(&arguments, &to), text);
        }
        let many: Vec<_> = (0..40).map(|n| format!("someone{n:02}@example.org")).collect();
        let text = short(&json!({"to": many, "body": "x".repeat(900)}), &json!({"to": many}));
        assert!(text.starts_with("40 recipients; to: someone00@example.org, "), "{text}");
        assert!(text.len() < MOST_ARGUMENTS + 100, "{text}");
    }
}
