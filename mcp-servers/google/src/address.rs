//! E-mail addresses that are not misleading.
//!
//! The host's policy checks them before it requests approval. They are checked again here, where they take effect.

use std::fmt;

use email_address::{EmailAddress, Options};
use gavel_mcp_base::ToolError;
use gavel_mcp_base::text::is_invisible;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::Code;

/// RFC 5321: 64 for the local part, 254 for the whole address. The name is extra.
const MAX_ADDRESS: usize = 254;
const MAX_NAME: usize = 128;

/// One recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Recipient {
    pub(crate) name: Option<String>,
    /// In ASCII: an international domain has its `xn--` form, as in transport.
    pub(crate) address: String,
}

impl fmt::Display for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name} <{}>", self.address),
            None => f.write_str(&self.address),
        }
    }
}

/// A recipient as it is given.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(description = "", extend("x-exact" = true))]
pub(crate) struct Given(String);

/// The recipients in an argument.
pub(crate) fn recipients(name: &str, given: &[Given], max: usize) -> Result<Vec<Recipient>, ToolError> {
    if given.len() > max {
        return Err(too_many(given.len(), max).about(name));
    }
    let read = |(place, Given(text)): (usize, &Given)| {
        let pointer = format!("{name}/{place}");
        parse(text)
            .map_err(|rule| ToolError::new(Code::InvalidRecipient, format!("`{pointer}` {rule}.")).about(&pointer))
    };
    given.iter().enumerate().map(read).collect()
}

pub(crate) fn too_many(count: usize, max: usize) -> ToolError {
    ToolError::new(
        Code::TooManyRecipients,
        format!("There are {count} recipients; at most {max} are allowed in one call."),
    )
    .with("max", max)
    .with("count", count)
}

/// Is it an address without a name?
pub(crate) fn is_bare(text: &str) -> bool {
    bare(text).is_ok()
}

/// Parses `ann@example.com` or `Ann Example <ann@example.com>`; the error is the broken rule.
pub(crate) fn parse(text: &str) -> Result<Recipient, &'static str> {
    if text.chars().any(is_unsafe) {
        return Err("contains a control character or an invisible character");
    }
    let text = text.trim();
    let Some(inner) = text.strip_suffix('>') else {
        return Ok(Recipient {
            name: None,
            address: bare(text)?,
        });
    };
    let (name, address) = inner
        .rsplit_once('<')
        .ok_or("is not an e-mail address such as ann@example.com or Ann <ann@example.com>")?;
    let address = bare(address)?;
    let name = name.trim();
    let name = name
        .strip_prefix('"')
        .and_then(|name| name.strip_suffix('"'))
        .unwrap_or(name)
        .trim();
    // A name that repeats the address adds nothing.
    if bare(name).is_ok_and(|same| same == address) {
        return Ok(Recipient { name: None, address });
    }
    // A name that looks like an address could be mistaken for one.
    if name.contains(['@', '<', '>', '"', '\\', '＠', '﹫']) {
        return Err("has a name with @, <, >, a quotation mark or a backslash in it");
    }
    // Some mail programs decode it even within quotes.
    if name.contains("=?") {
        return Err("has a name with =? in it, which mail programs read as something else");
    }
    if name.chars().count() > MAX_NAME {
        return Err("has a name of more than 128 characters");
    }
    Ok(Recipient {
        name: Some(name.to_owned()).filter(|name| !name.is_empty()),
        address,
    })
}

/// An address without a name, its domain in ASCII.
fn bare(text: &str) -> Result<String, &'static str> {
    const NONE: &str = "is not an e-mail address such as ann@example.com or Ann <ann@example.com>";
    let (local, domain) = text.rsplit_once('@').ok_or(NONE)?;
    if !local.is_ascii() {
        return Err("has a part before the @ that is not ASCII, which is not supported");
    }
    if local.starts_with('"') {
        return Err("has a quoted part before the @, which is not supported");
    }
    let domain = idna::domain_to_ascii_strict(domain).map_err(|_| NONE)?;
    let address = format!("{local}@{domain}");
    let options = Options::default()
        .with_required_tld()
        .without_display_text()
        .without_domain_literal();
    if address.len() > MAX_ADDRESS || EmailAddress::parse_with_options(&address, options).is_err() {
        return Err(NONE);
    }
    Ok(address)
}

/// Characters that could begin a header, or that are invisible but change how text is displayed. The variation selector
/// of emoji changes nothing else.
pub(crate) fn is_unsafe(character: char) -> bool {
    character.is_control() || is_invisible(character) && character != '\u{fe0f}'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<(Option<String>, String)> {
        parse(text).ok().map(|recipient| (recipient.name, recipient.address))
    }

    ///
    #[test]
    fn addresses_are_read_with_and_without_names() {
        let plain = |address: &str| Some((None, address.to_owned()));
        let named = |name: &str, address: &str| Some((Some(name.to_owned()), address.to_owned()));
        assert_eq!(read("ann@example.com"), plain("ann@example.com"));
        assert_eq!(
            read(" o'hara+x@sub.example.co.uk "),
            plain("o'hara+x@sub.example.co.uk")
        );
        assert_eq!(read("<ann@example.com>"), plain("ann@example.com"));
        assert_eq!(read("ann@example.com <ann@example.com>"), plain("ann@example.com"));
        assert_eq!(read("Ann <ann@example.com>"), named("Ann", "ann@example.com"));
        assert_eq!(
            read("\"Müller, Ann\" <ann@example.com>"),
            named("Müller, Ann", "ann@example.com")
        );
        assert_eq!(read("李 <li@例え.jp>"), named("李", "li@xn--r8jz45g.jp"));
    }

    ///
    #[test]
    fn what_is_no_address_or_pretends_to_be_another_is_refused() {
        let long = format!("{}@example.com", "x".repeat(65));
        for text in [
            "",
            " ",
            "ann",
            "ann@",
            "@example.com",
            "ann@example",
            "ann@localhost",
            "ann@@example.com",
            "ann@exa mple.com",
            "ann@example.com, ben@example.com",
            "ann@example.com ben@example.com",
            "ann@[127.0.0.1]",
            "ann@-example.com",
            "ann@example..com",
            ".ann@example.com",
            "\"ann\"@example.com",
            "änn@example.com",
            "ann@example.com\r\nBcc: eve@example.com",
            "Ann\nBcc: eve@example.com <ann@example.com>",
            "Ann\0 <ann@example.com>",
            "boss@example.com <eve@example.org>",
            "boss＠example.com <eve@example.org>",
            "Ann <ann@example.com> <eve@example.org>",
            "Ann \u{202e}moc.elpmaxe <eve@example.org>",
            "an\u{200b}n@example.com",
            "<>",
            "Ann <>",
            long.as_str(),
        ] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }
}
