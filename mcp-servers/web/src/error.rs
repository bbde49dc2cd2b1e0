//! The errors of this server beyond the common ones. Every call only reads, so an error never leaves an effect behind.

use std::time::Duration;

use gavel_mcp_base::ToolError;
use strum::IntoStaticStr;

/// The closed set of this server's own error codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Code {
    /// The URL, or that of a redirect, is not one that this server requests.
    UrlRefused,
    /// The host has an address that is not public.
    AddressRefused,
    /// The site's robots.txt excludes the page, or could not be read.
    RobotsRefused,
    /// More redirects than are followed.
    TooManyRedirects,
    /// The site answered with an error, or not at all.
    HttpError,
    /// What the site sent is not text.
    UnsupportedContent,
    /// The call took too long.
    Timeout,
    /// What the site sent is too long.
    TooLarge,
    /// The search service did not answer.
    SearchUnavailable,
    /// The search service accepts fewer calls.
    RateLimited,
}

/// Why a URL is not requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum UrlFault {
    /// Not a URL, or too long.
    Invalid,
    /// Neither http nor https.
    Scheme,
    /// It has a user or a password.
    Userinfo,
    /// A port that is not of the web.
    Port,
    /// The operator excludes the host.
    Host,
    /// A redirect from https to http.
    Downgrade,
}

impl UrlFault {
    fn message(self) -> &'static str {
        match self {
            Self::Invalid => "It is not a complete URL such as https://example.com/page, of at most 8 KiB.",
            Self::Scheme => "Only http and https are possible.",
            Self::Userinfo => "A user or a password in the URL is not allowed.",
            Self::Port => "Only the ports 80, 443, 8080 and 8443 are possible.",
            Self::Host => "The operator of this server does not allow the host.",
            Self::Downgrade => "The page redirects from https to http, which is not followed.",
        }
    }
}

pub(crate) fn url_refused(fault: UrlFault) -> ToolError {
    ToolError::new(Code::UrlRefused, "The URL was not requested.")
        .and(fault.message())
        .with("why", <&str>::from(fault))
}

/// Does not say which address it was, nor of which record: a caller must not learn a private network by it.
pub(crate) fn address_refused() -> ToolError {
    ToolError::new(
        Code::AddressRefused,
        "The host was not connected to: it is not, or not only, on the public Internet.",
    )
}

pub(crate) fn robots_refused() -> ToolError {
    ToolError::new(
        Code::RobotsRefused,
        "The site's robots.txt does not allow programs to read this page. Use another source.",
    )
}

pub(crate) fn robots_unreadable() -> ToolError {
    ToolError::new(
        Code::RobotsRefused,
        "The site's robots.txt could not be read, so the page was not requested. Use another source, or \
         try again later.",
    )
}

pub(crate) fn too_many_redirects(most: usize) -> ToolError {
    ToolError::new(Code::TooManyRedirects, format!("More than {most} redirects.")).with("max", most)
}

pub(crate) fn http_error(status: u16) -> ToolError {
    ToolError::new(
        Code::HttpError,
        format!("The site answered with the HTTP status {status}."),
    )
    .with("status", status)
}

/// The site did not answer in HTTP, so there is no status.
pub(crate) fn no_answer(words: &str) -> ToolError {
    ToolError::new(Code::HttpError, words)
}

pub(crate) fn unsupported(words: &str) -> ToolError {
    ToolError::new(Code::UnsupportedContent, words)
}

pub(crate) fn timeout(limit: Duration) -> ToolError {
    let seconds = limit.as_secs();
    ToolError::new(Code::Timeout, format!("The call took more than {seconds} s.")).with("seconds", seconds)
}

pub(crate) fn too_large(what: &str, most: usize) -> ToolError {
    ToolError::new(Code::TooLarge, format!("{what} has more than {most} bytes.")).with("max", most)
}

pub(crate) fn search_unavailable() -> ToolError {
    ToolError::new(
        Code::SearchUnavailable,
        "The search service does not answer, or reports a failure of its own. Try again later.",
    )
}

/// The service does not accept what this server sends: its key, its model or its project.
pub(crate) fn search_refused(status: u16) -> ToolError {
    ToolError::new(
        Code::SearchUnavailable,
        format!(
            "The search service refused the request with the HTTP status {status}. The operator has to \
             check its settings."
        ),
    )
    .with("status", status)
}

pub(crate) fn rate_limited(wait: Duration) -> ToolError {
    let seconds = wait.as_secs().max(1);
    ToolError::new(
        Code::RateLimited,
        format!("The search service accepts no more requests for now. Try again in {seconds} s."),
    )
    .with("retryAfterSeconds", seconds)
}
