//! A user's id.

/// A user's id, as the caller's own system spells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UserId(String);

impl UserId {
    pub(super) const MAX_CHARS: usize = 512;

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let fits =
            !text.trim().is_empty() && text.chars().count() <= Self::MAX_CHARS && !text.chars().any(char::is_control);
        fits.then(|| Self(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}
