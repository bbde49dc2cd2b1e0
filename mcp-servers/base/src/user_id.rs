//! A user's id.

/// A user's id, as the caller's own system spells it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UserId(String);

impl UserId {
    /// The longest id.
    pub const MAX_CHARS: usize = 512;

    /// Takes what somebody can be called by: visible, of reasonable length, without control characters.
    pub fn parse(text: &str) -> Option<Self> {
        let fits =
            !text.trim().is_empty() && text.chars().count() <= Self::MAX_CHARS && !text.chars().any(char::is_control);
        fits.then(|| Self(text.to_owned()))
    }

    /// The id as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
