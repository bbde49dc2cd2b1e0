//! Reads a model request in the form that this module's models need.

use crate::domain::journal::Speaker;
use crate::ports::model::{Content, FunctionResponse};

/// The newest message, and what was done for it.
pub(super) struct Conversation<'a> {
    pub(super) message: &'a str,
    /// The answers to the calls of this message, in order.
    pub(super) done: Vec<&'a FunctionResponse<'a>>,
    /// Turns of the model for this message.
    pub(super) turns: usize,
}

impl<'a> Conversation<'a> {
    pub(super) fn read(contents: &'a [Content<'a>]) -> Self {
        let newest = contents
            .iter()
            .rposition(|content| matches!(content, Content::Text(Speaker::User, _)));
        let mut conversation = Self {
            message: "",
            done: Vec::new(),
            turns: 0,
        };
        for content in &contents[newest.unwrap_or(0)..] {
            match content {
                Content::Text(Speaker::User, text) => conversation.message = without_header(text),
                Content::Text(..) => {}
                Content::Turn(..) => conversation.turns += 1,
                Content::Responses(responses) => conversation.done.extend(*responses),
            }
        }
        conversation
    }
}

/// Removes the header lines above the message (`Today is Friday, 2026-11-20 …`, a blank line).
fn without_header(text: &str) -> &str {
    let message = match text.split_once("\n\n") {
        Some((header, message)) if header.starts_with("Today is ") => message,
        _ => text,
    };
    message.trim()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::canonical;
    use serde_json::json;

    #[test]
    fn the_message_is_read_apart_from_its_context() {
        let text = "Today is Friday, 2026-11-20 (time zone UTC).\nUnavailable right now: x. Say so.\n\nhi\n\nthere";
        let (turn, data) = (canonical::to_raw(&json!({})), canonical::to_raw(&json!({"ok": true})));
        let answers = ["x", "y"].map(|name| FunctionResponse {
            id: None,
            name,
            outcome: Ok(&data),
        });
        let contents = [
            Content::Text(Speaker::User, "before"),
            Content::Turn(&turn, None),
            Content::Text(Speaker::User, text),
            Content::Turn(&turn, None),
            Content::Responses(&answers),
        ];
        let conversation = Conversation::read(&contents);
        let done: Vec<_> = conversation.done.iter().map(|done| done.name).collect();
        assert_eq!(
            (conversation.message, conversation.turns, done.as_slice()),
            ("hi\n\nthere", 1, &["x", "y"][..])
        );
        let bare = [Content::Text(Speaker::User, " bare\n\nmessage ")];
        assert_eq!(Conversation::read(&bare).message, "bare\n\nmessage");
    }
}
