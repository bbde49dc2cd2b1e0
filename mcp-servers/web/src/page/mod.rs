//! From an answer to the text of a page.

pub(crate) mod encoding;
mod hidden;
mod html;
mod kind;
mod parse;
mod visible;

use gavel_mcp_base::ToolError;
use url::Url;

use crate::error::{http_error, unsupported};
use crate::http::Response;
use crate::work::Workers;
use encoding::States;
use kind::{ContentType, Kind};
pub(crate) use visible::visible;

/// The longest body on the wire, in bytes.
const WIRE: usize = 2 << 20;
/// The longest body after decompression, in bytes.
const DECODED: usize = 8 << 20;

/// A page as text.
#[derive(Debug, Clone)]
pub(crate) struct Page {
    pub(crate) text: String,
    pub(crate) status: u16,
    /// The media type as the site states it, in lower case and without parameters.
    pub(crate) content_type: Option<String>,
    /// Of HTML alone.
    pub(crate) title: Option<String>,
}

/// Reads an answer that is not a redirect. A body that would not become text is not read.
pub(crate) async fn read(url: Url, response: Response, workers: &Workers) -> Result<Page, ToolError> {
    let status = response.status().as_u16();
    if !response.status().is_success() {
        return Err(http_error(status));
    }
    let content_type = response.header("content-type").map(ContentType::parse);
    let kind = match &content_type {
        None => None,
        Some(stated) => Some(stated.kind().ok_or_else(|| not_text(&stated.essence))?),
    };
    let compression = response.header("content-encoding").map(str::to_owned);
    let body = response.body(WIRE).await?;
    let (content_type, charset) = content_type.map(|stated| (stated.essence, stated.charset)).unzip();
    let charset = charset.flatten();
    let converted = workers.run(move || {
        let body = encoding::decoded(compression.as_deref(), body, DECODED)?;
        converted(&body, kind, charset.as_deref(), &url)
    });
    let (title, text) = converted.await??;
    Ok(Page {
        text,
        status,
        content_type,
        title,
    })
}

/// The title and the text.
fn converted(
    body: &[u8],
    kind: Option<Kind>,
    charset: Option<&str>,
    url: &Url,
) -> Result<(Option<String>, String), ToolError> {
    let binary = || unsupported("What the site sent is not text.");
    let kind = kind.or_else(|| kind::sniffed(body)).ok_or_else(binary)?;
    let states = match kind {
        Kind::Html => States::Meta,
        Kind::Xml => States::Declaration,
        Kind::Plain => States::Nothing,
    };
    let text = encoding::text(body, charset, states).ok_or_else(binary)?;
    match kind {
        Kind::Html => {
            let page = html::convert(&text, url);
            let page = page.ok_or_else(|| unsupported("The page's HTML is too complex."))?;
            Ok((page.title, page.text))
        }
        Kind::Xml | Kind::Plain => Ok((None, text)),
    }
}

fn not_text(essence: &str) -> ToolError {
    let essence = visible(essence);
    let shown: String = essence.chars().take(100).collect();
    unsupported(&format!(
        "The page is {shown:?}. Only HTML, JSON, XML and text are read."
    ))
    .with("contentType", shown)
}
