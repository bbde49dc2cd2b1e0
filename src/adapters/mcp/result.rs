//! What a tool answered, as the engine takes it: data, capped, or the tool's own word that it failed.
//!
//! Data is `structuredContent`, else the content: one text becomes a JSON string, several blocks an
//! array. What a model cannot read (images, audio, blobs) is described by type, media type and size
//! and not handed on; the text of an embedded text resource is content like any other.
//!
//! Data is handed on as the server wrote it, and others read it after us: halves of characters in it are replaced.

use std::borrow::Cow;
use std::sync::Arc;

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::source::Source;
use crate::domain::journal::CallFailure;
use crate::domain::nesting;
use crate::domain::surrogates;
use crate::domain::text::capped;
use crate::domain::tool::FailureCode;
use crate::ports::tools::CallReply;

/// Longest words of a server about an error, in bytes.
pub(super) const ERROR_BYTES: usize = 2 * 1024;
/// Longest name of a type that is told of, in bytes.
const NAME_BYTES: usize = 64;
/// Blocks of content that are read. Even described in the fewest words, more would be cut off the largest result.
const MAX_BLOCKS: usize = 16 * 1024;

/// The members of a `tools/call` result that count.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolResult<'a> {
    #[serde(borrow, default)]
    result_type: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    content: Option<Blocks<'a>>,
    #[serde(borrow, default)]
    structured_content: Option<&'a RawValue>,
    #[serde(default)]
    is_error: Option<bool>,
    #[serde(borrow, default)]
    task: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

/// What counts of a result's `_meta`.
#[derive(Deserialize)]
struct ResultMeta<'a> {
    /// Of which kind an error is. It is a word for the record and changes nothing of what may run.
    #[serde(borrow, default, rename = "gavel/error_class")]
    error_class: Option<Cow<'a, str>>,
}

/// The content, of which no more blocks are kept than may count: `[{},{},…` would take a hundred times its length.
#[derive(Debug)]
struct Blocks<'a>(Vec<Block<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for Blocks<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Blocks<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a list of blocks")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut blocks = Vec::new();
                while blocks.len() < MAX_BLOCKS {
                    match list.next_element()? {
                        Some(block) => blocks.push(block),
                        None => return Ok(Blocks(blocks)),
                    }
                }
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Blocks(blocks))
            }
        }
        deserializer.deserialize_seq(Each)
    }
}

/// One block of content, of any type.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Block<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    text: Option<&'a RawValue>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
    #[serde(borrow, default)]
    mime_type: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    uri: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    description: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    resource: Option<Resource<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resource<'a> {
    #[serde(borrow, default)]
    uri: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    mime_type: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    blob: Option<&'a RawValue>,
}

/// What the `result` of a call says.
#[derive(Debug)]
pub(super) enum Said {
    /// For the engine.
    Reply(CallReply),
    /// It is none of the results there are; the call did run.
    Unreadable(String),
    /// The work goes on as a task on the server, which gavel does not follow.
    Task,
}

/// Reads the text of a `result` of `source`. `max` is the largest data in bytes.
pub(super) fn read(result: &[u8], max: usize, source: &Source) -> Said {
    let result = surrogates::mended(result);
    let result: ToolResult<'_> = match serde_json::from_slice(&result) {
        // serde would also take an array for the members in their order.
        _ if !result.trim_ascii_start().starts_with(b"{") => {
            return Said::Unreadable("its result is not an object".to_owned());
        }
        Ok(result) => result,
        Err(error) => {
            // Its words may quote the result.
            let error = source.words(&error.to_string(), ERROR_BYTES);
            return Said::Unreadable(format!("its result is not one of a tool: {error}"));
        }
    };
    match result.result_type.as_deref() {
        None | Some("complete") if result.task.is_none() => {}
        Some("input_required") => {
            let message = "the tool asks for input, which gavel does not give".to_owned();
            return Said::Reply(CallReply::Failed(CallFailure::new(FailureCode::Unsupported, message)));
        }
        None | Some("complete" | "task") => return Said::Task,
        Some(other) => {
            let other = source.words(other, NAME_BYTES);
            return Said::Unreadable(format!("its result is of the unknown type `{other}`"));
        }
    }
    let blocks = result.content.as_ref().map_or(&[][..], |content| &content.0);
    if result.is_error == Some(true) {
        let message = error_words(blocks, result.structured_content, source);
        let meta = result
            .meta
            .and_then(|meta| serde_json::from_str::<ResultMeta<'_>>(meta.get()).ok());
        let code = match meta.and_then(|meta| meta.error_class).as_deref() {
            Some("auth") => FailureCode::AuthRequired,
            Some("arguments") => FailureCode::InvalidArguments,
            _ => FailureCode::ToolError,
        };
        return Said::Reply(CallReply::Failed(CallFailure::new(code, message)));
    }
    Said::Reply(CallReply::Data(data(blocks, result.structured_content, max)))
}

fn data(blocks: &[Block<'_>], structured: Option<&RawValue>, max: usize) -> Arc<RawValue> {
    let structured = structured.filter(|raw| raw.get() != "null" || blocks.is_empty());
    let whole: Cow<'_, RawValue> = match (structured, blocks) {
        (Some(raw), _) => Cow::Borrowed(raw),
        (
            None,
            [
                Block {
                    kind, text: Some(text), ..
                },
            ],
        ) if kind == "text" && is_string(text) => Cow::Borrowed(text),
        (None, blocks) => Cow::Owned(raw(&Value::Array(blocks.iter().map(described).collect()))),
    };
    let readable = nesting::within(whole.get().as_bytes(), nesting::MAX_LEVELS);
    if readable && whole.get().len() <= max {
        return whole.into_owned().into();
    }
    // Cut JSON is none, and JSON that nests too deeply is none that everybody can read: it is handed on as text.
    let text = match serde_json::from_str::<String>(whole.get()) {
        Ok(text) => text,
        Err(_) => whole.get().to_owned(),
    };
    let mut room = max;
    loop {
        // Escapes may make the text longer again as JSON.
        let cut = raw(&Value::String(capped(&text, room).into_owned()));
        if cut.get().len() <= max || room < 64 {
            return cut.into();
        }
        room -= (cut.get().len() - max).min(room / 2);
    }
}

fn raw(value: &Value) -> Box<RawValue> {
    to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

fn is_string(raw: &RawValue) -> bool {
    raw.get().starts_with('"')
}

/// A block for the model: text as a string, anything else described.
fn described(block: &Block<'_>) -> Value {
    let kind = block.kind.as_ref();
    match (kind, block.text, &block.resource) {
        // What is no text, and cannot be read as it nests too deeply, is handed on as text.
        ("text", Some(text), _) => serde_json::from_str(text.get()).unwrap_or_else(|_| json!(text.get())),
        ("resource", _, Some(resource)) => {
            let mut out = json!({"type": kind, "uri": resource.uri, "mimeType": resource.mime_type});
            if let Some(text) = &resource.text {
                out["text"] = json!(text);
            }
            if let Some(blob) = resource.blob {
                out["bytes"] = json!(decoded_bytes(blob));
            }
            out
        }
        ("resource_link", _, _) => json!({
            "type": kind, "uri": block.uri, "name": block.name,
            "description": block.description, "mimeType": block.mime_type,
        }),
        _ => {
            let mut out = json!({"type": kind, "mimeType": block.mime_type});
            if let Some(data) = block.data {
                out["bytes"] = json!(decoded_bytes(data));
            }
            out
        }
    }
}

/// How many bytes a base64 JSON string stands for.
fn decoded_bytes(raw: &RawValue) -> usize {
    let digits = raw.get().trim_matches('"').trim_end_matches('=').len();
    digits * 3 / 4
}

fn error_words(blocks: &[Block<'_>], structured: Option<&RawValue>, source: &Source) -> String {
    let mut words = String::new();
    for block in blocks {
        if let Some(raw) = block.text {
            let text = serde_json::from_str::<String>(raw.get());
            if !words.is_empty() {
                words.push('\n');
            }
            words.push_str(text.as_deref().unwrap_or(raw.get()));
        }
    }
    if words.is_empty() {
        words = structured.map_or_else(
            || "the tool reported an error without words".to_owned(),
            |raw| raw.get().to_owned(),
        );
    }
    source.said(&words, ERROR_BYTES).into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::adapters::mcp::unsolicited::testing::unsolicited;

    fn read(result: &[u8], max: usize) -> Said {
        super::read(result, max, &unsolicited().source)
    }

    fn reply(result: &Value, max: usize) -> CallReply {
        match read(result.to_string().as_bytes(), max) {
            Said::Reply(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    fn data_of(result: &Value, max: usize) -> String {
        match reply(result, max) {
            CallReply::Data(raw) => raw.get().to_owned(),
            other => panic!("{other:?}"),
        }
    }

    fn failure(result: &Value) -> CallFailure {
        match reply(result, 1024) {
            CallReply::Failed(failure) => failure,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn structured_content_comes_before_content() {
        let both = json!({"content": [{"type": "text", "text": "x"}], "structuredContent": {"a": 1}});
        assert_eq!(data_of(&both, 100), r#"{"a":1}"#);
        let null = json!({"content": [{"type": "text", "text": "x"}], "structuredContent": null});
        assert_eq!(data_of(&null, 100), r#""x""#);
    }

    #[test]
    fn one_text_is_a_string_and_several_blocks_an_array_without_payloads() {
        let one = json!({"content": [{"type": "text", "text": "say \"hi\""}]});
        assert_eq!(data_of(&one, 100), r#""say \"hi\"""#);
        let many = json!({"content": [
            {"type": "text", "text": "a"},
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "f:///a", "mimeType": "text/plain", "text": "t"}},
            {"type": "resource", "resource": {"uri": "f:///b", "blob": "AAAAAA=="}},
            {"type": "hologram", "x": 1}
        ]});
        let data: Value = serde_json::from_str(&data_of(&many, 1000)).unwrap();
        assert_eq!(
            data,
            json!(["a",
            {"type": "image", "mimeType": "image/png", "bytes": 3},
            {"type": "resource", "uri": "f:///a", "mimeType": "text/plain", "text": "t"},
            {"type": "resource", "uri": "f:///b", "mimeType": null, "bytes": 4},
            {"type": "hologram", "mimeType": null}])
        );
        assert_eq!(data_of(&json!({"content": []}), 100), "[]");
    }

    #[test]
    fn large_data_is_cut_between_characters_and_stays_json() {
        for large in [
            json!({"content": [{"type": "text", "text": "ä\"".repeat(500)}]}),
            json!({"structuredContent": {"rows": vec!["ä\\"; 500]}}),
        ] {
            let data = data_of(&large, 300);
            assert!(data.len() <= 300, "{}", data.len());
            let text: String = serde_json::from_str(&data).unwrap();
            assert!(text.contains("[cut: "), "{text}");
        }
    }

    #[test]
    fn data_that_nests_too_deeply_is_handed_on_as_text() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let data = |levels| {
            let result = format!(r#"{{"structuredContent":{}}}"#, nested(levels));
            match read(result.as_bytes(), 1_000_000) {
                Said::Reply(CallReply::Data(raw)) => raw.get().to_owned(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(data(nesting::MAX_LEVELS), nested(nesting::MAX_LEVELS));
        for levels in [nesting::MAX_LEVELS + 1, 100_000] {
            let text: String = serde_json::from_str(&data(levels)).unwrap();
            assert_eq!(text, nested(levels));
        }
    }

    /// A JavaScript server that cuts a text may cut inside of an emoji.
    #[test]
    fn half_a_character_is_replaced_and_the_text_around_it_kept() {
        let data = |result: &str| match read(result.as_bytes(), 1000) {
            Said::Reply(CallReply::Data(raw)) => serde_json::from_str::<Value>(raw.get()).unwrap(),
            other => panic!("{other:?}"),
        };
        let text = r#"{"type":"text","text":"cut \ud83d"}"#;
        assert_eq!(data(&format!(r#"{{"content":[{text}]}}"#)), json!("cut \u{fffd}"));
        assert_eq!(
            data(&format!(r#"{{"content":[{text},{text}]}}"#)),
            json!(["cut \u{fffd}", "cut \u{fffd}"])
        );
        let structured = r#"{"structuredContent":{"\uDE00":["cut \ud83d","\ud83d\ude00"]}}"#;
        assert_eq!(data(structured), json!({"\u{fffd}": ["cut \u{fffd}", "\u{1f600}"]}));
        let error = format!(r#"{{"isError":true,"content":[{text}]}}"#);
        match read(error.as_bytes(), 1000) {
            Said::Reply(CallReply::Failed(failure)) => assert_eq!(failure.message, "cut \u{fffd}"),
            other => panic!("{other:?}"),
        }
        // And what is cut by us is cut from the text that was mended.
        let long = format!(
            r#"{{"content":[{{"type":"text","text":"{}\ud83d"}}]}}"#,
            "x".repeat(5000)
        );
        assert!(data(&long).as_str().unwrap().contains("[cut: "));
    }

    #[test]
    fn a_text_that_is_none_is_not_lost() {
        let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
        let result = format!(r#"{{"content":[{{"type":"text","text":{deep}}},{{"type":"text","text":7}}]}}"#);
        match read(result.as_bytes(), 10_000) {
            Said::Reply(CallReply::Data(raw)) => {
                assert_eq!(serde_json::from_str::<Value>(raw.get()).unwrap(), json!([deep, 7]));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(
            failure(&json!({"isError": true, "content": [{"type": "text", "text": {"a": 1}}]})).message,
            r#"{"a":1}"#
        );
    }

    #[test]
    fn an_error_is_the_tools_own_word_and_short() {
        let error =
            json!({"isError": true, "content": [{"type": "text", "text": "no\n"}, {"type": "text", "text": "way"}]});
        assert_eq!(failure(&error), CallFailure::new(FailureCode::ToolError, "no\n\nway"));
        let long = json!({"isError": true, "content": [{"type": "text", "text": "x".repeat(9000)}]});
        assert!(failure(&long).message.len() <= ERROR_BYTES);
        assert!(!failure(&json!({"isError": true})).message.is_empty());
    }

    #[test]
    fn a_question_is_not_an_answer() {
        let question = json!({"resultType": "input_required", "inputRequests": {}});
        assert_eq!(failure(&question).code, FailureCode::Unsupported);
        let task = json!({"task": {"taskId": "t"}});
        assert!(matches!(read(task.to_string().as_bytes(), 100), Said::Task));
        assert!(matches!(read(b"[]", 100), Said::Unreadable(_)));
        assert!(matches!(read(br#"{"resultType":"new"}"#, 100), Said::Unreadable(_)));
    }
}
