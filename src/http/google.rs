//! Where Google sends people back to who connect their account (`gavel google connect`). A browser comes here, without anything
//! that says who sits before it: the state alone, which an operator's command made for one user, says whose account it is. It is
//! good once and for ten minutes, on any replica.

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderValue};
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use futures_util::future::BoxFuture;
use url::form_urlencoded;

use super::State;
use super::error::Error;
use super::exchange::Exchange;
use super::headers::NO_STORE;
use super::routes::Route;

/// The route's path.
#[must_use]
pub fn path() -> &'static str {
    Route::GoogleCallback.path()
}

/// Whoever keeps the connections.
pub trait Callback: Send + Sync {
    /// Keeps the connection that the state was made for.
    fn finish<'a>(&'a self, state: &'a str, code: &'a str) -> BoxFuture<'a, Result<Connected, NotConnected>>;

    /// The person said no: the state is good no more.
    fn declined<'a>(&'a self, state: &'a str) -> BoxFuture<'a, Result<(), NotConnected>>;
}

/// An account that was connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connected {
    /// Whose it is here.
    pub user: String,
    /// Its address at Google, where that is known.
    pub address: Option<String>,
    /// What was asked for and not consented to.
    pub lacks: Option<String>,
}

/// Why none was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotConnected {
    /// What came cannot be taken; the words say why.
    Refused(String),
    /// Google does not answer.
    GoogleUnavailable,
    /// The service cannot; its log says why.
    Unavailable,
}

/// The page loads nothing, runs nothing, is shown in no frame, and tells no other page its address, which holds the code.
const SECURITY: [(header::HeaderName, HeaderValue); 6] = [
    (
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    ),
    (header::CACHE_CONTROL, NO_STORE),
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    ),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
];

pub(super) async fn callback(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::GoogleCallback));
    let Some(google) = &state.edge.google else {
        return exchange.finish(Err(Error::NoRoute));
    };
    let (status, words) = came_back(&**google, request.query_string()).await;
    let mut response = HttpResponse::build(status);
    for header in SECURITY {
        response.insert_header(header);
    }
    exchange.finish(Ok(response.body(page(&words))))
}

async fn came_back(google: &dyn Callback, query: &str) -> (StatusCode, String) {
    // One that is given twice is none: who guards the door and who opens it might read different ones.
    let given = |wanted: &str| {
        let mut values = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == wanted);
        values
            .next()
            .filter(|_| values.next().is_none())
            .map(|(_, value)| value)
    };
    let Some(state) = given("state") else {
        let words = "This address is where Google sends people back to; there is nothing to see without that.";
        return (StatusCode::BAD_REQUEST, words.to_owned());
    };
    let Some(code) = given("code") else {
        // Google says why in `error`; nothing of that is shown, since anybody can write an address.
        return match google.declined(&state).await {
            Ok(()) => (
                StatusCode::OK,
                "No account was connected, since consent was not given. You can close this page.".to_owned(),
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

/// What whoever consented is told.
#[must_use]
pub fn connected(address: &str, user: &str, lacks: Option<&str>) -> String {
    let lacks = lacks.map(|lacks| {
        format!(
            ", but without {lacks}, which was not consented to: what needs that will not work. To allow it ask whoever runs this service to \
             begin again, and leave every box ticked"
        )
    });
    let lacks = lacks.unwrap_or_default();
    format!(
        "{address} is connected for the user {user}{lacks}. You can close this page. If that is not you, tell whoever runs this service."
    )
}

fn refused(error: NotConnected) -> (StatusCode, String) {
    match error {
        NotConnected::Refused(why) => (StatusCode::BAD_REQUEST, format!("No account was connected: {why}.")),
        NotConnected::GoogleUnavailable => (
            StatusCode::BAD_GATEWAY,
            "No account was connected: Google cannot be reached just now. Begin again later.".to_owned(),
        ),
        NotConnected::Unavailable => (
            StatusCode::SERVICE_UNAVAILABLE,
            "No account was connected: this service cannot do it now. Its log says why.".to_owned(),
        ),
    }
}

fn page(words: &str) -> String {
    let words = escaped(words);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>gavel</title>\n<h1>Google account</h1>\n<p>{words}</p>\n</html>\n"
    )
}

/// Text as it stands in HTML.
#[must_use]
pub fn escaped(words: &str) -> String {
    let mut html = String::with_capacity(words.len());
    for character in words.chars() {
        match character {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            other => html.push(other),
        }
    }
    html
}
