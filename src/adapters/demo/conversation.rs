//! Reads a model request in the form that the demo model needs.

use std::sync::LazyLock;

use chrono::NaiveDate;
use regex::Regex;
use serde::Deserialize;
use serde_json::Value;

use crate::domain::journal::{CallFailure, Speaker};
use crate::ports::model::Content;

/// One conversation, parsed.
pub(super) struct Conversation<'a> {
    /// The text of the newest message.
    pub(super) message: &'a str,
    /// The date from the message's header.
    pub(super) today: Option<NaiveDate>,
    /// The earlier messages, oldest first.
    pub(super) history: Vec<(Speaker, &'a str)>,
    /// Calls made for this message that have answers, in order.
    pub(super) done: Vec<Done<'a>>,
    /// Turns of the model for this message.
    pub(super) turns: usize,
}

/// A call with its answer.
pub(super) struct Done<'a> {
    pub(super) name: &'a str,
    pub(super) arguments: Value,
    pub(super) outcome: Result<Value, &'a CallFailure>,
}

impl<'a> Conversation<'a> {
    pub(super) fn read(contents: &'a [Content<'a>]) -> Self {
        let at = contents
            .iter()
            .rposition(|content| matches!(content, Content::Text(Speaker::User, _)));
        let (before, since) = contents.split_at(at.unwrap_or(0));
        let history = before.iter().filter_map(|content| match content {
            Content::Text(speaker, text) => Some((*speaker, without_header(text).1)),
            Content::Turn(..) | Content::Responses(_) => None,
        });
        let (today, message) = match since.first() {
            Some(Content::Text(_, text)) => without_header(text),
            _ => (None, ""),
        };
        Self {
            message,
            today,
            history: history.collect(),
            done: done(since),
            turns: since
                .iter()
                .filter(|content| matches!(content, Content::Turn(..)))
                .count(),
        }
    }
}

/// Removes the header lines above the message (`Today is Friday, 2026-11-20 …`, a blank line).
fn without_header(text: &str) -> (Option<NaiveDate>, &str) {
    static DAY: LazyLock<Regex> = LazyLock::new(|| super::pattern(r"^Today is [^\n]*?(\d{4}-\d{2}-\d{2})"));
    let Some(day) = DAY.captures(text) else {
        return (None, text.trim());
    };
    let today = day[1].parse().ok();
    let message = text.split_once("\n\n").map_or("", |(_, message)| message);
    (today, message.trim())
}

#[derive(Deserialize)]
struct Turn {
    #[serde(default)]
    parts: Vec<Part>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part {
    function_call: Option<Call>,
}

#[derive(Deserialize)]
struct Call {
    #[serde(default)]
    args: Value,
}

fn done<'a>(since: &'a [Content<'a>]) -> Vec<Done<'a>> {
    let mut done = Vec::new();
    let mut calls = Vec::new();
    for content in since {
        match content {
            Content::Turn(turn, _) => {
                // Another model's turn may contain parts that the demo model does not know. They are not calls.
                let parts = serde_json::from_str::<Turn>(turn.get())
                    .map(|turn| turn.parts)
                    .unwrap_or_default();
                calls = parts.into_iter().filter_map(|part| part.function_call).collect();
            }
            Content::Responses(responses) => {
                let mut arguments = std::mem::take(&mut calls).into_iter().map(|call: Call| call.args);
                for response in *responses {
                    done.push(Done {
                        name: response.name,
                        arguments: arguments.next().unwrap_or_default(),
                        outcome: response
                            .outcome
                            .map(|data| serde_json::from_str(data.get()).unwrap_or_default()),
                    });
                }
            }
            Content::Text(..) => {}
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::canonical;
    use crate::ports::model::FunctionResponse;
    use serde_json::json;

    #[test]
    fn the_message_is_read_apart_from_its_context() {
        let text = "Today is Friday, 2026-11-20 (time zone UTC).\nUnavailable right now: x. Say so.\n\nhi\n\nthere";
        let contents = [
            Content::Text(Speaker::User, "before"),
            Content::Text(Speaker::User, text),
        ];
        let conversation = Conversation::read(&contents);
        assert_eq!(conversation.message, "hi\n\nthere");
        assert_eq!(conversation.today, NaiveDate::from_ymd_opt(2026, 11, 20));
        assert_eq!(conversation.history.len(), 1);
        assert_eq!(
            Conversation::read(&[Content::Text(Speaker::User, " bare ")]).message,
            "bare"
        );
    }

    #[test]
    fn calls_meet_their_answers_in_order() {
        let turn = json!({"role": "model", "parts": [
            {"text": "a"}, {"functionCall": {"name": "x", "args": {"n": 1}}}, {"functionCall": {"name": "y"}}]});
        let (turn, data) = (canonical::to_raw(&turn), canonical::to_raw(&json!({"ok": true})));
        let answer = |name| FunctionResponse {
            id: None,
            name,
            outcome: Ok(&data),
        };
        let answers = [answer("x"), answer("y")];
        let contents = [
            Content::Text(Speaker::User, "go"),
            Content::Turn(&turn, None),
            Content::Responses(&answers),
        ];
        let conversation = Conversation::read(&contents);
        let read: Vec<_> = conversation
            .done
            .iter()
            .map(|done| (done.name, done.arguments.clone()))
            .collect();
        assert_eq!(read, [("x", json!({"n": 1})), ("y", Value::Null)]);
        assert_eq!(conversation.turns, 1);
    }
}
