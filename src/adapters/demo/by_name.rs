//! A call that the message asks for by name: `call order_article {"article": "tea"}`. With it, one's own server, policy
//! and approvals can be tried without a key.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};

use super::conversation::Conversation;
use super::turn::Move;

/// The longest result that an answer quotes, in characters.
const QUOTED: usize = 500;

/// The next move, if the newest message asks for a call by name. `offered` says which functions are available.
pub(super) fn next(conversation: &Conversation<'_>, offered: &dyn Fn(&str) -> bool) -> Option<Move> {
    let (name, arguments) = asked(conversation.message)?;
    let done = conversation.done.iter().rfind(|done| done.name == name);
    Some(match done.map(|done| &done.outcome) {
        Some(Ok(result)) => {
            let result: String = result.to_string().chars().take(QUOTED).collect();
            Move::say(format!("{name} answered: {result}"))
        }
        Some(Err(failure)) => Move::say(format!("{name} did not do it: {}", failure.message)),
        None if offered(name) => Move::call(name, Value::Object(arguments)),
        None => Move::say(format!("I have no tool {name}.")),
    })
}

/// The function and its arguments.
fn asked(message: &str) -> Option<(&str, Map<String, Value>)> {
    static CALL: LazyLock<Regex> = LazyLock::new(|| super::pattern(r"(?is)^call\s+([\w.-]+)\s*(\{.*)$"));
    let (_, [name, arguments]) = CALL.captures(message)?.extract();
    Some((name, serde_json::from_str(arguments).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_asked_for_by_its_name_and_an_object() {
        for asks in [
            r#"call order {"n": 1}"#,
            r#"Call order{"n": 1}"#,
            "call order\n{\"n\":\n1}",
        ] {
            let (name, arguments) = asked(asks).unwrap_or_else(|| panic!("{asks}"));
            assert_eq!((name, &arguments["n"]), ("order", &Value::from(1)));
        }
        for other in [
            "call mom",
            "call",
            "add a task to call mom {now}",
            "call order {n: 1}",
            r#"call order [1]"#,
            r#"call my mom {"n": 1}"#,
            r#"please call order {"n": 1}"#,
        ] {
            assert!(asked(other).is_none(), "{other}");
        }
    }
}
