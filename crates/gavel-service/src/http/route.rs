//! A route, as everything that handles a request knows it.

use actix_web::{HttpRequest, http};

/// A route of the table.
pub(super) struct Route {
    pub(super) method: Method,
    pub(super) path: &'static str,
    /// Its place in the table.
    pub(super) number: usize,
}

/// A method of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// `GET`, and with it `HEAD`.
    Get,
    /// `POST`.
    Post,
    /// `PUT`.
    Put,
    /// `DELETE`.
    Delete,
}

impl Method {
    /// The methods it adds to `Allow`.
    pub(super) const fn allow(self) -> &'static str {
        match self {
            Self::Get => "GET, HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }

    /// Whether a request with this method is for the route.
    pub(super) fn admits(self, method: &http::Method) -> bool {
        match self {
            Self::Get => *method == http::Method::GET || *method == http::Method::HEAD,
            Self::Post => *method == http::Method::POST,
            Self::Put => *method == http::Method::PUT,
            Self::Delete => *method == http::Method::DELETE,
        }
    }
}

impl Route {
    /// Whether it answers programs that have a key or a token, unlike pages, health and metrics.
    pub(super) fn is_of_the_api(&self) -> bool {
        ["/v1/", "/api/"].iter().any(|prefix| self.path.starts_with(prefix))
    }

    /// Whether it is asked so often that its requests would drown the others in traces.
    pub(super) fn is_probe(&self) -> bool {
        ["/livez", "/readyz", "/metrics"].contains(&self.path)
    }
}

/// The segments of a path by their names.
pub(super) struct Path<'a>(pub(super) &'a HttpRequest);

impl Path<'_> {
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.match_info().get(name).unwrap_or_default()
    }

    /// A segment for an error text, in double quotes. Valid names are shorter than what it repeats.
    pub(super) fn quoted(&self, name: &str) -> String {
        let short: String = self.get(name).chars().take(80).collect();
        format!("{short:?}")
    }
}
