//! The OAuth callback to which Google redirects users who connect their account (`gavel google connect`). The browser
//! sends no credentials. The state alone, which an operator's command created for one user, identifies the user. It is
//! valid once, for ten minutes, on any replica.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header;
use futures_util::future::BoxFuture;
use maud::{DOCTYPE, html};

use super::error::Error;
use super::headers;
use super::query::once;
use super::request::Open;
use crate::http::routes::operations;

operations! {
    // The route does not exist if callbacks are disabled.
    finishGoogle = callback: [NotFound];
}

/// The route's path.
pub const CALLBACK: &str = "/oauth/google/callback";

/// Stores connected accounts.
pub trait Callback: Send + Sync {
    /// Stores the connection for which the state was created.
    fn finish<'a>(&'a self, state: &'a str, code: &'a str) -> BoxFuture<'a, Result<Connected, NotConnected>>;

    /// Handles a declined consent: invalidates the state.
    fn declined<'a>(&'a self, state: &'a str) -> BoxFuture<'a, Result<(), NotConnected>>;
}

/// A connected account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connected {
    /// The gavel user who owns the account.
    pub user: String,
    /// Its address at Google, if known.
    pub address: Option<String>,
    /// Requested permissions to which the user did not consent.
    pub lacks: Option<String>,
}

/// Why no account was connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotConnected {
    /// The callback is invalid; the text gives the reason.
    Refused(String),
    /// Google is unavailable.
    GoogleUnavailable,
    /// The service failed; its log has the reason.
    Unavailable,
}

/// The page loads and runs nothing, cannot be framed, and sends its address, which contains the code, to no other page.
const POLICY: &str = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Receives users whom Google redirects back.
///
/// Only for browsers: completes what `gavel google connect` started. The state is valid once, for ten minutes.
#[utoipa::path(
    get,
    path = "/oauth/google/callback",
    params(
        (
            "state" = Option<String>,
            Query,
            description = "The connection in progress; only `gavel google connect` creates one."
        ),
        (
            "code" = Option<String>,
            Query,
            description = "Google's confirmation that the user consented; absent if the user declined."
        ),
    ),
    responses(
        (status = 200, description = "The text.", body = String, content_type = "text/html"),
        (
            status = 400,
            description = "No account was connected; the page gives the reason.",
            body = String,
            content_type = "text/html"
        ),
        (status = 502, description = "Google is unavailable.", body = String, content_type = "text/html"),
        (
            status = 503,
            description = "The service failed; its log gives the reason.",
            body = String,
            content_type = "text/html"
        ),
    )
)]
pub(super) async fn callback(open: Open) -> Result<HttpResponse, Error> {
    let google = open.google.as_ref().ok_or_else(Error::no_route)?;
    let (status, text) = came_back(&**google, open.http.query_string()).await;
    let mut response = headers::page(status, POLICY);
    response.insert_header((header::CACHE_CONTROL, headers::NO_STORE));
    Ok(response.body(page(&text)))
}

async fn came_back(google: &dyn Callback, query: &str) -> (StatusCode, String) {
    let Some(state) = once(query, "state") else {
        let words = "Google redirects users to this address; it shows nothing when opened directly.";
        return (StatusCode::BAD_REQUEST, words.to_owned());
    };
    let Some(code) = once(query, "code") else {
        // Google gives the reason in `error`; it is not shown, because any site can create such a link.
        return match google.declined(&state).await {
            Ok(()) => (
                StatusCode::OK,
                "No account was connected, because consent was not given. You can close this page.".to_owned(),
            ),
            Err(error) => refused(error),
        };
    };
    match google.finish(&state, &code).await {
        Ok(Connected { user, address, lacks }) => {
            let address = address.unwrap_or_else(|| "The Google account".to_owned());
            (StatusCode::OK, connected(&address, &user, lacks.as_deref()))
        }
        Err(error) => refused(error),
    }
}

/// The text for the user who gave consent.
pub fn connected(address: &str, user: &str, lacks: Option<&str>) -> String {
    let lacks = lacks.map(|lacks| {
        format!(
            ", but without {lacks}, to which you did not consent: features that need it will not work. To allow it, ask the operator of this \
             service to start again, and leave every box ticked"
        )
    });
    let lacks = lacks.unwrap_or_default();
    format!(
        "{address} is connected for the user {user}{lacks}. You can close this page. If that is not you, tell the operator of this service."
    )
}

fn refused(error: NotConnected) -> (StatusCode, String) {
    match error {
        NotConnected::Refused(why) => (StatusCode::BAD_REQUEST, format!("No account was connected: {why}.")),
        NotConnected::GoogleUnavailable => (
            StatusCode::BAD_GATEWAY,
            "No account was connected: Google is unavailable. Start again later.".to_owned(),
        ),
        NotConnected::Unavailable => (
            StatusCode::SERVICE_UNAVAILABLE,
            "No account was connected: an internal error occurred. See the log of the service for the reason."
                .to_owned(),
        ),
    }
}

/// The page that tells users what became of their consent.
pub fn page(text: &str) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width";
            title { "gavel" }
            h1 { "Google account" }
            p { (text) }
        }
    };
    page.into_string()
}
