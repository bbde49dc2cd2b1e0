//! The spelling of names on the wire, by route: camelCase below `/api/agent/`, snake_case elsewhere.

use super::routes::Route;

/// How names of several words are spelled in queries, pages and problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// `page_token`.
    Snake,
    /// `pageToken`.
    Camel,
}

impl Spelling {
    /// The spelling of a route; snake_case where no route matched.
    pub(super) fn of(route: Option<Route>) -> Self {
        match route.is_some_and(|route| route.path().starts_with("/api/agent/")) {
            true => Self::Camel,
            false => Self::Snake,
        }
    }

    /// The query parameter for the number of rows of a page.
    pub(super) const fn page_size(self) -> &'static str {
        match self {
            Self::Snake => "page_size",
            Self::Camel => "pageSize",
        }
    }

    /// The query parameter for the page to read.
    pub(super) const fn page_token(self) -> &'static str {
        match self {
            Self::Snake => "page_token",
            Self::Camel => "pageToken",
        }
    }

    /// The member of a page that names the next one.
    pub(super) const fn next_page_token(self) -> &'static str {
        match self {
            Self::Snake => "next_page_token",
            Self::Camel => "nextPageToken",
        }
    }

    /// The query parameter for the order of rows.
    pub(super) const fn order_by(self) -> &'static str {
        match self {
            Self::Snake => "order_by",
            Self::Camel => "orderBy",
        }
    }

    /// The schema of problems in the API description.
    pub(super) const fn problem(self) -> &'static str {
        match self {
            Self::Snake => "Problem",
            Self::Camel => "AgentProblem",
        }
    }

    /// A parameter as a surface names it, as this route spells it.
    pub(super) fn parameter(self, name: &str) -> &str {
        match name {
            "page_size" => self.page_size(),
            "page_token" => self.page_token(),
            "order_by" => self.order_by(),
            other => other,
        }
    }
}
