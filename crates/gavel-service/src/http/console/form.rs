//! Reads a submitted form and verifies that it came from a gavel page.

use actix_web::http::header;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use super::super::headers;
use super::super::request::{Request, Take};
use super::{Turned, origin};

/// The form field that binds a form to the browser that displays it.
pub(super) const FIELD: &str = "form_token";
/// Most fields of a form; gavel's own forms have fewer.
const MOST_FIELDS: usize = 16;

/// The token that a form must contain to be accepted from the browser with this cookie. It is derived from the cookie's
/// secret, so nothing is stored and no page contains the secret itself.
pub(super) fn token(cookie: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(cookie.as_bytes())
        .unwrap_or_else(|_| unreachable!("HMAC takes a key of any length"));
    mac.update(b"gavel console form");
    hex::encode(mac.finalize().into_bytes())
}

/// The fields of a form.
pub(crate) struct Form(Vec<(String, String)>);

/// A form of the visitor, whom another parameter has identified before.
impl Take<Turned> for Form {
    async fn take(request: &mut Request) -> Result<Self, Turned> {
        let expected = request.form_token.take();
        Self::read(request, expected.as_deref()).await
    }
}

impl Form {
    /// Reads a form from the browser whose cookie gives the token `expected`.
    ///
    /// # Errors
    /// The form comes from another site, its token is missing or invalid, or its body is invalid.
    pub(super) async fn read(request: &mut Request, expected: Option<&str>) -> Result<Self, Turned> {
        if !origin::is_own(&request.http) {
            return Err(Turned::NotOurs("This form was sent from another site."));
        }
        let kind = headers::only(request.http.headers(), &header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default();
        if !kind.trim().eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            return Err(Turned::NotOurs("This is not a form of a gavel page."));
        }
        let body = request.arriving_unknown().form().await?;
        let fields: Vec<(String, String)> = url::form_urlencoded::parse(&body)
            .take(MOST_FIELDS)
            .map(|(name, value)| (name.into_owned(), value.into_owned()))
            .collect();
        let form = Self(fields);
        let given = form.get(FIELD).unwrap_or_default();
        let same = expected.is_some_and(|expected| given.as_bytes().ct_eq(expected.as_bytes()).into());
        if !same {
            return Err(Turned::NotOurs(
                "This form is from another login or from an outdated page. Open the page again.",
            ));
        }
        Ok(form)
    }

    /// A field that occurs once.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let mut values = self
            .0
            .iter()
            .filter(|(known, _)| known == name)
            .map(|(_, value)| value.as_str());
        let first = values.next();
        if values.next().is_some() { None } else { first }
    }

    /// A non-empty field, with line breaks as `\n`.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let text = self.get(name)?.replace("\r\n", "\n");
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }
}
