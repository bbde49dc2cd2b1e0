//! Errors as RFC 9457 problem documents. Which error belongs where: a surface says what went wrong,
//! [`Problem::of`] gives it status, code and safe words, in one match without `_`.

use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderValue};
use actix_web::{HttpResponse, HttpResponseBuilder};
use serde::Serialize;
use utoipa::ToSchema;

use crate::surfaces::chat::ChatError;
use crate::surfaces::chat::request::FieldError;
use crate::surfaces::decisions::QueryError;

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $variant:ident = ($status:literal, $code:literal, $title:literal),)+) => {
        /// What went wrong; the closed list of `code`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum Code { $($(#[doc = $doc])+ $variant,)+ }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Its HTTP status.
            #[must_use]
            pub fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)+ }
            }
            /// Its name.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $code,)+ }
            }
            fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)+ }
            }
        }
    };
}

codes! {
    /// The body or a parameter is not what is allowed; `errors` names each place.
    InvalidRequest = (400, "invalid_request", "The request is not valid"),
    /// No valid credentials came with the request.
    Unauthenticated = (401, "unauthenticated", "Credentials are missing or not valid"),
    /// The token's user may act only for themselves.
    UserMismatch = (403, "user_mismatch", "The token's user may act only for themselves"),
    /// There is no such thing, or it is somebody else's.
    NotFound = (404, "not_found", "Not found"),
    /// The route does not take this method; `Allow` says which it takes.
    MethodNotAllowed = (405, "method_not_allowed", "Method not allowed"),
    /// The client took too long to send its request.
    RequestTimeout = (408, "request_timeout", "The request took too long to arrive"),
    /// A request with this `Idempotency-Key` is still running.
    StillRunning = (409, "still_running", "A request with this key is still running"),
    /// The body is over 1 MiB.
    BodyTooLarge = (413, "body_too_large", "The body is too large"),
    /// The body must be `application/json`.
    UnsupportedMediaType = (415, "unsupported_media_type", "The body must be application/json"),
    /// This `Idempotency-Key` was used with another body.
    IdempotencyKeyReused = (422, "idempotency_key_reused", "The key was used with another body"),
    /// Our fault.
    Internal = (500, "internal", "Internal error"),
    /// Something was done, and its outcome could not be recorded yet; recovery will.
    OutcomeUnrecorded = (500, "outcome_unrecorded", "The outcome is not recorded yet"),
    /// Nothing can be recorded, so nothing was asked or done.
    RecordUnavailable = (503, "record_unavailable", "The record store is unavailable"),
}

/// A problem document, `application/problem+json`.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Problem {
    /// Always `about:blank`: the code tells the kind.
    #[serde(rename = "type")]
    #[schema(rename = "type", example = "about:blank")]
    pub kind: &'static str,
    /// The code in words.
    pub title: &'static str,
    /// The HTTP status.
    pub status: u16,
    /// What went wrong, from the closed list.
    pub code: Code,
    /// This occurrence, in words.
    pub detail: String,
    /// `X-Request-Id` of the request.
    #[schema(value_type = String)]
    pub request_id: Arc<str>,
    /// Each place that is wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<ProblemField>)]
    pub errors: Vec<FieldError>,
    /// The decision it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision_id: Option<String>,
    /// Seconds to wait (`Retry-After`).
    #[serde(skip)]
    pub retry_after: Option<u32>,
}

/// One place that is wrong.
#[derive(Serialize, ToSchema)]
pub struct ProblemField {
    /// JSON pointer into the body, or the parameter's name.
    pub pointer: String,
    /// What was found and what is allowed.
    pub detail: String,
}

impl Problem {
    /// A problem of this kind.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<String>, request_id: &Arc<str>) -> Self {
        Self {
            kind: "about:blank",
            title: code.title(),
            status: code.status(),
            code,
            detail: detail.into(),
            request_id: Arc::clone(request_id),
            errors: Vec::new(),
            decision_id: None,
            retry_after: None,
        }
    }

    /// Fields that are wrong.
    #[must_use]
    pub fn fields(errors: Vec<FieldError>, request_id: &Arc<str>) -> Self {
        let detail = match errors.as_slice() {
            [one] => one.to_string(),
            many => format!("{} places are wrong; errors names each", many.len()),
        };
        Self {
            errors,
            ..Self::new(Code::InvalidRequest, detail, request_id)
        }
    }

    /// What a chat request ran into.
    #[must_use]
    pub fn of(error: ChatError, request_id: &Arc<str>) -> Self {
        let detail = error.to_string();
        let after = |code, seconds| Self {
            retry_after: Some(seconds),
            ..Self::new(code, detail.clone(), request_id)
        };
        match error {
            ChatError::Invalid(errors) => Self::fields(errors, request_id),
            ChatError::RecordUnavailable => after(Code::RecordUnavailable, 5),
            ChatError::OutcomeUnrecorded(id) => Self {
                decision_id: Some(id.to_string()),
                ..Self::new(Code::OutcomeUnrecorded, detail, request_id)
            },
            ChatError::KeyReused => Self::new(Code::IdempotencyKeyReused, detail, request_id),
            ChatError::StillRunning => after(Code::StillRunning, 1),
        }
    }

    /// What a query ran into.
    #[must_use]
    pub fn of_query(error: QueryError, request_id: &Arc<str>) -> Self {
        match error {
            QueryError::Invalid { field, detail } => Self::fields(
                vec![FieldError {
                    pointer: field.to_owned(),
                    detail,
                }],
                request_id,
            ),
            QueryError::Unavailable(why) => {
                tracing::error!(%why, "a query could not be answered");
                Self {
                    retry_after: Some(5),
                    ..Self::new(Code::RecordUnavailable, "the record store is unavailable", request_id)
                }
            }
        }
    }

    /// The response.
    #[must_use]
    pub fn respond(self) -> HttpResponse {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut builder = HttpResponseBuilder::new(status);
        builder.insert_header((
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        ));
        if let Ok(id) = HeaderValue::from_str(&self.request_id) {
            builder.insert_header((super::REQUEST_ID, id));
        }
        if let Some(seconds) = self.retry_after {
            builder.insert_header((header::RETRY_AFTER, seconds));
        }
        if self.code == Code::Unauthenticated {
            builder.insert_header((
                header::WWW_AUTHENTICATE,
                HeaderValue::from_static("Bearer realm=\"gavel\""),
            ));
        }
        builder.body(self.to_json())
    }

    /// Its JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|error| unreachable!("a problem prints as JSON: {error}"))
    }
}
