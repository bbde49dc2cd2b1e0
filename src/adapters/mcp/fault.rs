//! Why a connection could not be opened.

/// Maximum bytes of a reason.
pub(super) const MAX_WORDS: usize = 512;

/// Why a connection could not be opened.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    /// For an operator.
    pub(super) words: String,
    /// The server's program or the configuration is at fault, so another attempt changes nothing.
    pub(super) is_lasting: bool,
}

impl Fault {
    /// A fault that may disappear by the next attempt.
    pub(super) fn passing(words: String) -> Self {
        Self {
            words,
            is_lasting: false,
        }
    }

    pub(super) fn lasting(words: String) -> Self {
        Self {
            words,
            is_lasting: true,
        }
    }
}
