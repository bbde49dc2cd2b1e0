//! The reply to one request, read piece by piece and evaluated at its end.

use serde_json::value::RawValue;

use super::api_error::ApiError;
use super::content::Pieces;
use super::failure::Failure;
use super::finish::FinishReason;
use super::retry::Retry;
use super::wire::{self, Count, Response, UsageMetadata};
use crate::domain::decision::Usage;
use crate::domain::surrogates;
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
    pub(super) model: Option<String>,
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
            self.model = Some(model);
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

    /// Evaluates the whole reply. Nothing of an incomplete, blocked or garbled candidate is used.
    ///
    /// # Errors
    /// Why the reply is not usable.
    pub(super) fn finish(self) -> Result<Hop, Failure> {
        if let Some(reason) = self.blocked {
            return Err(Failure::blocked(format!("prompt blocked: {reason}")));
        }
        let next = match self.finish {
            Some(FinishReason::Stop) => None,
            Some(FinishReason::Continuation) => match self.token {
                Some(token) => Some(token),
                None => return Err(Failure::malformed("CONTINUATION without a continuation token")),
            },
            Some(FinishReason::Blocked(reason)) => return Err(Failure::blocked(format!("answer blocked: {reason}"))),
            Some(FinishReason::Garbled(reason)) => return Err(Failure::garbled(format!("finish reason {reason}"))),
            Some(FinishReason::Other(reason)) => return Err(Failure::malformed(format!("finish reason {reason}"))),
            None if self.pieces.is_empty() => {
                return Err(Failure {
                    // A stream without content was cut off before the caller received anything, so a retry is safe.
                    retry: if self.streamed { Retry::Backoff } else { Retry::No },
                    ..Failure::malformed("no candidate")
                });
            }
            None => return Err(Failure::malformed("the answer was cut off: no finish reason")),
        };
        if let Some(reason) = self.pieces.garbled() {
            return Err(Failure::garbled(reason));
        }
        Ok(Hop {
            pieces: self.pieces,
            model: self.model,
            next,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;
    use crate::adapters::gemini::sse::{Frame, Framer};
    use crate::domain::journal::{FaultKind, Part};

    fn streamed(chunks: &[&str]) -> (Result<Hop, Failure>, Usage, String) {
        let (mut reply, mut heard) = (Reply::default(), String::new());
        let mut tell = |event: ModelEvent<'_>| {
            if let ModelEvent::Delta(words) = event {
                heard.push_str(words);
            }
        };
        let read = chunks
            .iter()
            .try_for_each(|chunk| reply.take_chunk(chunk.as_bytes(), false, &mut tell));
        let usage = reply.usage();
        (read.and_then(|()| reply.finish()), usage, heard)
    }

    fn candidate(parts: &str, rest: &str) -> String {
        format!(r#"{{"candidates":[{{"content":{{"role":"model","parts":[{parts}]}}{rest}}}]}}"#)
    }

    /// The turn is recorded, echoed and sent to a tool as received, so it must be valid JSON for every parser.
    #[test]
    fn half_a_character_is_replaced_in_words_and_arguments() {
        let parts = r#"{"text":"cut \ud83d"},{"functionCall":{"name":"f","args":{"a":"\ude00"}}}"#;
        let (hop, _, heard) = streamed(&[&candidate(parts, r#","finishReason":"STOP""#)]);
        assert_eq!(heard, "cut \u{fffd}");
        let (content, read) = hop.unwrap().pieces.finish().unwrap();
        let echoed: serde_json::Value = serde_json::from_str(content.get()).unwrap();
        assert_eq!(echoed["parts"][1]["functionCall"]["args"]["a"], "\u{fffd}");
        let args = read.iter().find_map(|part| match part {
            Part::Call(call) => Some(call.args.get()),
            _ => None,
        });
        assert_eq!(args, Some(r#"{"a":"\ufffd"}"#));
    }

    #[test]
    fn every_finish_reason_ends_in_its_kind() {
        for (reason, kind, retry) in [
            ("SAFETY", FaultKind::Blocked, Retry::No),
            ("PROHIBITED_CONTENT", FaultKind::Blocked, Retry::No),
            ("BLOCKLIST", FaultKind::Blocked, Retry::No),
            ("SPII", FaultKind::Blocked, Retry::No),
            ("RECITATION", FaultKind::Blocked, Retry::No),
            ("MODEL_ARMOR", FaultKind::Blocked, Retry::No),
            ("IMAGE_SAFETY", FaultKind::Blocked, Retry::No),
            ("IMAGE_PROHIBITED_CONTENT", FaultKind::Blocked, Retry::No),
            ("IMAGE_RECITATION", FaultKind::Blocked, Retry::No),
            ("ESCALATION", FaultKind::Blocked, Retry::No),
            ("PUP_LIMITED_DISABLED", FaultKind::Blocked, Retry::No),
            ("MALFORMED_FUNCTION_CALL", FaultKind::Malformed, Retry::Once),
            ("MALFORMED_RESPONSE", FaultKind::Malformed, Retry::Once),
            ("MAX_TOKENS", FaultKind::Malformed, Retry::No),
            ("UNEXPECTED_TOOL_CALL", FaultKind::Malformed, Retry::No),
            ("TOO_MANY_TOOL_CALLS", FaultKind::Malformed, Retry::No),
            ("MISSING_THOUGHT_SIGNATURE", FaultKind::Malformed, Retry::No),
            ("LANGUAGE", FaultKind::Malformed, Retry::No),
            ("NO_IMAGE", FaultKind::Malformed, Retry::No),
            ("IMAGE_OTHER", FaultKind::Malformed, Retry::No),
            ("OTHER", FaultKind::Malformed, Retry::No),
            ("FINISH_REASON_UNSPECIFIED", FaultKind::Malformed, Retry::No),
            ("FROM_THE_FUTURE", FaultKind::Malformed, Retry::No),
        ] {
            // A call in it is not executed.
            let call = r#"{"functionCall":{"name":"delete_task","args":{}}}"#;
            let chunk = candidate(call, &format!(r#","finishReason":"{reason}""#));
            let failure = streamed(&[&chunk]).0.unwrap_err();
            assert_eq!((failure.kind, failure.retry), (kind, retry), "{reason}");
            assert!(failure.detail.contains(reason), "{}", failure.detail);
        }
    }

    #[test]
    fn a_stop_is_not_the_end_and_a_later_block_counts() {
        let stop = r#","finishReason":"STOP""#;
        let one = candidate(r#"{"text":"one "}"#, stop);
        let (hop, _, heard) = streamed(&[&one, &candidate(r#"{"text":"two"}"#, stop)]);
        assert_eq!(
            (hop.unwrap().pieces.text().as_str(), heard.as_str()),
            ("one two", "one two")
        );
        let (hop, _, _) = streamed(&[&one, r#"{"candidates":[{"finishReason":"RECITATION"}]}"#, &one]);
        assert_eq!(hop.unwrap_err().kind, FaultKind::Blocked);
    }

    #[test]
    fn counts_are_running_totals_that_an_absent_field_does_not_erase() {
        let (_, usage, _) = streamed(&[
            r#"{"usageMetadata":{"promptTokenCount":10,"thoughtsTokenCount":"7","cachedContentTokenCount":4}}"#,
            r#"{"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":3,"toolUsePromptTokenCount":2}}"#,
            r#"{"usageMetadata":{"candidatesTokenCount":5}}"#,
        ]);
        let expected = Usage {
            input_tokens: 12,
            output_tokens: 5,
            thought_tokens: 7,
            cached_tokens: 4,
        };
        assert_eq!(usage, expected);
    }

    #[test]
    fn what_is_blocked_cut_or_empty_is_named() {
        let cut = candidate(r#"{"functionCall":{"name":"delete_task"}}"#, "");
        for (chunk, kind, words) in [
            (
                r#"{"promptFeedback":{"blockReason":"JAILBREAK"}}"#,
                FaultKind::Blocked,
                "JAILBREAK",
            ),
            (r#"{"promptFeedback":{"blockReason":3}}"#, FaultKind::Blocked, "3"),
            (
                r#"{"promptFeedback":{"safetyRatings":[]}}"#,
                FaultKind::Malformed,
                "no candidate",
            ),
            (r#"{"candidates":[]}"#, FaultKind::Malformed, "no candidate"),
            (
                r#"{"candidates":[{"content":{}}]}"#,
                FaultKind::Malformed,
                "no candidate",
            ),
            (cut.as_str(), FaultKind::Malformed, "cut off"),
            (
                r#"{"candidates":[{"finishReason":"CONTINUATION"}]}"#,
                FaultKind::Malformed,
                "token",
            ),
            (r#"{"candidates":7}"#, FaultKind::Malformed, "unexpected JSON"),
            (r#"{"candidates":[{"#, FaultKind::Malformed, "cut off"),
            (
                r#"{"error":{"code":503,"status":"UNAVAILABLE"}}"#,
                FaultKind::Unavailable,
                "503 UNAVAILABLE",
            ),
            (r#"{"error":"what"}"#, FaultKind::Unavailable, "answered 0"),
        ] {
            let failure = streamed(&[chunk]).0.unwrap_err();
            assert_eq!(failure.kind, kind, "{chunk}");
            assert!(failure.detail.contains(words), "{chunk}: {}", failure.detail);
        }
    }

    #[test]
    fn of_several_candidates_the_first_is_taken() {
        let (hop, _, _) = streamed(&[
            r#"{"candidates":[{"index":1,"content":{"parts":[{"text":"no"}]},"finishReason":"SAFETY"}]}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":"yes"}]},"finishReason":"STOP"},{"index":1,"content":{"parts":[{"text":"no"}]}}]}"#,
        ]);
        assert_eq!(hop.unwrap().pieces.text(), "yes");
    }

    fn json_like() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("null".to_owned()),
            Just("true".to_owned()),
            any::<i64>().prop_map(|n| n.to_string()),
            any::<f32>()
                .prop_filter("finite", |f| f.is_finite())
                .prop_map(|n| format!("{n:e}")),
            "[a-zA-Z0-9 {}\\[\\]:,é]{0,8}".prop_map(|s| format!("\"{s}\"")),
            prop::sample::select(vec!["STOP", "SAFETY", "CONTINUATION", "model"]).prop_map(|s| format!("\"{s}\"")),
        ];
        let key = prop::sample::select(vec![
            "candidates",
            "content",
            "parts",
            "text",
            "thought",
            "functionCall",
            "functionResponse",
            "name",
            "args",
            "id",
            "thoughtSignature",
            "finishReason",
            "index",
            "continuationToken",
            "promptFeedback",
            "blockReason",
            "usageMetadata",
            "promptTokenCount",
            "modelVersion",
            "error",
            "code",
            "message",
            "details",
            "role",
            "x",
        ]);
        leaf.prop_recursive(6, 64, 5, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(","))),
                prop::collection::vec((key.clone(), inner), 0..5).prop_map(|fields| {
                    let fields: Vec<_> = fields.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
                    format!("{{{}}}", fields.join(","))
                }),
            ]
        })
    }

    fn read_every_way(body: &[u8]) {
        let mut whole = Reply::default();
        if whole.take_whole(body, true).is_ok()
            && let Ok(hop) = whole.finish()
        {
            let says = hop.pieces.no_answer().is_none();
            let (content, parts) = hop.pieces.finish().expect("what was read prints");
            let echoed: serde_json::Value = serde_json::from_str(content.get()).expect("the echo is JSON");
            assert_eq!(echoed["role"], "model", "an echo without its role would be the user's");
            assert!(!says || !parts.is_empty());
        }
        let mut reply = Reply::default();
        let mut framer = Framer::default();
        let mut each = |frame: Frame<'_>| {
            let (Frame::Event(json) | Frame::Bare(json)) = frame;
            // A broken chunk ends a real stream; here the rest is tested as well.
            let _ = reply.take_chunk(json, false, &mut |_| {});
            Ok::<_, std::convert::Infallible>(())
        };
        let Ok(()) = framer.feed(body, &mut each);
        let Ok(()) = framer.end(&mut each);
        let _ = reply
            .finish()
            .map(|hop| hop.pieces.finish().expect("what was read prints"));
        let _ = ApiError::of_body(500, body).into_failure(false).detail;
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn no_bytes_make_the_decoder_panic(body in proptest::collection::vec(any::<u8>(), 0..300)) {
            read_every_way(&body);
        }

        #[test]
        fn no_json_makes_the_decoder_panic(value in json_like()) {
            read_every_way(value.as_bytes());
            read_every_way(format!("data: {value}\r\n\r\n").as_bytes());
            let parts = format!(r#"{{"candidates":[{{"content":{{"parts":[{value}]}},"finishReason":"STOP"}}]}}"#);
            read_every_way(parts.as_bytes());
            read_every_way(format!("data: {parts}\n\n").as_bytes());
        }
    }
}
