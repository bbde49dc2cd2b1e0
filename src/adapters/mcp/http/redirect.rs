//! Where a response leads that is a redirect.

use reqwest::StatusCode;
use reqwest::header::{HeaderMap, LOCATION};
use url::Url;

use crate::adapters::mcp::secrets::place;

/// Redirects of one request that are followed.
pub(super) const MOST: usize = 3;

/// Where the same request is to be sent to, which lies on the same origin.
///
/// # Errors
/// In words: it leads to another origin, where the credentials of this one have no business, or to nowhere.
pub(super) fn target(from: &Url, status: StatusCode, headers: &HeaderMap) -> Result<Url, String> {
    let location = headers.get(LOCATION).and_then(|location| location.to_str().ok());
    let Some(to) = location.and_then(|location| from.join(location).ok()) else {
        return Err(format!(
            "the server answered HTTP {status} without a `location` that is an address"
        ));
    };
    if to.origin() == from.origin() {
        return Ok(to);
    }
    Err(format!(
        "the server answered HTTP {status}, which leads to `{}`; redirects to another origin are not followed; configure the \
         final address",
        place(&to)
    ))
}
