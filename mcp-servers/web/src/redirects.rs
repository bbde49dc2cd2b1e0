//! Redirects, which are followed by hand: each target is checked like the first URL.

use gavel_mcp_base::ToolError;
use url::Url;

use crate::error::{UrlFault, too_many_redirects, url_refused};
use crate::guard::Guard;
use crate::http::Response;

/// How many are followed.
const MOST: usize = 5;

/// Where the answer leads, if it redirects.
pub(crate) fn next(guard: &Guard, from: &Url, response: &Response, followed: usize) -> Result<Option<Url>, ToolError> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let Some(location) = response.location() else {
        return Ok(None);
    };
    if followed == MOST {
        return Err(too_many_redirects(MOST));
    }
    let to = from.join(&location).map_err(|_| url_refused(UrlFault::Invalid))?;
    let to = guard.url(to.as_str())?;
    if from.scheme() == "https" && to.scheme() == "http" {
        return Err(url_refused(UrlFault::Downgrade));
    }
    Ok(Some(to))
}
