//! What records keep.

use secrecy::SecretString;

use super::read::Read;
use super::settings::{ContentMode, Records};

/// What decision, tool-call and audit records keep of messages, replies, arguments and results.
#[derive(Clone, Debug)]
pub enum Content {
    /// The full content.
    Full,
    /// A keyed hash: equal content can be found, but none can be read. The key has at least 32 bytes.
    Hash(SecretString),
    /// No content.
    None,
}

pub(super) fn read(values: &Read<'_>) -> Option<Content> {
    let Records { content, key } = Records::read(values)?;
    if key.is_some() && !matches!(content, ContentMode::Hash) {
        values.warn("records.key is given, but only records.content = hash uses it");
    }
    match content {
        ContentMode::Full => Some(Content::Full),
        ContentMode::Hash => values
            .needed("records.key", key, "records.content = hash")
            .map(Content::Hash),
        ContentMode::None => Some(Content::None),
    }
}
