//! A user's id.

/// A user's id, spelled as in the caller's own system.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UserId(String);

impl UserId {
    /// The longest id, in characters.
    pub const MAX_CHARS: usize = 512;

    /// Accepts a text with visible content, at most [`Self::MAX_CHARS`] characters, and without control characters.
    pub fn parse(text: &str) -> Option<Self> {
        let fits =
            !text.trim().is_empty() && text.chars().count() <= Self::MAX_CHARS && !text.chars().any(char::is_control);
        fits.then(|| Self(text.to_owned()))
    }

    /// The id as given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
