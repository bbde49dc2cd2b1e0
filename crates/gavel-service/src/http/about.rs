//! What handlers tell the API description of their parameters and answers.

use actix_web::http::header::{HeaderMap, HeaderName};
use utoipa::openapi::path::{Operation, Parameter};
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{IntoParams, ToSchema};

use super::error::{Code, Error};
use super::headers::only;
use super::openapi::problems;
use super::route::Route;
use crate::domain::ids::UserId;

/// An operation of the API description.
pub(super) struct About<'a> {
    pub(super) operation: &'a mut Operation,
    /// Schemas that it refers to, by name.
    pub(super) schemas: &'a mut Vec<(String, RefOr<Schema>)>,
    pub(super) route: &'static Route,
}

impl About<'_> {
    pub(super) fn parameters<P: IntoParams>(&mut self) {
        P::into_params(|| None).into_iter().for_each(|one| self.parameter(one));
    }

    pub(super) fn parameter(&mut self, parameter: impl Into<Parameter>) {
        let parameters = self.operation.parameters.get_or_insert_default();
        parameters.push(RefOr::T(parameter.into()));
    }

    pub(super) fn problems(&mut self, codes: &[Code]) {
        problems::add(self.operation, codes);
    }

    pub(super) fn schema<T: ToSchema>(&mut self) -> Ref {
        self.schemas.push((T::name().into_owned(), T::schema()));
        T::schemas(self.schemas);
        Ref::from_schema_name(T::name())
    }
}

// The acting user of routes whose body has no user: the header `X-Gavel-User`.

const HEADER: HeaderName = HeaderName::from_static("x-gavel-user");
const NAME: &str = "X-Gavel-User";
/// The acting user when callers are not authenticated and name no user.
pub(super) const LOCAL: &str = "local";

/// The user that the header names, if it is present.
///
/// # Errors
/// The header is invalid.
pub(super) fn named(headers: &HeaderMap) -> Result<Option<UserId>, Error> {
    if !headers.contains_key(&HEADER) {
        return Ok(None);
    }
    let value = only(headers, &HEADER).ok_or(Error::InvalidHeader(NAME, "is given more than once"))?;
    let text = std::str::from_utf8(value.as_bytes()).map_err(|_| Error::InvalidHeader(NAME, "is not UTF-8"))?;
    let user = UserId::parse(text).map_err(|_| {
        Error::InvalidHeader(
            NAME,
            "must be 1 to 256 bytes without invisible characters, and not blank",
        )
    })?;
    Ok(Some(user))
}

/// The error for a route that requires a user.
pub(super) const MISSING: Error = Error::InvalidHeader(
    NAME,
    "is missing; it must name the user the agent acts for, since no token names one",
);
