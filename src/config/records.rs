//! What records keep.

use secrecy::SecretString;

use super::read::Read;
use super::values;

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

pub(super) fn read(read: &mut Read<'_>) -> Option<Content> {
    let key = read.parse("records.key", values::signing_secret);
    let content = read.parse("records.content", |text| match text {
        "full" => Some(Content::Full),
        "none" => Some(Content::None),
        "hash" => Some(Content::Hash(SecretString::default())),
        _ => None,
    })?;
    match (content, key) {
        (Content::Hash(_), Some(key)) => Some(Content::Hash(key)),
        (Content::Hash(_), None) => {
            if !read.is_given("records.key") {
                read.missing("records.key", "is needed, because records.content = hash");
            }
            None
        }
        (content, None) => Some(content),
        (content, Some(_)) => {
            read.warn("records.key is given, but only records.content = hash uses it".to_owned());
            Some(content)
        }
    }
}
