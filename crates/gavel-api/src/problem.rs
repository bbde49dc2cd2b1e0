//! Parts of problems.

use std::fmt;

use super::names::sent;

sent! {
    /// One invalid place of a request.
    #[derive(PartialEq, Eq)]
    FieldError as "FieldError" {
        /// JSON pointer into the body (empty: the body itself), or the name of a query parameter or header.
        pointer: String,
        /// What was found, and what is allowed.
        detail: String,
    }
}

impl FieldError {
    /// An error at this place.
    pub fn new(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            pointer: pointer.into(),
            detail: detail.into(),
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.pointer, self.detail)
    }
}
