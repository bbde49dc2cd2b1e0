//! The history of the conversation, as the next message carries it.

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::surfaces::chat::request::{MAX_HISTORY, MAX_HISTORY_BYTES};

/// Messages and answers, oldest first. When they exceed what a request may carry, the oldest are dropped.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The conversation's id, from the first answer on.
    conversation: Option<String>,
    said: VecDeque<(String, String)>,
}

impl History {
    /// Keeps a message and its decision.
    pub(super) fn keep(&mut self, message: &str, decision: &Value) {
        let text = |field: &str| decision.get(field).and_then(Value::as_str).map(str::to_owned);
        self.conversation = text("conversation_id").or_else(|| self.conversation.take());
        self.said
            .push_back((message.to_owned(), text("response").unwrap_or_default()));
        let bytes = |said: &VecDeque<(String, String)>| said.iter().map(|(a, b)| a.len() + b.len()).sum::<usize>();
        while self.said.len() * 2 > MAX_HISTORY || bytes(&self.said) > MAX_HISTORY_BYTES {
            self.said.pop_front();
        }
    }

    /// Adds the history to a request.
    pub(super) fn add_to(&self, body: &mut Value) {
        if let Some(conversation) = &self.conversation {
            body["conversation_id"] = conversation.as_str().into();
        }
        let lines = self.said.iter().flat_map(|(message, answer)| {
            [
                json!({"role": "user", "content": message}),
                json!({"role": "assistant", "content": answer}),
            ]
        });
        body["history"] = lines.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::surfaces::chat::request::ChatRequest;

    #[test]
    fn a_long_conversation_stays_within_what_a_request_may_carry() {
        let mut history = History::default();
        for n in 0..150 {
            let words = "x".repeat(3000);
            history.keep(&format!("{n}"), &json!({"conversation_id": "c", "response": words}));
        }
        let mut body = json!({"message": "hello", "user_id": "me"});
        history.add_to(&mut body);
        let request = ChatRequest::from_json(body.to_string().as_bytes()).unwrap();
        assert_eq!(request.over_limit(), None);
        assert_eq!(request.history.len() % 2, 0);
        assert!(request.history.len() > 100);
        assert_eq!(request.history[request.history.len() - 2].1, "149");
        assert_eq!(request.conversation.unwrap().as_str(), "c");
    }
}
