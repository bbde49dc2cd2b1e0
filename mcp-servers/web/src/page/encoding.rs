//! From bytes on the wire to text: compression and character sets.

use std::io::Read;

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};
use flate2::read::MultiGzDecoder;
use gavel_mcp_base::ToolError;

use crate::error::{no_answer, too_large, unsupported};

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
pub(super) fn text(body: &[u8], header: Option<&str>, states: States) -> Option<String> {
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
pub(super) enum States {
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
mod tests {
    use super::*;

    #[test]
    fn the_character_set_comes_from_mark_header_statement_or_guess() {
        let latin = b"<meta charset='iso-8859-1'>caf\xe9";
        let utf8 = "<meta charset='iso-8859-1'>café".as_bytes();
        let ends = |body: &[u8], header, states, end: &str| {
            let text = text(body, header, states).expect("text");
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
        assert_eq!(text(b"a\0b", None, States::Nothing), None);
    }
}
