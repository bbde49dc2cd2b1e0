//! Determines the kind of a body from its label, and from its beginning if the label is not sufficient.

use reqwest::header::{CONTENT_TYPE, HeaderMap};

/// Longest label that is reported, in bytes.
const SHOWN: usize = 100;

/// What a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Json,
    Events,
    /// The body is empty.
    Empty,
    Other,
}

/// The kind according to the label.
pub(super) fn labelled(headers: &HeaderMap) -> Kind {
    let label = label(headers);
    let media = label.split(';').next().unwrap_or_default().trim();
    let kind = media.split_once('/').map(|(_, kind)| kind).unwrap_or_default();
    match kind {
        "event-stream" => Kind::Events,
        "json" | "json-rpc" | "jsonrpc" | "jsonrequest" | "x-json" => Kind::Json,
        _ if kind.ends_with("+json") => Kind::Json,
        _ => Kind::Other,
    }
}

/// The kind according to the first bytes: a body that begins as JSON is JSON, whatever its label. White space alone
/// says nothing.
pub(super) fn begun(label: Kind, bytes: &[u8]) -> Kind {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    const FIELDS: [&[u8]; 5] = [b"data:", b"event:", b"id:", b"retry:", b":"];
    match bytes.trim_ascii_start() {
        [] => Kind::Empty,
        [b'{' | b'[', ..] => Kind::Json,
        begun if FIELDS.iter().any(|field| begun.starts_with(field)) => Kind::Events,
        _ => label,
    }
}

/// The label for an operator.
pub(super) fn described(headers: &HeaderMap) -> String {
    match label(headers) {
        label if label.is_empty() => "without a `content-type`".to_owned(),
        label => format!("as `{}`", &label[..label.floor_char_boundary(SHOWN)]),
    }
}

fn label(headers: &HeaderMap) -> String {
    let label = headers.get(CONTENT_TYPE).and_then(|label| label.to_str().ok());
    label.unwrap_or_default().trim().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_body_is_known_by_its_label_in_any_case_and_by_how_it_begins() {
        for (label, body, kind) in [
            ("application/json", "{}", Kind::Json),
            ("Application/JSON; charset=UTF-8", "{}", Kind::Json),
            ("application/vnd.api+json", "{}", Kind::Json),
            ("text/json", "\u{feff} [", Kind::Json),
            ("TEXT/Event-Stream", "data: {}", Kind::Events),
            ("text/event-stream", "\n\n:", Kind::Events),
            // The label and the body differ in kind.
            ("text/event-stream", "{}", Kind::Json),
            ("application/json", "event: message\n", Kind::Events),
            ("text/html", "{", Kind::Json),
            ("", "data: {}", Kind::Events),
            ("text/html", "<html>", Kind::Other),
            ("", "no", Kind::Other),
            ("application/json", "nope", Kind::Json),
            ("text/event-stream", "", Kind::Empty),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, label.parse().unwrap());
            assert_eq!(begun(labelled(&headers), body.as_bytes()), kind, "{label} {body}");
        }
    }
}
