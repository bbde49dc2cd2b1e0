//! Gemini's reply on the wire. Every field can be absent, every enum is open, and counts may be strings. Content that
//! is only echoed is kept as text.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::reply::{BlockReason, FinishReason};
use crate::domain::nesting;

/// A `GenerateContentResponse`, or one chunk of a stream of them.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Response<'a> {
    #[serde(borrow, default)]
    pub(super) candidates: Option<Vec<Candidate<'a>>>,
    pub(super) prompt_feedback: Option<PromptFeedback>,
    pub(super) usage_metadata: Option<UsageMetadata>,
    pub(super) model_version: Option<String>,
    /// Replaces a response, even with HTTP 200 and in mid-stream.
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Candidate<'a> {
    #[serde(borrow)]
    pub(super) content: Option<&'a RawValue>,
    pub(super) finish_reason: Option<FinishReason>,
    pub(super) index: Option<Count>,
    pub(super) continuation_token: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PromptFeedback {
    pub(super) block_reason: Option<BlockReason>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UsageMetadata {
    pub(super) prompt_token_count: Option<Count>,
    pub(super) cached_content_token_count: Option<Count>,
    pub(super) candidates_token_count: Option<Count>,
    pub(super) thoughts_token_count: Option<Count>,
    pub(super) tool_use_prompt_token_count: Option<Count>,
    /// An open enum.
    pub(super) service_tier: Option<Box<RawValue>>,
}

/// A count. Proto JSON allows a number or a string. Anything else counts as zero, and so does an impossibly large value
/// ([`Count::MOST`]), because analysts sum these values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count(pub(super) u64);

impl Count {
    /// Far larger than any context window.
    const MOST: u64 = 1_000_000_000;

    fn of(n: u64) -> Self {
        Self(if n <= Self::MOST { n } else { 0 })
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Count;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a count")
            }
            fn visit_u64<E>(self, n: u64) -> Result<Count, E> {
                Ok(Count::of(n))
            }
            fn visit_i64<E>(self, n: i64) -> Result<Count, E> {
                Ok(Count::of(u64::try_from(n).unwrap_or(0)))
            }
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            fn visit_f64<E>(self, n: f64) -> Result<Count, E> {
                // `as` saturates and converts NaN and negative numbers to 0.
                Ok(Count::of(n as u64))
            }
            fn visit_str<E>(self, text: &str) -> Result<Count, E> {
                Ok(Count::of(text.parse().unwrap_or(0)))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// A content with unparsed parts.
#[derive(Deserialize)]
pub(super) struct Content<'a> {
    #[serde(borrow)]
    pub(super) role: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) parts: Option<Vec<&'a RawValue>>,
}

/// The fields of a part that gavel reads.
#[derive(Default)]
pub(super) struct Part<'a> {
    pub(super) text: Option<Cow<'a, str>>,
    pub(super) thought: bool,
    pub(super) call: Option<&'a RawValue>,
    /// A `functionResponse`: the provider ran the call itself.
    pub(super) answered: Option<FunctionCall<'a>>,
    /// It contains a signature or another field that ties it to its position, so nothing may be joined to it.
    pub(super) tied: bool,
    /// `{}`.
    pub(super) void: bool,
}

#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Part<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Part<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a part")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Part<'de>, A::Error> {
                let mut part = Part {
                    void: true,
                    ..Part::default()
                };
                while let Some(Text(key)) = map.next_key()? {
                    part.void = false;
                    match key.as_ref() {
                        "text" => part.text = map.next_value::<Option<Text<'de>>>()?.map(|text| text.0),
                        "thought" => part.thought = map.next_value::<Option<bool>>()?.unwrap_or(false),
                        "functionCall" => part.call = map.next_value()?,
                        "functionResponse" => part.answered = map.next_value()?,
                        _ => {
                            part.tied = true;
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(part)
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

/// A call, or the name and id of an answered call.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FunctionCall<'a> {
    #[serde(borrow)]
    pub(super) id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) args: Option<&'a RawValue>,
    pub(super) partial_args: Option<IgnoredAny>,
    pub(super) will_continue: Option<bool>,
}

/// Parses JSON that is nested no deeper than [`MAX_DEPTH`].
///
/// # Errors
/// A message for an operator, without payload.
pub(super) fn read<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, String> {
    if !nesting::within(json, MAX_DEPTH) {
        return Err(format!("nested deeper than {MAX_DEPTH} levels"));
    }
    // The parser's own message may quote the payload, so only the position is kept.
    serde_json::from_slice(json).map_err(|error| match error.classify() {
        serde_json::error::Category::Eof => format!("JSON cut off after {} bytes", json.len()),
        serde_json::error::Category::Data => {
            format!("unexpected JSON at line {} column {}", error.line(), error.column())
        }
        _ => format!("invalid JSON at line {} column {}", error.line(), error.column()),
    })
}

/// Deeper JSON is rejected. `serde_json` reads content that is only echoed without recursion and without a limit. A
/// later parser of the arguments would fail at its own limit of 128.
pub(super) const MAX_DEPTH: usize = 100;

/// One JSON text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    /// The data of an event.
    Event(&'a [u8]),
    /// JSON outside of any event, up to the end of the stream.
    Bare(&'a [u8]),
}

/// State between two pieces of the body.
#[derive(Debug, Default)]
pub(super) struct Framer {
    /// An incomplete line.
    line: Vec<u8>,
    /// Data lines of the current event.
    data: Vec<u8>,
    bare: bool,
}

impl Framer {
    /// Reads a piece of the body and returns the completed frames in order.
    ///
    /// # Errors
    /// The first error of `each`. The rest is not read.
    pub(super) fn feed<E>(
        &mut self,
        mut bytes: &[u8],
        mut each: impl FnMut(Frame<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while !self.bare {
            let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
                break;
            };
            let (head, tail) = bytes.split_at(end);
            bytes = tail.get(1..).unwrap_or_default();
            if self.line.is_empty() {
                self.take_line(head, &mut each)?;
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(head);
                self.take_line(&line, &mut each)?;
                if !self.bare {
                    line.clear();
                    self.line = line;
                }
            }
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    /// Ends the body and returns the remaining frames.
    ///
    /// # Errors
    /// The first error of `each`.
    pub(super) fn end<E>(mut self, mut each: impl FnMut(Frame<'_>) -> Result<(), E>) -> Result<(), E> {
        if !self.bare {
            let line = std::mem::take(&mut self.line);
            self.take_line(&line, &mut each)?;
        }
        // An event without its blank line is returned anyway. Its JSON shows whether it is complete.
        self.take_line(b"", &mut each)?;
        if self.bare {
            each(Frame::Bare(&self.line))?;
        }
        Ok(())
    }

    fn take_line<E>(&mut self, line: &[u8], each: &mut impl FnMut(Frame<'_>) -> Result<(), E>) -> Result<(), E> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        if line.is_empty() {
            if !self.data.is_empty() {
                let data = std::mem::take(&mut self.data);
                if data != b"[DONE]" {
                    each(Frame::Event(&data))?;
                }
                self.data = data;
                self.data.clear();
            }
        } else if let Some(data) = line.strip_prefix(b"data:") {
            if !self.data.is_empty() {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
        } else if matches!(line.trim_ascii_start().first(), Some(b'{' | b'[')) {
            self.bare = true;
            self.line.extend_from_slice(line);
            self.line.push(b'\n');
        }
        // Comments and the fields event, id and retry are not used.
        Ok(())
    }
}

#[cfg(test)]
mod sse_tests {
    use std::convert::Infallible;

    use super::*;
    use proptest::prelude::*;

    fn frames(body: &[u8], step: usize) -> Vec<String> {
        let mut found = Vec::new();
        let mut each = |frame: Frame<'_>| {
            found.push(match frame {
                Frame::Event(data) => format!("event {}", String::from_utf8_lossy(data)),
                Frame::Bare(data) => format!("bare {}", String::from_utf8_lossy(data).trim_end()),
            });
            Ok::<_, Infallible>(())
        };
        let mut framer = Framer::default();
        for piece in body.chunks(step) {
            let Ok(()) = framer.feed(piece, &mut each);
        }
        let Ok(()) = framer.end(&mut each);
        found
    }

    fn same_in_every_cut(body: &[u8], expected: &[&str]) {
        for step in 1..=body.len() {
            assert_eq!(frames(body, step), expected, "cut every {step} bytes");
        }
    }

    #[test]
    fn events_end_with_crlf_or_lf_and_other_fields_are_passed_over() {
        same_in_every_cut(
            b"data: {\"a\":1}\r\n\r\n: ping\nid: 7\nevent: x\ndata:{\"b\":2}\n\n\n\ndata: [DONE]\n\n",
            &["event {\"a\":1}", "event {\"b\":2}"],
        );
    }

    #[test]
    fn data_over_several_lines_is_one_text_and_a_missing_blank_line_loses_nothing() {
        same_in_every_cut(
            b"data: {\"a\":\r\ndata: 1}\r\n\r\ndata: {\"b\":2}",
            &["event {\"a\":\n1}", "event {\"b\":2}"],
        );
    }

    #[test]
    fn bare_json_runs_to_the_end() {
        same_in_every_cut(
            b"data: {\"a\":1}\n\n{\n  \"error\": {\"code\": 499}\n}",
            &["event {\"a\":1}", "bare {\n  \"error\": {\"code\": 499}\n}"],
        );
        same_in_every_cut(b"[{\"a\":1}\n,\n{\"b\":2}]\n", &["bare [{\"a\":1}\n,\n{\"b\":2}]"]);
    }

    proptest! {
        #[test]
        fn the_cuts_do_not_matter(body in proptest::collection::vec(any::<u8>(), 0..200), step in 1_usize..50) {
            prop_assert_eq!(frames(&body, step), frames(&body, body.len().max(1)));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn counts_are_numbers_or_text_and_nonsense_counts_as_nothing() {
        let counts: Vec<Count> =
            serde_json::from_str(r#"[7, "8", -1, 2.9, "x", 1e300, 1000000000, 1000000001]"#).unwrap();
        let counts: Vec<u64> = counts.into_iter().map(|count| count.0).collect();
        assert_eq!(counts, [7, 8, 0, 2, 0, 0, 1_000_000_000, 0]);
    }

    #[test]
    fn a_million_levels_are_refused_without_recursion() {
        let deep = "[".repeat(1_000_000);
        assert!(read::<Response<'_>>(deep.as_bytes()).err().unwrap().contains("deeper"));
    }

    #[test]
    fn an_error_gives_the_place_and_never_the_payload() {
        for json in [
            r#"{"candidates":"s3cret"}"#,
            r#"{"candidates":[s3cret"#,
            r#"{"candidates":["s3cret"#,
        ] {
            let error = read::<Response<'_>>(json.as_bytes()).err().unwrap();
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}
