//! Reads the list of a server's tools, page by page.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::answers::METHOD_NOT_FOUND;
use super::attempt::{Answered, Attempt, Fault};
use super::connection::Connection;
use super::definition::{MAX_LEVELS, MAX_LISTED, TOO_DEEP};
use super::log;
use super::message;
use crate::domain::budget::Share;
use crate::domain::{nesting, surrogates};

/// Maximum pages of a list.
const MAX_PAGES: usize = 64;
/// Maximum bytes of a list, all pages together.
const MAX_LIST: usize = 16 * 1024 * 1024;
/// Maximum bytes of a cursor that are shown.
const SHOWN: usize = 64;

/// A list of tools, and its share of the answer budget.
#[derive(Default)]
pub(super) struct List {
    pub(super) tools: Vec<Value>,
    held: Vec<Share>,
}

/// One page of it.
struct Page {
    tools: Vec<Value>,
    next: Option<String>,
    bytes: usize,
}

/// Lists all tools, each as the JSON that was received, so that one invalid tool does not hide the others. A list with
/// more than [`MAX_LISTED`] tools ends with the first one beyond the limit.
///
/// # Errors
/// Why there is no list.
pub(super) async fn read(connection: &Connection) -> Result<List, Fault> {
    let mut list = List::default();
    let mut known = HashSet::new();
    let mut cursors = HashSet::new();
    let mut cursor: Option<String> = None;
    let mut bytes = 0;
    for _ in 0..MAX_PAGES {
        let is_first = cursor.is_none();
        let Some(page) = page(connection, cursor.take(), &mut list.held).await? else {
            return Ok(list);
        };
        bytes += page.bytes;
        if bytes > MAX_LIST {
            let words = format!("its list of tools has more than {MAX_LIST} bytes");
            return Err(Fault::lasting(words));
        }
        let names = page.tools.iter().map(|tool| tool["name"].to_string());
        let new = names.filter(|name| known.insert(name.clone())).count();
        if new == 0 && !page.tools.is_empty() && !is_first {
            // The server sends the same tools for every cursor, so the list is complete.
            log::line!(
                connection.inbox.source.log,
                warn,
                "cursor without effect",
                "a `nextCursor` of its list of tools returned no new tools; the list is treated as complete"
            );
            return Ok(list);
        }
        list.tools.extend(page.tools);
        if list.tools.len() > MAX_LISTED {
            list.tools.truncate(MAX_LISTED + 1);
            return Ok(list);
        }
        let Some(next) = page.next else { return Ok(list) };
        if !cursors.insert(next.clone()) {
            let next = connection.inbox.source.words(&next, SHOWN);
            let words = format!("its list of tools has the same `nextCursor` twice, `{next}`, and has no end");
            return Err(Fault::lasting(words));
        }
        cursor = Some(next);
    }
    let words = format!("its list of tools has more than {MAX_PAGES} pages, each with another `nextCursor`");
    Err(Fault::lasting(words))
}

/// One page; `None` if the server has no lists. Its share of the answer budget is added to `held`.
async fn page(connection: &Connection, cursor: Option<String>, held: &mut Vec<Share>) -> Result<Option<Page>, Fault> {
    let cursor = cursor.map(|cursor| Value::from(cursor).to_string());
    let members = cursor.as_deref().map(|cursor| ("cursor", cursor));
    let answered = connection.request("tools/list", members.as_slice()).await;
    let (text, share) = match answered {
        Answered {
            attempt: Attempt::Result(text, share),
            ..
        } => (text, share),
        Answered {
            attempt: Attempt::Error {
                code: METHOD_NOT_FOUND, ..
            },
            ..
        } => return Ok(None),
        other => {
            let fault = Fault::new(other, &connection.inbox.source);
            let words = format!("its tools could not be listed: {}", fault.words);
            return Err(Fault { words, ..fault });
        }
    };
    held.extend(share);
    let tree = message::tree_bytes(&text);
    let tree = tree.map_err(|why| Fault::lasting(format!("its list of tools cannot be read: {why}")))?;
    let mut tree_held = connection.inbox.source.held();
    let room = tree_held.add(tree);
    room.map_err(|no_room| Fault::passing(no_room.to_string()))?;
    held.extend(tree_held.take());
    let page = parse(&text).ok_or_else(|| {
        let words = "its answer to `tools/list` has no list as `tools`".to_owned();
        Fault::lasting(words)
    });
    page.map(Some)
}

/// Parses one page. Go and PHP write an empty list as null or as an empty object.
fn parse(text: &[u8]) -> Option<Page> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Members<'a> {
        /// Whatever is there: null is not the same as nothing.
        #[serde(borrow)]
        tools: &'a RawValue,
        #[serde(default)]
        next_cursor: Value,
    }
    let repaired = surrogates::repaired(text);
    let members: Members<'_> = serde_json::from_slice(&repaired).ok()?;
    let tools: Vec<&RawValue> = match members.tools.get() {
        "{}" | "null" => Vec::new(),
        list => serde_json::from_str(list).ok()?,
    };
    Some(Page {
        tools: tools.into_iter().map(tool).collect::<Result<_, _>>().ok()?,
        next: match members.next_cursor {
            Value::String(next) if !next.is_empty() => Some(next),
            Value::Number(next) => Some(next.to_string()),
            _ => None,
        },
        bytes: text.len(),
    })
}

/// A tool. One that is nested too deeply for parsers keeps only its name.
fn tool(raw: &RawValue) -> Result<Value, serde_json::Error> {
    #[derive(Deserialize)]
    struct Named {
        #[serde(default)]
        name: Value,
    }
    if nesting::within(raw.get().as_bytes(), MAX_LEVELS) {
        return serde_json::from_str(raw.get());
    }
    let named = serde_json::from_str::<Named>(raw.get())?;
    Ok(json!({"name": named.name, TOO_DEEP: true}))
}
