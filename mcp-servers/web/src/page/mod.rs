//! From an answer to the text of a page.

mod html;
mod parse;

use std::io::Read;

use dom_query::{Document, NodeRef};
use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};
use flate2::read::MultiGzDecoder;
use gavel_mcp_base::ToolError;
use gavel_mcp_base::text::is_invisible;
use url::Url;

use crate::error::{http_error, no_answer, too_large, unsupported};
use crate::http::Response;
use crate::work::Workers;

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
        let body = decoded(compression.as_deref(), body, DECODED)?;
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
    let kind = kind.or_else(|| sniffed(body)).ok_or_else(binary)?;
    let states = match kind {
        Kind::Html => States::Meta,
        Kind::Xml => States::Declaration,
        Kind::Plain => States::Nothing,
    };
    let text = decoded_text(body, charset, states).ok_or_else(binary)?;
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

// Text without characters that a reader does not see: they carry instructions past the people who check a page.

/// The text without invisible and control characters, except line breaks and tabs.
pub(crate) fn visible(text: &str) -> String {
    let is_seen = |c: &char| matches!(c, '\n' | '\t') || !c.is_control() && !is_invisible(*c);
    text.chars().filter(is_seen).collect()
}

#[cfg(test)]
mod visible_tests {
    use super::*;

    #[test]
    fn what_is_not_seen_is_removed() {
        let tags: String = "ignore"
            .chars()
            .filter_map(|c| char::from_u32(0xe0000 + u32::from(c)))
            .collect();
        let text = format!("a\u{200b}b\u{202e}c\u{fe0f}{tags}\u{0}\u{ad}d\n\te é 安");
        assert_eq!(visible(&text), "abcd\n\te é 安");
    }
}

/// A kind of content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Html,
    Xml,
    Plain,
}

/// The parts of a `Content-Type` header that matter.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ContentType {
    /// In lower case, without parameters.
    essence: String,
    charset: Option<String>,
}

impl ContentType {
    fn parse(header: &str) -> Self {
        let mut parts = header.split(';');
        let essence = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
        let charset = parts.find_map(|parameter| {
            let (name, value) = parameter.split_once('=')?;
            let value = value.trim().trim_matches(['"', '\'']);
            name.trim().eq_ignore_ascii_case("charset").then(|| value.to_owned())
        });
        Self { essence, charset }
    }

    /// The kind, if it is text.
    fn kind(&self) -> Option<Kind> {
        let essence = &*self.essence;
        match essence {
            "text/html" | "application/xhtml+xml" => Some(Kind::Html),
            "text/xml" | "application/xml" => Some(Kind::Xml),
            "application/json"
            | "application/x-ndjson"
            | "application/jsonl"
            | "application/javascript"
            | "application/x-javascript"
            | "application/ecmascript"
            | "application/yaml"
            | "application/x-yaml"
            | "application/toml"
            | "application/sql" => Some(Kind::Plain),
            _ if essence.ends_with("+xml") => Some(Kind::Xml),
            _ if essence.ends_with("+json") || essence.ends_with("+yaml") => Some(Kind::Plain),
            _ if essence.starts_with("text/") => Some(Kind::Plain),
            _ => None,
        }
    }
}

/// The kind of a body without a content type.
fn sniffed(body: &[u8]) -> Option<Kind> {
    let head = String::from_utf8_lossy(&body[..body.len().min(512)])
        .trim_start()
        .to_lowercase();
    match head {
        head if head.starts_with("<!doctype html") || head.starts_with("<html") => Some(Kind::Html),
        head if head.starts_with("<?xml") => Some(Kind::Xml),
        _ => std::str::from_utf8(body).is_ok().then_some(Kind::Plain),
    }
}

#[cfg(test)]
mod kind_tests {
    use super::*;

    #[test]
    fn text_is_recognized_by_its_content_type() {
        for (header, essence, charset, kind) in [
            ("text/html; charset=UTF-8", "text/html", Some("UTF-8"), Some(Kind::Html)),
            (
                "Text/HTML;x=y; CharSet=\"latin1\"",
                "text/html",
                Some("latin1"),
                Some(Kind::Html),
            ),
            (
                "application/problem+json",
                "application/problem+json",
                None,
                Some(Kind::Plain),
            ),
            ("application/atom+xml", "application/atom+xml", None, Some(Kind::Xml)),
            ("text/csv", "text/csv", None, Some(Kind::Plain)),
            ("application/pdf", "application/pdf", None, None),
            ("application/octet-stream", "application/octet-stream", None, None),
            ("image/png", "image/png", None, None),
        ] {
            let parsed = ContentType::parse(header);
            assert_eq!(
                (&*parsed.essence, parsed.charset.as_deref(), parsed.kind()),
                (essence, charset, kind)
            );
        }
        assert_eq!(sniffed(b"\n<!DOCTYPE html><p>"), Some(Kind::Html));
        assert_eq!(sniffed(b"hello"), Some(Kind::Plain));
        assert_eq!(sniffed(b"\x89PNG\xff"), None);
    }
}

// The parts of a page that a reader does not see, by their elements, attributes and own styles. Style sheets are not
// evaluated.

/// Elements without text of the page, and those that their attributes hide.
const NOT_SHOWN: &str = "script, style, noscript, template, iframe, frame, object, embed, applet, svg, canvas, audio, \
     video, map, input, select, textarea, button, datalist, dialog:not([open]), [hidden], [aria-hidden=\"true\"]";

/// Declarations that hide an element, without white space and in lower case. They may be followed by `!important`.
const HIDING: [&str; 8] = [
    "display:none",
    "visibility:hidden",
    "visibility:collapse",
    "content-visibility:hidden",
    "color:transparent",
    "clip:rect(0",
    "clip-path:inset(",
    "transform:scale(0)",
];

/// Properties that hide an element if they are zero, or nearly.
const SIZES: [&str; 5] = ["opacity:", "font-size:", "max-height:", "max-width:", "height:"];
const ALMOST_NOTHING: f64 = 0.1;

/// Properties that hide an element if they move it far out of sight.
const PLACES: [&str; 5] = ["text-indent:", "left:", "right:", "top:", "margin-left:"];
const FAR_AWAY: f64 = -90.0;

/// Removes everything that is not shown.
fn remove_hidden(page: &Document) {
    page.select(NOT_SHOWN).remove();
    for element in page.select("[style]").nodes() {
        if element.attr("style").is_some_and(|style| hides(&style)) {
            element.remove_from_parent();
        }
    }
    let comments: Vec<NodeRef> = page.root().descendants_it().filter(NodeRef::is_comment).collect();
    for comment in comments {
        comment.remove_from_parent();
    }
}

/// A style that is written with escapes or comments hides what it does, so it counts as hiding the element.
fn hides(style: &str) -> bool {
    let style: String = style.chars().filter(|character| !character.is_whitespace()).collect();
    let style = style.to_lowercase();
    style.contains('\\')
        || style.contains("/*")
        || style.split(';').any(|declaration| {
            HIDING.iter().any(|hiding| declaration.starts_with(hiding))
                || number(declaration, &SIZES).is_some_and(|size| size < ALMOST_NOTHING)
                || number(declaration, &PLACES).is_some_and(|place| place < FAR_AWAY)
        })
}

/// The number with which a declaration of one of these properties begins, whatever its unit.
fn number(declaration: &str, properties: &[&str]) -> Option<f64> {
    let value = properties
        .iter()
        .find_map(|property| declaration.strip_prefix(property))?;
    let end = value.find(|character: char| !character.is_ascii_digit() && !matches!(character, '.' | '-' | '+'));
    value[..end.unwrap_or(value.len())].parse().ok()
}

#[cfg(test)]
mod hidden_tests {
    use super::*;

    #[test]
    fn styles_that_hide_are_recognized() {
        for style in [
            "display: none",
            "color:red; DISPLAY : none !important",
            "visibility:hidden",
            "opacity:0",
            "opacity: 0.01",
            "opacity:0%",
            "font-size:0",
            "font-size: 0px",
            "font-size:0.05em",
            "position:absolute;left:-9999px",
            "text-indent: -999em",
            "d\\69splay:none",
            "display:/**/none",
            "color: transparent",
            "max-height:0",
        ] {
            assert!(hides(style), "{style}");
        }
        for style in [
            "",
            "display:block",
            "opacity:0.8",
            "font-size:12px",
            "font-size:0.9em",
            "margin-left:-3px",
            "color:#000",
            "max-width:100%",
            "background-color:transparent",
            "opacity:1",
        ] {
            assert!(!hides(style), "{style}");
        }
    }
}

/// How far into a page its own statement of the character set is looked for, in bytes, as browsers do.
const STATEMENT: usize = 1024;

/// The body without its compression, of at most `most` bytes. Only gzip is asked for.
pub(crate) fn decoded(encoding: Option<&str>, body: Vec<u8>, most: usize) -> Result<Vec<u8>, ToolError> {
    match encoding.map(|name| name.trim().to_ascii_lowercase()).as_deref() {
        None | Some("" | "identity") => Ok(body),
        Some("gzip" | "x-gzip") => {
            let mut decoded = Vec::new();
            let read = MultiGzDecoder::new(&*body)
                .take(most as u64 + 1)
                .read_to_end(&mut decoded);
            match read {
                Ok(_) if decoded.len() > most => Err(too_large("The decompressed page", most)),
                Ok(_) => Ok(decoded),
                Err(_) => Err(no_answer("The site's answer is not valid gzip, although it says so.")),
            }
        }
        Some(_) => Err(unsupported(
            "The site's answer is compressed in a way that was not asked for.",
        )),
    }
}

/// The text of a body. Its character set is that of its byte order mark, of the header, or of its own statement, in
/// this order. Without any of them it is UTF-8, or Windows-1252 if it is not valid as UTF-8.
fn decoded_text(body: &[u8], header: Option<&str>, states: States) -> Option<String> {
    let marked = Encoding::for_bom(body).map(|(encoding, _)| encoding);
    let labelled = || header.and_then(|label| Encoding::for_label(label.as_bytes()));
    let stated = || match states {
        States::Nothing => None,
        States::Meta => statement(body, b"charset="),
        States::Declaration => statement(body, b"encoding=").filter(|_| body.starts_with(b"<?xml")),
    };
    let guess = || {
        if std::str::from_utf8(body).is_ok() {
            UTF_8
        } else {
            WINDOWS_1252
        }
    };
    let encoding = marked.or_else(labelled).or_else(stated).unwrap_or_else(guess);
    let (text, _, _) = encoding.decode(body);
    (!text.contains('\0')).then(|| text.into_owned())
}

/// How a kind of content states its character set.
#[derive(Debug, Clone, Copy)]
enum States {
    Nothing,
    /// `<meta charset=…>`, also within `content="text/html; charset=…"`.
    Meta,
    /// `<?xml … encoding="…"?>`
    Declaration,
}

/// The value after a key. A statement that can be read as ASCII is not of UTF-16, whatever it says.
fn statement(body: &[u8], key: &[u8]) -> Option<&'static Encoding> {
    let head = body[..body.len().min(STATEMENT)].to_ascii_lowercase();
    let at = head.windows(key.len()).position(|window| window == key)?;
    let rest = &head[at + key.len()..];
    let rest = rest
        .strip_prefix(b"\"")
        .or_else(|| rest.strip_prefix(b"'"))
        .unwrap_or(rest);
    let end = rest
        .iter()
        .position(|byte| !byte.is_ascii_alphanumeric() && !b"-_:.".contains(byte));
    Encoding::for_label(&rest[..end.unwrap_or(rest.len())]).map(Encoding::output_encoding)
}

#[cfg(test)]
mod encoding_tests {
    use super::*;

    #[test]
    fn the_character_set_comes_from_mark_header_statement_or_guess() {
        let latin = b"<meta charset='iso-8859-1'>caf\xe9";
        let utf8 = "<meta charset='iso-8859-1'>café".as_bytes();
        let ends = |body: &[u8], header, states, end: &str| {
            let text = decoded_text(body, header, states).expect("text");
            assert!(text.ends_with(end), "{text:?} for {end:?}");
        };
        ends(latin, None, States::Meta, ">café");
        ends(utf8, Some("utf-8"), States::Meta, ">café");
        ends(&[b"\xef\xbb\xbf", utf8].concat(), Some("latin1"), States::Meta, ">café");
        ends(b"caf\xe9", None, States::Nothing, "café");
        ends("café".as_bytes(), None, States::Nothing, "café");
        ends(b"\xff\xfec\0a\0f\0\xe9\0", None, States::Nothing, "café");
        ends(b"\x83e\x83X\x83g", Some("Shift_JIS"), States::Nothing, "テスト");
        ends(
            b"<?xml version='1.0' encoding=\"koi8-r\"?><a>\xf4",
            None,
            States::Declaration,
            ">Т",
        );
        ends(b"<meta charset=utf-16>x", None, States::Meta, ">x");
        assert_eq!(decoded_text(b"a\0b", None, States::Nothing), None);
    }
}
