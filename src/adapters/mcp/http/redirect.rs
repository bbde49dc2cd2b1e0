//! Resolves the target of a redirect.

use reqwest::StatusCode;
use reqwest::header::{HeaderMap, LOCATION};
use url::Url;

use crate::adapters::mcp::place::place;

/// Maximum redirects per request.
pub(super) const MOST: usize = 3;

/// The address for the same request, which must have the same origin.
///
/// # Errors
/// A message: the target has another origin, which must not receive this origin's credentials, or there is no valid
/// target.
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
