//! A tool's answer for the engine: capped data, or the tool's own error.
//!
//! Data is `structuredContent`, or the content: one text becomes a JSON string, several blocks an array. If both are
//! present and the text is more than the JSON of the structure, data is an object with both. Content that a model
//! cannot read (images, audio, blobs) is described by type, media type and size, and not passed on. The text of an
//! embedded text resource is ordinary content.
//!
//! Data is passed on as the server wrote it, except that half characters in it are replaced, because other parsers read
//! it later.

use std::borrow::Cow;
use std::sync::Arc;

use memchr::memmem;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::message;
use super::source::Source;
use crate::domain::journal::{CallFailure, OwnError};
use crate::domain::text::capped;
use crate::domain::tool::FailureCode;
use crate::domain::{nesting, surrogates};
use crate::ports::tools::CallReply;

/// Maximum bytes of a server's error message.
pub(super) const ERROR_BYTES: usize = 2 * 1024;
/// Maximum bytes of a reported type name.
const NAME_BYTES: usize = 64;
/// Maximum blocks of content. Even with the shortest descriptions, more would be cut from the largest result.
const MAX_BLOCKS: usize = 16 * 1024;

/// The relevant members of a `tools/call` result.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolResult<'a> {
    #[serde(borrow, default)]
    result_type: Option<&'a RawValue>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    structured_content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    is_error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    task: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

/// The relevant members of a result's `_meta`.
#[derive(Deserialize)]
struct ResultMeta<'a> {
    /// The class of an error. It is only recorded, and does not affect what may run.
    #[serde(borrow, default, rename = "gavel/error_class")]
    error_class: Option<Cow<'a, str>>,
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

impl<'a> Block<'a> {
    /// A block with invalid members is passed on as text.
    fn read(raw: &'a RawValue) -> Self {
        match raw.get().starts_with('{') {
            true => serde_json::from_str(raw.get()).unwrap_or_else(|_| Self::text(raw)),
            false => Self::text(raw),
        }
    }

    fn text(text: &'a RawValue) -> Self {
        Self {
            kind: Cow::Borrowed("text"),
            text: Some(text),
            data: None,
            mime_type: None,
            uri: None,
            name: None,
            description: None,
            resource: None,
        }
    }
}

/// The content as servers write it: a list, or a single block or text.
fn blocks(content: Option<&RawValue>) -> Result<Vec<Block<'_>>, String> {
    let Some(content) = content else { return Ok(Vec::new()) };
    match content.get() {
        "null" | "{}" => Ok(Vec::new()),
        text if text.starts_with('[') => {
            // `[{},{},…` would take a hundred times its length.
            message::tree_bytes(text.as_bytes())?;
            let blocks = serde_json::from_str::<Vec<&RawValue>>(text);
            let blocks = blocks.map_err(|_| "its `content` cannot be read".to_owned())?;
            Ok(blocks.into_iter().take(MAX_BLOCKS).map(Block::read).collect())
        }
        text if text.starts_with(['"', '{']) => Ok(vec![Block::read(content)]),
        _ => Err("its `content` is not a list of blocks".to_owned()),
    }
}

/// Does it report that the tool failed?
fn is_error(member: Option<&RawValue>) -> Result<bool, String> {
    match member.map_or("false", RawValue::get) {
        "true" | "\"true\"" | "1" => Ok(true),
        "false" | "\"false\"" | "0" | "null" => Ok(false),
        _ => Err("its `isError` is neither true nor false".to_owned()),
    }
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

/// The meaning of a call's `result`.
#[derive(Debug)]
pub(super) enum Said {
    /// For the engine.
    Reply(CallReply),
    /// It is not a known kind of result, but the call was executed.
    Unreadable(String),
    /// The work continues as a task on the server, which gavel does not follow.
    Task,
}

/// Reads the text of a `result` of `source`. `max` is the maximum data in bytes.
pub(super) fn read(result: &[u8], max: usize, source: &Source) -> Said {
    let result = surrogates::repaired(result);
    let result: ToolResult<'_> = match serde_json::from_slice(&result) {
        // serde would also accept an array as the members in order.
        _ if !result.trim_ascii_start().starts_with(b"{") => {
            return Said::Unreadable("its result is not an object".to_owned());
        }
        Ok(result) => result,
        Err(error) => return Said::Unreadable(format!("its result is not a tool result: {}", message::fault(&error))),
    };
    let kind = match result
        .result_type
        .map(|kind| serde_json::from_str::<String>(kind.get()))
        .transpose()
    {
        Ok(kind) => kind,
        Err(_) => return Said::Unreadable("its `resultType` is not text".to_owned()),
    };
    match kind.as_deref() {
        None | Some("complete") if result.task.is_none() => {}
        Some("input_required") => {
            let message = "the tool asks for input, which gavel does not provide".to_owned();
            return Said::Reply(CallReply::Failed(CallFailure::new(FailureCode::Unsupported, message)));
        }
        None | Some("complete" | "task") => return Said::Task,
        Some(other) => {
            let other = source.words(other, NAME_BYTES);
            return Said::Unreadable(format!("its result is of the unknown type `{other}`"));
        }
    }
    let (blocks, is_error) = match blocks(result.content).and_then(|blocks| Ok((blocks, is_error(result.is_error)?))) {
        Ok(read) => read,
        Err(why) => return Said::Unreadable(why),
    };
    if is_error {
        let message = error_words(&blocks, result.structured_content, source);
        let meta = result
            .meta
            .and_then(|meta| serde_json::from_str::<ResultMeta<'_>>(meta.get()).ok());
        let code = match meta.and_then(|meta| meta.error_class).as_deref() {
            Some("auth") => FailureCode::AuthRequired,
            Some("arguments") => FailureCode::InvalidArguments,
            _ => FailureCode::ToolError,
        };
        return Said::Reply(CallReply::Failed(CallFailure {
            own: own_error(&blocks, result.structured_content, source),
            ..CallFailure::new(code, message)
        }));
    }
    // A null next to text says nothing.
    let structured = result
        .structured_content
        .filter(|raw| raw.get() != "null" || blocks.is_empty());
    match structured {
        Some(structured) if blocks.is_empty() || says(&blocks, structured) => {
            Said::Reply(CallReply::Data(bounded(Cow::Borrowed(structured), max)))
        }
        None => Said::Reply(CallReply::Data(bounded(content(&blocks), max))),
        Some(structured) => {
            let both = format!(
                r#"{{"content":{},"structuredContent":{}}}"#,
                content(&blocks).get(),
                structured.get()
            );
            match RawValue::from_string(both) {
                Ok(both) => Said::Reply(CallReply::Data(bounded(Cow::Owned(both), max))),
                Err(error) => Said::Unreadable(format!("its result is not a tool result: {}", message::fault(&error))),
            }
        }
    }
}

/// The content as data.
fn content<'a>(blocks: &'a [Block<'a>]) -> Cow<'a, RawValue> {
    match blocks {
        [
            Block {
                kind, text: Some(text), ..
            },
        ] if kind == "text" && is_string(text) => Cow::Borrowed(text),
        blocks => Cow::Owned(raw(&Value::Array(blocks.iter().map(described).collect()))),
    }
}

/// Data of at most `max` bytes that every JSON parser can read.
fn bounded(whole: Cow<'_, RawValue>, max: usize) -> Arc<RawValue> {
    let readable = nesting::within(whole.get().as_bytes(), nesting::MAX_LEVELS);
    if readable && whole.get().len() <= max {
        return whole.into_owned().into();
    }
    // Truncated JSON is invalid, and not every parser reads JSON that is nested too deeply. Both are passed on as text.
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
        // Anything that is not text and cannot be read because it is nested too deeply is passed on as text.
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

/// The number of bytes that a base64 JSON string encodes.
fn decoded_bytes(raw: &RawValue) -> usize {
    let digits = raw.get().trim_matches('"').trim_end_matches('=').len();
    digits * 3 / 4
}

/// The tool's own error: `{"error": {"code", …}}` or `{"code", …}`, as structure or as the text of a block. One that holds
/// a configured secret is dropped.
fn own_error(blocks: &[Block<'_>], structured: Option<&RawValue>, source: &Source) -> Option<Box<OwnError>> {
    let texts = blocks
        .iter()
        .filter_map(|block| serde_json::from_str::<String>(block.text?.get()).ok());
    let mut forms = structured.map(|raw| raw.get().to_owned()).into_iter().chain(texts);
    let own = forms.find_map(|text| {
        let said: Value = serde_json::from_str(&text).ok()?;
        OwnError::read(said.get("error").filter(|error| error.is_object()).unwrap_or(&said))
    })?;
    let text = serde_json::to_string(&own).ok()?;
    (source.said(&text, usize::MAX) == text).then(|| Box::new(own))
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
    let has_words = !words.trim().is_empty();
    let structured = structured.filter(|raw| raw.get() != "null" && !(has_words && says(blocks, raw)));
    if let Some(structured) = structured {
        // Only the last part is cut, and neither part may take all the room of the other.
        let part = capped(structured.get(), ERROR_BYTES / 2);
        words = match has_words {
            true => format!("{}\n{part}", capped(&words, ERROR_BYTES - part.len() - 1)),
            false => structured.get().to_owned(),
        };
    }
    if words.is_empty() {
        words = "the tool reported an error without a message".to_owned();
    }
    source.said(&words, ERROR_BYTES).into_owned()
}

// Does the content of a result equal its structure?

/// Is the content exactly the JSON of `structured`? Some SDKs put a value that is not an object under a single member
/// `result`, and write each element of a list as a separate block.
fn says(blocks: &[Block<'_>], structured: &RawValue) -> bool {
    let mut texts = Vec::with_capacity(blocks.len());
    for block in blocks {
        match block.text.map(|text| serde_json::from_str::<String>(text.get())) {
            // Blank text says nothing.
            Some(Ok(text)) if block.kind == "text" && text.trim().is_empty() => {}
            Some(Ok(text)) if block.kind == "text" => texts.push(text),
            _ => return false,
        }
    }
    if texts.is_empty() {
        return true;
    }
    // In nearly all results, the texts are identical.
    if let [text] = &texts[..]
        && text == structured.get()
    {
        return true;
    }
    let Ok(structured) = serde_json::from_str::<Value>(structured.get()) else {
        return false;
    };
    let wrapped = structured.as_object().filter(|members| members.len() == 1);
    let wrapped = wrapped.and_then(|members| members.get("result"));
    let is = |text: &str, value: &Value| {
        value.as_str() == Some(text) || serde_json::from_str(text).is_ok_and(|reported: Value| equal(&reported, value))
    };
    let whole = |value: &Value| match (&texts[..], value) {
        ([text], value) if is(text, value) => true,
        (texts, Value::Array(items)) => {
            texts.len() == items.len() && texts.iter().zip(items).all(|(text, item)| is(text, item))
        }
        _ => false,
    };
    whole(&structured) || wrapped.is_some_and(whole)
}

/// Equal as JSON, where `1` equals `1.0`.
fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(name, value)| b.get(name).is_some_and(|other| equal(value, other)))
        }
        (a, b) => a == b,
    }
}

// Writes whole numbers in the form that servers accept. A model's `10` may arrive as `10.0`, which is the same number,
// but strict servers reject it as an integer.

/// The arguments with whole numbers written without a fraction, otherwise unchanged.
pub(super) fn written(arguments: &RawValue) -> Cow<'_, RawValue> {
    let text = arguments.get();
    if memmem::find(text.as_bytes(), b".0").is_none() {
        return Cow::Borrowed(arguments);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    // Outside of strings, a digit begins a number, and a number ends before a comma, a bracket or white space.
    while let Some(at) = rest.find(|c: char| c == '"' || c == '-' || c.is_ascii_digit()) {
        let end = match rest.as_bytes()[at] {
            b'"' => at + string_end(&rest[at..]),
            _ => rest[at..]
                .find([',', ']', '}', ' ', '\n', '\r', '\t'])
                .map_or(rest.len(), |end| at + end),
        };
        let token = &rest[at..end];
        let whole = token
            .split_once('.')
            .filter(|(_, zeros)| zeros.bytes().all(|digit| digit == b'0'));
        out.push_str(&rest[..at]);
        out.push_str(match whole {
            Some((whole, _)) if !token.starts_with('"') => whole,
            _ => token,
        });
        rest = &rest[end..];
    }
    out.push_str(rest);
    RawValue::from_string(out).map_or(Cow::Borrowed(arguments), Cow::Owned)
}

/// The end of the string at the start of `text`, including its closing quote.
fn string_end(text: &str) -> usize {
    let mut at = 1;
    while let Some(found) = memchr::memchr2(b'"', b'\\', &text.as_bytes()[at..]) {
        at += found + 1;
        if text.as_bytes()[at - 1] == b'"' {
            return at;
        }
        at += 1;
    }
    text.len()
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod integers_tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn whole_numbers_lose_their_fraction_and_nothing_else_changes() {
        for (arguments, expected) in [
            (r#"{"n":10.0}"#, r#"{"n":10}"#),
            (r#"{"n": -3.000 ,"m":[0.0, 1.50,2.0]}"#, r#"{"n": -3 ,"m":[0, 1.50,2]}"#),
            (
                r#"{"10.0":"10.0","a":"\"1.0","b":"\\","c":1.0}"#,
                r#"{"10.0":"10.0","a":"\"1.0","b":"\\","c":1}"#,
            ),
            (
                r#"{"a":1.0e3,"b":10.05,"c":1e2,"d":true}"#,
                r#"{"a":1.0e3,"b":10.05,"c":1e2,"d":true}"#,
            ),
            (r#"{"ä":"ö.0","n":7.0}"#, r#"{"ä":"ö.0","n":7}"#),
            ("{}", "{}"),
        ] {
            let raw = RawValue::from_string(arguments.to_owned()).unwrap();
            assert_eq!(written(&raw).get(), expected);
        }
    }
}
