//! `web_fetch`

use gavel_mcp_base::schema::{self, Behaviour};
use gavel_mcp_base::{Answer, Arguments, ToolError, invalid, missing};
use rmcp::model::{JsonObject, Tool};
use serde_json::json;
use url::Url;

use crate::fetch::Fetcher;
use crate::guard::{Guard, MAX_URL};

pub(super) const NAME: &str = "web_fetch";
/// The property of an answer that is its text.
pub(super) const TEXT: &str = "text";

/// The most text of one call, in bytes.
const PART: usize = 128 << 10;

const ABOUT: &str = "\
Read one page of the public web by its http or https URL. HTML becomes Markdown of its main content; JSON, XML and \
text come as they are; images, PDF and other files are not read. At most 131072 bytes of text per call: if truncated \
is true, call again with offset 131072, then 262144, and so on. A page that needs scripts may be empty.";

pub(super) fn tool(guard: &Guard) -> Tool {
    let offset = "Where to begin in the text, in bytes. 0 when left out.";
    let arguments = json!({
        "url": { "type": "string", "description": "The complete URL, such as https://example.com/page." },
        "offset": { "type": "integer", "minimum": 0, "description": offset }
    });
    let results = schema::properties([
        (
            TEXT,
            json!({ "type": "string", "description": "The page, or this part of it." }),
        ),
        (
            "url",
            json!({ "type": "string", "description": "Where the page was, after redirects." }),
        ),
        (
            "status",
            json!({ "type": "integer", "description": "The HTTP status." }),
        ),
        (
            "contentType",
            json!({ "type": ["string", "null"], "description": "As the site states it." }),
        ),
        (
            "title",
            json!({ "type": ["string", "null"], "description": "Of HTML alone." }),
        ),
        (
            "truncated",
            json!({ "type": "boolean", "description": "Whether more text follows." }),
        ),
        (
            "bytes",
            json!({ "type": "integer", "description": "The length of the whole text, in bytes of UTF-8." }),
        ),
        (
            "redirects",
            json!({
                "type": "array",
                "items": { "type": "string" },
                "description": "The URLs that redirected, in order."
            }),
        ),
    ]);
    let required = [
        "text",
        "url",
        "status",
        "contentType",
        "title",
        "truncated",
        "bytes",
        "redirects",
    ];
    let mut tool = schema::tool(
        NAME,
        "Read a web page",
        ABOUT,
        schema::input(arguments, &["url"]),
        schema::output(results, &required),
        Behaviour {
            read_only: true,
            destructive: false,
            idempotent: true,
            open_world: true,
        },
    );
    tool.description = Some(format!("{ABOUT} {}", guard.permitted()).into());
    tool
}

pub(super) async fn carry_out(arguments: Option<JsonObject>, fetcher: &Fetcher) -> Result<Answer, ToolError> {
    let arguments = Arguments::new(arguments, &["url", "offset"])?;
    let url = arguments.text("url", MAX_URL)?.ok_or_else(|| missing("url"))?;
    let offset = arguments.integer("offset", 0, u32::MAX)?.unwrap_or(0) as usize;
    let fetched = fetcher.fetch(&url).await?;
    let page = fetched.page;
    let bytes = page.text.len();
    let (text, truncated) = part(&page.text, offset).ok_or_else(|| {
        invalid(
            "offset",
            &format!("is beyond the end of the text, which has {bytes} bytes"),
        )
        .with("bytes", bytes)
    })?;
    let redirects: Vec<_> = fetched.redirects.iter().map(Url::as_str).collect();
    Ok(Answer::of(&json!({
        TEXT: text,
        "url": fetched.url.as_str(),
        "status": page.status,
        "contentType": page.content_type,
        "title": page.title,
        "truncated": truncated,
        "bytes": bytes,
        "redirects": redirects,
    })))
}

/// The part of a text from an offset, and whether more follows. Both ends move back to the beginning of a character, so
/// that parts at multiples of [`PART`] follow each other without a gap. `None` if the offset is beyond the end.
fn part(text: &str, offset: usize) -> Option<(&str, bool)> {
    if offset > text.len() || offset == text.len() && offset > 0 {
        return None;
    }
    let start = text.floor_char_boundary(offset);
    let end = text.floor_char_boundary(offset.saturating_add(PART));
    Some((&text[start..end], end < text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other_without_a_gap() {
        for text in ["", "x", &"é安a".repeat(90_000), &"a".repeat(PART), &"安".repeat(PART)] {
            let mut whole = String::new();
            for offset in (0..).step_by(PART) {
                let (part, more) = part(text, offset).expect("a part");
                assert!(part.len() <= PART + 3);
                whole.push_str(part);
                if !more {
                    break;
                }
            }
            assert!(whole == *text);
            assert_eq!(part(text, text.len() + 1), None);
        }
    }
}
