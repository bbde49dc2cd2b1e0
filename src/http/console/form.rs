//! A form that was sent: is it ours, and what stands in it?

use actix_web::HttpRequest;
use actix_web::http::header;
use actix_web::web::Payload;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use super::super::{State, body, headers};
use super::{Turned, origin};
use crate::http::error::Error;

/// The field of each form that ties it to the browser it was shown in.
pub(super) const FIELD: &str = "form_token";
/// More fields than any form of ours has.
const MOST_FIELDS: usize = 16;

/// What a form must carry to be taken from the browser that holds this cookie. It is derived from the cookie's secret, so that
/// nothing has to be kept, and the secret itself stands on no page.
pub(super) fn token(cookie: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(cookie.as_bytes())
        .unwrap_or_else(|_| unreachable!("HMAC takes a key of any length"));
    mac.update(b"gavel console form");
    hex::encode(mac.finalize().into_bytes())
}

/// The fields of a form.
pub(super) struct Form(Vec<(String, String)>);

impl Form {
    /// Reads one that was shown in the browser which holds the cookie `expected` was made of.
    ///
    /// # Errors
    /// It comes from elsewhere, or its token is missing or another; its body is off.
    pub(super) async fn read(
        state: &State,
        request: &HttpRequest,
        payload: Payload,
        expected: Option<&str>,
    ) -> Result<Self, Turned> {
        if !origin::is_own(request) {
            return Err(Turned::NotOurs("This form was sent from another site."));
        }
        let kind = headers::only(request.headers(), &header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default();
        if !kind.trim().eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            return Err(Turned::NotOurs("This is no form of a page of gavel's."));
        }
        let body = body::read_form(state, request, payload).await?;
        let fields: Vec<(String, String)> = url::form_urlencoded::parse(&body)
            .take(MOST_FIELDS)
            .map(|(name, value)| (name.into_owned(), value.into_owned()))
            .collect();
        let form = Self(fields);
        let given = form.get(FIELD).unwrap_or_default();
        let same = expected.is_some_and(|expected| given.as_bytes().ct_eq(expected.as_bytes()).into());
        if !same {
            return Err(Turned::NotOurs(
                "This form is from another login, or from a page that is no longer good. Open the page again.",
            ));
        }
        Ok(form)
    }

    /// A field that is there once.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let mut values = self
            .0
            .iter()
            .filter(|(known, _)| known == name)
            .map(|(_, value)| value.as_str());
        let first = values.next();
        if values.next().is_some() { None } else { first }
    }

    /// A field with something in it; line ends as everybody else writes them.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let text = self.get(name)?.replace("\r\n", "\n");
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }
}

/// That a field does not fit.
pub(super) fn wrong(name: &str, detail: &str) -> Turned {
    Turned::Error(Error::Invalid(vec![crate::surfaces::chat::request::FieldError {
        pointer: name.to_owned(),
        detail: detail.to_owned(),
    }]))
}
