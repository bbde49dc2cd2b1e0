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
