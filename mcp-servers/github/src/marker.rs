//! The comment at the end of a body, which names the call that created it. Web pages of GitHub do not show it.

use sha2::{Digest, Sha256};

const BEGIN: &str = "<!-- gavel:";
const END: &str = " -->";
const MAX_KEY: usize = 100;

/// A call's marker: `<!-- gavel:KEY -->`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Marker(String);

impl Marker {
    /// A key that could end the comment, or that is long, is replaced by its digest.
    pub(crate) fn of(key: &str) -> Self {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
        let plain = key.len() <= MAX_KEY && key.bytes().all(is_plain) && !key.contains("--") && !key.ends_with('-');
        if plain {
            return Self(format!("{BEGIN}{key}{END}"));
        }
        Self(format!("{BEGIN}sha256:{}{END}", hex::encode(Sha256::digest(key))))
    }

    /// The marker in a body, if there is one.
    pub(crate) fn found_in(body: &str) -> Option<Self> {
        let (start, end) = place(body)?;
        Some(Self(body[start..end].to_owned()))
    }

    pub(crate) fn is_in(&self, body: Option<&str>) -> bool {
        body.is_some_and(|body| body.contains(&self.0))
    }

    /// The body with the marker at its end.
    pub(crate) fn added_to(&self, body: &str) -> String {
        let body = body.trim_end();
        match body.is_empty() {
            true => self.0.clone(),
            false => format!("{body}\n\n{}", self.0),
        }
    }
}

/// The body without any marker. Markers are this server's: they are neither shown nor accepted from a caller.
pub(crate) fn removed(body: &str) -> String {
    let mut body = body.to_owned();
    while let Some((start, end)) = place(&body) {
        body.replace_range(start..end, "");
        body.truncate(body.trim_end().len());
    }
    body
}

/// The first marker's range.
fn place(body: &str) -> Option<(usize, usize)> {
    let start = body.find(BEGIN)?;
    let length = body[start..].find("-->")?;
    Some((start, start + length + 3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_found_where_it_was_added_and_is_not_shown() {
        let marker = Marker::of("01a:b-2");
        let body = marker.added_to("Fixes it.\n");
        assert_eq!(body, "Fixes it.\n\n<!-- gavel:01a:b-2 -->");
        assert!(marker.is_in(Some(&body)) && !marker.is_in(None));
        assert_eq!(Marker::found_in(&body), Some(marker.clone()));
        assert_eq!(removed(&body), "Fixes it.");
        assert_eq!(removed(&format!("{body}\n{body}")), "Fixes it.\n\n\nFixes it.");
        assert_eq!(removed("<!-- gav<!-- gavel:x -->el:y -->!"), "!");
        assert_eq!(marker.added_to(""), "<!-- gavel:01a:b-2 -->");
        assert_eq!(removed("<!-- gavel: not closed"), "<!-- gavel: not closed");
    }

    #[test]
    fn no_key_can_end_the_comment() {
        for key in ["x --> <b>", "a--b", "a-", "", &"k".repeat(200), "ä"] {
            let Marker(text) = Marker::of(key);
            assert_eq!(text.matches("--").count(), 2, "{text}");
            assert!(text.len() < 150, "{text}");
        }
    }
}
