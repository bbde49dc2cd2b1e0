//! Text that is not an answer although the model ended normally: empty text, only invisible characters, or a call
//! written as text (`tool_code` is a function call syntax that some models were trained on).

use crate::domain::text::is_hidden;

/// Labels under which a model writes a call, or its assumed result, as text.
const CALLS: [&str; 5] = ["tool_code", "tool_call", "tool_calls", "tool_output", "tool_outputs"];

/// Why a text is not an answer, for operators. `None` if it may be one.
pub(super) fn why(text: &str) -> Option<&'static str> {
    if text.trim().is_empty() {
        Some("the answer is empty")
    } else if !text.chars().any(is_seen) {
        Some("the answer has only invisible characters")
    } else if is_only_calls(text) {
        Some("the answer is only a function call that the model wrote as text")
    } else {
        None
    }
}

/// The joiners and the blank Braille pattern are invisible on their own.
fn is_seen(c: char) -> bool {
    !c.is_whitespace() && !is_hidden(c) && !matches!(c, '\u{200c}' | '\u{200d}' | '\u{2800}')
}

/// Does it consist only of such calls: fenced, in tags, or after a bare label?
fn is_only_calls(text: &str) -> bool {
    let mut rest = text.trim();
    while !rest.is_empty() {
        let Some(after) = after_call(rest) else {
            return false;
        };
        rest = after.trim_start();
    }
    true
}

/// The text after the call at the beginning.
fn after_call(text: &str) -> Option<&str> {
    let (line, rest) = text.split_once('\n').unwrap_or((text, ""));
    if let Some(label) = line.strip_prefix("```") {
        let end = rest.find("```").map_or(rest.len(), |at| at + "```".len());
        return is_call(label).then(|| &rest[end..]);
    }
    if let Some((label, rest)) = text.strip_prefix('<').and_then(|text| text.split_once('>')) {
        let closing = format!("</{label}>");
        let end = rest.find(&closing).map_or(rest.len(), |at| at + closing.len());
        return is_call(label).then(|| &rest[end..]);
    }
    is_call(line).then_some("")
}

fn is_call(label: &str) -> bool {
    let label = label.trim();
    CALLS.iter().any(|call| label.eq_ignore_ascii_case(call))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_nothing_is_no_answer() {
        for (text, says) in [
            ("", "empty"),
            (" \n\t", "empty"),
            ("\u{200b}", "invisible"),
            ("\u{feff}\n\u{2060} \u{200d}", "invisible"),
            ("\u{3164}\u{2800}", "invisible"),
            ("\u{e0041}\u{e0042}", "invisible"),
            ("```tool_code\nprint(add_task(description='milk'))\n```", "as text"),
            ("\n```TOOL_CODE \nadd_task()\n```\n", "as text"),
            ("```tool_code\nadd_task()", "as text"),
            ("```tool_code\na()\n```\n\n```tool_outputs\n{}\n```", "as text"),
            ("<tool_code>\nadd_task()\n</tool_code>", "as text"),
            ("<tool_call>{\"name\": \"add_task\"}</tool_call>\n", "as text"),
            ("tool_code\nprint(default_api.add_task())", "as text"),
        ] {
            assert!(
                why(text).is_some_and(|why| why.contains(says)),
                "{text:?}: {:?}",
                why(text)
            );
        }
    }

    #[test]
    fn what_says_something_may_be_an_answer() {
        for text in [
            "Done.",
            "👍",
            "\u{200b}Done.",
            "0",
            "```json\n{\"a\": 1}\n```",
            "```\ntool_code\n```",
            "I would run this:\n```tool_code\nadd_task()\n```",
            "```tool_code\nadd_task()\n```\nDone.",
            "tool_code is a label.",
            "<b>tool_code</b>",
        ] {
            assert_eq!(why(text), None, "{text:?}");
        }
    }
}
