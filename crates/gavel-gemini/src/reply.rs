//! The reply to one request, read piece by piece and evaluated at its end.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::api_error::ApiError;
use super::call::Failure;
use super::call::Retry;
use super::content::Pieces;
use super::wire::{self, Count, Response, UsageMetadata};
use crate::domain::decision::Usage;
use crate::domain::family::bare_model;
use crate::domain::journal::{FaultKind, Part};
use crate::domain::surrogates;
use crate::domain::text::is_hidden;
use crate::ports::model::ModelEvent;

/// Receives the text and thoughts of a chunk.
type Tell<'a> = &'a mut dyn FnMut(ModelEvent<'_>);

/// The reply received so far.
#[derive(Default)]
pub(super) struct Reply {
    pieces: Pieces,
    finish: Option<FinishReason>,
    blocked: Option<String>,
    usage: UsageMetadata,
    model: Option<String>,
    token: Option<String>,
    /// It was a stream, which can end early without an error.
    streamed: bool,
}

/// A usable reply: a turn, or the part of a turn that one request returned.
#[derive(Debug)]
pub(super) struct Hop {
    pub(super) pieces: Pieces,
    /// The continuation token, if the turn is not complete.
    pub(super) next: Option<String>,
}

impl Reply {
    /// Reads the body of a unary reply.
    ///
    /// # Errors
    /// It is not a reply, or it is an error.
    pub(super) fn take_whole(&mut self, json: &[u8], oauth: bool) -> Result<(), Failure> {
        self.take(json, oauth, |pieces, content| pieces.take_whole(content))
    }

    /// Reads one chunk of a stream. `tell` receives its text and thoughts.
    ///
    /// # Errors
    /// It is not a chunk, or it is an error.
    pub(super) fn take_chunk(&mut self, json: &[u8], oauth: bool, tell: Tell<'_>) -> Result<(), Failure> {
        self.streamed = true;
        self.take(json, oauth, |pieces, content| pieces.take_chunk(content, tell))
    }

    /// Reads JSON outside of events: an error, a response, or an array of them.
    ///
    /// # Errors
    /// It is none of these, or it is an error.
    pub(super) fn take_bare(&mut self, json: &[u8], oauth: bool, tell: Tell<'_>) -> Result<(), Failure> {
        if json.trim_ascii_start().first() != Some(&b'[') {
            return self.take_chunk(json, oauth, tell);
        }
        let chunks: Vec<&RawValue> = wire::read(json).map_err(Failure::malformed)?;
        chunks
            .into_iter()
            .try_for_each(|chunk| self.take_chunk(chunk.get().as_bytes(), oauth, tell))
    }

    fn take(
        &mut self,
        json: &[u8],
        oauth: bool,
        take: impl FnOnce(&mut Pieces, &RawValue) -> Result<(), String>,
    ) -> Result<(), Failure> {
        // Content that is echoed and recorded as received must be JSON that other parsers accept.
        let json = surrogates::repaired(json);
        let response: Response<'_> = wire::read(&json).map_err(Failure::malformed)?;
        if let Some(error) = response.error {
            return Err(ApiError::of_text(error.get()).into_failure(oauth));
        }
        if let Some(model) = response.model_version.filter(|model| !model.is_empty()) {
            self.model = Some(name_of(&model));
        }
        if let Some(usage) = response.usage_metadata {
            self.note(usage);
        }
        if let Some(reason) = response.prompt_feedback.and_then(|feedback| feedback.block_reason?.0) {
            self.blocked = Some(reason);
        }
        // Only one candidate is requested. If there are more, the first is used.
        let first = |index: Option<Count>| index.is_none_or(|index| index.0 == 0);
        let candidates = response.candidates.unwrap_or_default();
        let Some(candidate) = candidates.into_iter().find(|candidate| first(candidate.index)) else {
            return Ok(());
        };
        if let Some(token) = candidate.continuation_token {
            self.token = Some(token);
        }
        // With server-side tools, several chunks have STOP. Any other reason is kept.
        if let Some(reason) = candidate.finish_reason
            && matches!(self.finish, None | Some(FinishReason::Stop))
        {
            self.finish = Some(reason);
        }
        match candidate.content {
            Some(content) => take(&mut self.pieces, content).map_err(Failure::malformed),
            None => Ok(()),
        }
    }

    /// Counts are running totals, so the latest value wins.
    fn note(&mut self, usage: UsageMetadata) {
        let kept = &mut self.usage;
        for (kept, new) in [
            (&mut kept.prompt_token_count, usage.prompt_token_count),
            (&mut kept.cached_content_token_count, usage.cached_content_token_count),
            (&mut kept.candidates_token_count, usage.candidates_token_count),
            (&mut kept.thoughts_token_count, usage.thoughts_token_count),
            (&mut kept.tool_use_prompt_token_count, usage.tool_use_prompt_token_count),
        ] {
            *kept = new.or(*kept);
        }
        kept.service_tier = usage.service_tier.or(kept.service_tier.take());
    }

    /// Has a text or a call arrived, and not only thoughts?
    pub(super) fn has_begun(&self) -> bool {
        self.pieces.parts().any(|part| match part {
            Part::Text(text) => !text.is_empty(),
            Part::Call(_) => true,
            Part::Thought(_) | Part::Other => false,
        })
    }

    /// Tokens used, whether or not the reply is usable.
    pub(super) fn usage(&self) -> Usage {
        let count = |count: Option<Count>| count.unwrap_or_default().0;
        Usage {
            input_tokens: count(self.usage.prompt_token_count)
                .saturating_add(count(self.usage.tool_use_prompt_token_count)),
            output_tokens: count(self.usage.candidates_token_count),
            thought_tokens: count(self.usage.thoughts_token_count),
            cached_tokens: count(self.usage.cached_content_token_count),
        }
    }

    /// The model that answered, and the tier that served, as far as the reply names them.
    pub(super) fn served_by(&self) -> (Option<&str>, Option<String>) {
        let tier = self.usage.service_tier.as_ref();
        (self.model.as_deref(), tier.map(|tier| label(tier.get())))
    }

    /// Why it ended, in the provider's word.
    pub(super) fn ended_by(&self) -> Option<&str> {
        let reason = self.finish.as_ref().map(|reason| match reason {
            FinishReason::Stop => "STOP",
            FinishReason::Continuation => "CONTINUATION",
            FinishReason::Blocked(name) | FinishReason::Garbled(name) | FinishReason::Other(name) => name,
        });
        self.blocked.as_deref().or(reason)
    }

    /// The answer ended with `reason` before it was complete. Its text is kept, and nothing of it runs. Without text or
    /// calls nothing is lost, so it is tried once more: with less thinking, if that may have used up the tokens.
    fn cut(self, reason: &str) -> Failure {
        let (retry, why) = match (self.pieces.no_answer(), reason) {
            (None, _) => (Retry::No, "its text is kept"),
            (Some(_), MAX_TOKENS) => (Retry::ThinkLess, "thinking used up its tokens"),
            (Some(why), _) => (Retry::Once, why),
        };
        Failure {
            retry,
            said: Some(self.pieces.text()),
            ..Failure::malformed(format!("the answer was cut off: {reason}; {why}"))
        }
    }

    /// A stream that broke after it had delivered something: one more try, and then its text is kept.
    pub(super) fn interrupted(self, failure: Failure) -> Failure {
        if self.pieces.is_empty() || failure.kind == FaultKind::Timeout {
            return failure;
        }
        Failure {
            retry: match failure.retry {
                Retry::Backoff | Retry::After(_) => Retry::Once,
                other => other,
            },
            said: Some(self.pieces.text()),
            ..failure
        }
    }

    /// Evaluates the whole reply. Nothing of an incomplete, blocked or garbled candidate is used.
    ///
    /// # Errors
    /// Why the reply is not usable.
    pub(super) fn finish(mut self) -> Result<Hop, Failure> {
        if let Some(reason) = self.blocked {
            return Err(Failure::blocked(format!("prompt blocked: {reason}")));
        }
        let next = match self.finish.take() {
            Some(FinishReason::Stop) => None,
            Some(FinishReason::Continuation) => match self.token {
                Some(token) => Some(token),
                None => return Err(Failure::malformed("CONTINUATION without a continuation token")),
            },
            Some(FinishReason::Blocked(reason)) => return Err(Failure::blocked(format!("answer blocked: {reason}"))),
            Some(FinishReason::Garbled(reason)) => return Err(Failure::garbled(format!("finish reason {reason}"))),
            Some(FinishReason::Other(reason)) if reason == MAX_TOKENS => return Err(self.cut(MAX_TOKENS)),
            Some(FinishReason::Other(reason)) => return Err(Failure::malformed(format!("finish reason {reason}"))),
            None if self.pieces.is_empty() => {
                return Err(Failure {
                    // A stream without content was cut off before the caller received anything, so a retry is safe.
                    retry: if self.streamed { Retry::Backoff } else { Retry::No },
                    ..Failure::malformed("no candidate")
                });
            }
            None => return Err(self.cut("no finish reason")),
        };
        if let Some(reason) = self.pieces.garbled() {
            return Err(Failure::garbled(reason));
        }
        Ok(Hop {
            pieces: self.pieces,
            next,
        })
    }
}

const MAX_TOKENS: &str = "MAX_TOKENS";

/// A provider's name of a model, fit for logs and records: without `models/`, at most 100 visible characters.
fn name_of(model: &str) -> String {
    let visible = bare_model(model).chars().filter(char::is_ascii_graphic);
    visible.take(100).collect()
}

// Text that is not an answer although the model ended normally: empty text, only invisible characters, or a call
// written as text (`tool_code` is a function call syntax that some models were trained on).

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

// Why a candidate ended or a prompt was blocked, classified by what it means for the caller.

/// `finishReason`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "EnumValue")]
pub(super) enum FinishReason {
    /// The normal end, also of a turn with calls.
    Stop,
    /// The per-request cap was reached: continue with the continuation token.
    Continuation,
    /// Blocked by the provider's filters or policy.
    Blocked(String),
    /// The model wrote a call or an answer that does not parse: worth one retry.
    Garbled(String),
    /// Incomplete, failed, or an unknown value.
    Other(String),
}

impl FinishReason {
    fn from_name(name: &str) -> Self {
        match name {
            "STOP" => Self::Stop,
            "CONTINUATION" => Self::Continuation,
            "SAFETY"
            | "PROHIBITED_CONTENT"
            | "BLOCKLIST"
            | "SPII"
            | "RECITATION"
            | "MODEL_ARMOR"
            | "ESCALATION"
            | "PUP_LIMITED_DISABLED" => Self::Blocked(label(name)),
            // IMAGE_SAFETY, IMAGE_RECITATION and the like; IMAGE_OTHER is a plain failure.
            _ if name.starts_with("IMAGE_") && name != "IMAGE_OTHER" => Self::Blocked(label(name)),
            "MALFORMED_FUNCTION_CALL" | "MALFORMED_RESPONSE" => Self::Garbled(label(name)),
            _ => Self::Other(label(name)),
        }
    }
}

impl From<EnumValue> for FinishReason {
    fn from(value: EnumValue) -> Self {
        match value {
            EnumValue::Name(name) => Self::from_name(&name),
            // The numbers on which both APIs agree. Larger numbers differ between the APIs.
            EnumValue::Number(number) => match number.as_u64() {
                Some(1) => Self::Stop,
                Some(2) => Self::from_name("MAX_TOKENS"),
                Some(3) => Self::from_name("SAFETY"),
                Some(4) => Self::from_name("RECITATION"),
                Some(5) => Self::from_name("OTHER"),
                _ => Self::Other(number.to_string()),
            },
        }
    }
}

/// `promptFeedback.blockReason`. `None` inside means that nothing was blocked.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "EnumValue")]
pub(super) struct BlockReason(pub(super) Option<String>);

impl From<EnumValue> for BlockReason {
    fn from(value: EnumValue) -> Self {
        Self(match value {
            EnumValue::Name(name) => (!name.is_empty() && !name.ends_with("_UNSPECIFIED")).then(|| label(&name)),
            EnumValue::Number(number) => (number.as_u64() != Some(0)).then(|| number.to_string()),
        })
    }
}

/// A value of an enum on the wire: a name, or a number if the request had `enum-encoding=int`.
#[derive(Deserialize)]
#[serde(untagged)]
enum EnumValue {
    Name(String),
    Number(serde_json::Number),
}

/// Makes a provider's enum value safe for logs and labels: at most 100 characters of `[A-Za-z0-9_-]`.
pub(super) fn label(value: &str) -> String {
    value
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
        .take(100)
        .collect()
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod no_answer_tests {
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

#[cfg(test)]
mod finish_tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn numbers_mean_what_their_names_mean() {
        let read = |json: &str| serde_json::from_str::<FinishReason>(json).unwrap();
        for (number, name) in [
            ("1", "STOP"),
            ("2", "MAX_TOKENS"),
            ("3", "SAFETY"),
            ("4", "RECITATION"),
            ("5", "OTHER"),
        ] {
            assert_eq!(read(number), read(&format!("\"{name}\"")));
        }
        assert_eq!(read("4711"), FinishReason::Other("4711".into()));
        assert_eq!(read("-1"), FinishReason::Other("-1".into()));
    }

    #[test]
    fn a_value_from_the_future_is_no_success_and_is_fit_for_a_log() {
        let read = |json: &str| serde_json::from_str::<FinishReason>(json).unwrap();
        assert_eq!(read(r#""NEW\n REASON""#), FinishReason::Other("NEWREASON".into()));
        assert_eq!(
            read(r#""IMAGE_NEW_FILTER""#),
            FinishReason::Blocked("IMAGE_NEW_FILTER".into())
        );
    }
}
