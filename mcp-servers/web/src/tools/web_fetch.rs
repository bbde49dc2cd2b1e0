//! `web_fetch`

use std::sync::Arc;

use gavel_mcp_base::{Call, Fault, Kind, Tool, invalid};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fetch::Fetcher;
use crate::guard::{Guard, MAX_URL};

/// The most text of one call, in bytes.
const PART: usize = 128 << 10;

const ABOUT: &str = "\
Read one page of the public web by its http or https URL. HTML becomes Markdown of its main content; JSON, XML and \
text come as they are; images, PDF and other files are not read. At most 131072 bytes of text per call: if truncated \
is true, call again with offset 131072, then 262144, and so on. A page that needs scripts may be empty.";

#[derive(Deserialize, JsonSchema)]
struct Arguments {
    /// The complete URL, such as https://example.com/page.
    #[schemars(length(max = MAX_URL))]
    url: String,
    /// Where to begin in the text, in bytes. 0 when left out.
    offset: Option<u32>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Page {
    /// The page, or this part of it.
    text: String,
    /// Where the page was, after redirects.
    url: String,
    /// The HTTP status.
    status: u32,
    /// As the site states it.
    content_type: Option<String>,
    /// Of HTML alone.
    title: Option<String>,
    /// Whether more text follows.
    truncated: bool,
    /// The length of the whole text, in bytes of UTF-8.
    bytes: usize,
    /// The URLs that redirected, in order.
    redirects: Vec<String>,
}

pub(super) fn tool(guard: &Guard) -> Tool<Fetcher> {
    let about = format!("{ABOUT} {}", guard.permitted());
    let tool = Tool::new("web_fetch", "Read a web page", about, Kind::Reads, fetch);
    tool.open_world(true).with_text("text")
}

async fn fetch(fetcher: Arc<Fetcher>, call: Call<Arguments>) -> Result<Page, Fault> {
    let fetched = fetcher.fetch(&call.arguments.url).await?;
    let page = fetched.page;
    let bytes = page.text.len();
    let offset = call.arguments.offset.unwrap_or(0) as usize;
    let (text, truncated) = part(&page.text, offset).ok_or_else(|| {
        let rule = format!("is beyond the end of the text, which has {bytes} bytes");
        invalid("offset", &rule).with("bytes", bytes)
    })?;
    Ok(Page {
        text: text.to_owned(),
        url: fetched.url.into(),
        status: page.status.into(),
        content_type: page.content_type,
        title: page.title,
        truncated,
        bytes,
        redirects: fetched.redirects.into_iter().map(Into::into).collect(),
    })
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
