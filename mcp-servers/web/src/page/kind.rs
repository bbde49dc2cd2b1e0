//! What kinds of content become text.

/// A kind of content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Html,
    Xml,
    Plain,
}

/// The parts of a `Content-Type` header that matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ContentType {
    /// In lower case, without parameters.
    pub(super) essence: String,
    pub(super) charset: Option<String>,
}

impl ContentType {
    pub(super) fn parse(header: &str) -> Self {
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
    pub(super) fn kind(&self) -> Option<Kind> {
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
pub(super) fn sniffed(body: &[u8]) -> Option<Kind> {
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
mod tests {
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
