//! The spelling of names on the wire, by route: camelCase below `/api/agent/` and `/v1/sessions`, snake_case elsewhere.

use super::routes::Route;
use crate::api::spelling::is_camel;
pub(super) use crate::api::spelling::{camel, camel_name};

/// How names of several words are spelled in queries, pages and problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// `page_token`.
    Snake,
    /// `pageToken`.
    Camel,
}

impl Spelling {
    /// The spelling of a route; snake_case where no route matched.
    pub(super) fn of(route: Option<&Route>) -> Self {
        match route.is_some_and(|route| is_camel(route.path)) {
            true => Self::Camel,
            false => Self::Snake,
        }
    }

    /// A name of several words, which the surfaces and this code spell in snake_case.
    pub(super) fn name(self, name: &str) -> String {
        match self {
            Self::Snake => name.to_owned(),
            Self::Camel => camel_name(name),
        }
    }
}
