//! Errors of the HTTP edge and how responses report them: a [`Problem`] of a surface or of the edge → status, code, safe
//! text.
//!
//! Problems are RFC 9457 `application/problem+json`. `code` is a closed list on which clients branch. No problem
//! contains a credential, an upstream message or a payload.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::names;
pub use crate::api::problem::Code;
use crate::api::problem::{FieldError, Late};
use crate::domain::error_class::ErrorClass;
use crate::domain::ids::{DecisionId, RunId};
use crate::http::headers;
use crate::http::spelling::Spelling;
use crate::ports::metrics::HTTP_PROBLEMS;
use crate::surfaces::problem::{More, Problem as Cause};

/// Why a request has no answer of its handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub(super) problem: Cause,
    /// What the client needs to send a valid request.
    hint: Option<(HeaderName, HeaderValue)>,
}

impl<P: Into<Cause>> From<P> for Error {
    fn from(problem: P) -> Self {
        Self {
            problem: problem.into(),
            hint: None,
        }
    }
}

impl Error {
    pub(super) fn new(code: Code, detail: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        Cause::new(code, detail).into()
    }

    /// With a header that tells the client what to send.
    pub(super) fn hint(mut self, name: HeaderName, value: &str) -> Self {
        self.hint = HeaderValue::from_str(value).ok().map(|value| (name, value));
        self
    }

    /// One invalid place of the request: a JSON pointer into the body, or the name of a parameter.
    pub(super) fn invalid(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Cause::invalid(pointer, detail).into()
    }

    /// A header is invalid: its name, and the problem.
    pub(super) fn header(name: &str, problem: &str) -> Self {
        let detail = format!("The header {name} {problem}.");
        Cause::new(Code::InvalidRequest, detail)
            .with(|more| more.errors.push(FieldError::new(name, problem)))
            .into()
    }

    /// Credentials are missing; the response carries the challenge.
    pub(super) fn unauthenticated() -> Self {
        let error = Self::new(Code::Unauthenticated, "This route requires credentials.");
        error.hint(header::WWW_AUTHENTICATE, r#"Bearer realm="gavel""#)
    }

    /// The credentials are invalid. The response does not say which part.
    pub(super) fn not_accepted() -> Self {
        let error = Self::new(Code::Unauthenticated, "The credentials are invalid.");
        error.hint(
            header::WWW_AUTHENTICATE,
            r#"Bearer realm="gavel", error="invalid_token""#,
        )
    }

    /// No such route.
    pub(super) fn no_route() -> Self {
        Self::new(Code::NotFound, "There is no such route.")
    }

    /// Unsupported method; `allow` names those that the route supports.
    pub(super) fn method_not_allowed(allow: &str) -> Self {
        let detail = format!("This route supports only {allow}.");
        Self::new(Code::MethodNotAllowed, detail).hint(header::ALLOW, allow)
    }
}

/// The two spellings of a problem (RFC 9457), each with the members of its own and how the parts give them.
macro_rules! problems {
    ($(#[$of:meta])* $name:ident { $($(#[$more:meta])* $field:ident: $type:ty = |$code:ident, $beside:ident| $value:expr,)* }) => {
        #[derive(Debug, Serialize, ToSchema)]
        $(#[$of])*
        pub struct $name<'a> {
            /// Always `about:blank`: `code` distinguishes the problems.
            #[schema(value_type = String, example = "about:blank")]
            pub r#type: &'static str,
            /// The HTTP status as text.
            #[schema(value_type = String, example = "Bad Request")]
            pub title: &'a str,
            /// The HTTP status.
            #[schema(example = 400)]
            pub status: u16,
            /// What happened, for people.
            #[schema(example = "the request is not valid")]
            pub detail: String,
            /// What happened, for programs; see the list of codes.
            pub code: Code,
            /// The request's id, as in `X-Request-Id`.
            #[schema(value_type = String)]
            pub request_id: &'a str,
            /// The decision concerned (`outcome_unrecorded`).
            #[schema(value_type = String, format = "uuid", required = false)]
            #[serde(skip_serializing_if = "Option::is_none")]
            pub decision_id: Option<DecisionId>,
            /// The run concerned (`part_of_run`, `run_unreadable`, `outcome_unrecorded` of a run).
            #[schema(value_type = String, format = "uuid", required = false)]
            #[serde(skip_serializing_if = "Option::is_none")]
            pub run_id: Option<RunId>,
            /// Each invalid place.
            #[schema(required = false)]
            #[serde(skip_serializing_if = "Vec::is_empty")]
            pub errors: Vec<FieldError>,
            $($(#[$more])* pub $field: $type,)*
        }

        impl<'a> $name<'a> {
            fn new((code, detail): (Code, String), more: More, status: StatusCode, request_id: &'a str) -> Self {
                Self {
                    r#type: "about:blank",
                    title: status.canonical_reason().unwrap_or_default(),
                    status: status.as_u16(),
                    $($field: { let ($code, $beside) = (code, &more); $value },)*
                    detail,
                    code,
                    request_id,
                    decision_id: more.decision,
                    run_id: more.run,
                    errors: more.errors,
                }
            }
        }
    };
}

problems! {
    /// `application/problem+json` (RFC 9457).
    Problem {}
}

problems! {
    /// `application/problem+json` (RFC 9457), as routes below `/api/agent/` and `/v1/sessions` return it.
    #[serde(rename_all = "camelCase")]
    AgentProblem {
        /// The class of the code.
        #[schema(value_type = names::ErrorClass)]
        error_class: ErrorClass = |code, _more| code.class(),
        /// The outcome of the action (`already_resolved`, `not_in_doubt`).
        #[schema(required = false)]
        #[serde(skip_serializing_if = "Option::is_none")]
        outcome: Option<Late> = |_code, more| more.outcome.clone(),
        /// The current version of the plan (`plan_changed`).
        #[schema(required = false)]
        #[serde(skip_serializing_if = "Option::is_none")]
        plan_version: Option<u32> = |_code, more| more.plan_version,
    }
}

/// An error in parts: status, code and text, what else the problem says, and headers.
type Parts = (StatusCode, (Code, String), More, Vec<(HeaderName, HeaderValue)>);

impl Error {
    fn into_parts(self) -> Parts {
        let (code, detail) = (self.problem.code, self.problem.to_string());
        HTTP_PROBLEMS.with([code.as_str().into()]).increment(1);
        let status = StatusCode::from_u16(code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut more = self.problem.into_more();
        more.errors = bounded(more.errors);
        let retry = more.quota.map(|quota| quota.reset_s.max(1)).or(code.retry_after_s());
        let retry = retry.map(|seconds| (header::RETRY_AFTER, headers::seconds(seconds)));
        let quota = more.quota.iter().flat_map(headers::rate_limit);
        let headers = self.hint.into_iter().chain(retry).chain(quota).collect();
        (status, (code, detail), more, headers)
    }

    /// Status, text, invalid places, and headers, for a console page.
    pub(crate) fn in_words(self) -> (StatusCode, String, Vec<FieldError>, Vec<(HeaderName, HeaderValue)>) {
        let (status, (_, detail), more, headers) = self.into_parts();
        (status, detail, more.errors, headers)
    }

    /// The problem as JSON text, with its status.
    pub(crate) fn problem(
        self,
        request_id: &str,
        spelling: Spelling,
    ) -> (StatusCode, String, Vec<(HeaderName, HeaderValue)>) {
        let (status, said, mut more, headers) = self.into_parts();
        // The surfaces know one spelling of the parameters of a list.
        for error in more.errors.iter_mut().filter(|_| more.of_list) {
            error.pointer = spelling.name(&error.pointer);
        }
        let text = match spelling {
            Spelling::Snake => serde_json::to_string(&Problem::new(said, more, status, request_id)),
            Spelling::Camel => serde_json::to_string(&AgentProblem::new(said, more, status, request_id)),
        };
        let text = text.unwrap_or_else(|error| unreachable!("a problem serializes: {error}"));
        (status, text, headers)
    }

    /// The problem as a response.
    pub(crate) fn respond(self, request_id: &str, spelling: Spelling) -> HttpResponse {
        let (status, text, headers) = self.problem(request_id, spelling);
        let mut response = HttpResponse::build(status);
        response.insert_header((header::CONTENT_TYPE, headers::PROBLEM_JSON));
        response.insert_header((header::CACHE_CONTROL, headers::NO_STORE));
        for header in headers {
            response.insert_header(header);
        }
        response.body(text)
    }
}

/// Most places reported for one request, and most bytes of them as JSON, to limit the size of an error response.
const MOST_PLACES: usize = 101;
const MOST_BYTES: usize = 48 << 10;

/// Keeps as many places as allowed, and adds the number of omitted ones.
fn bounded(mut errors: Vec<FieldError>) -> Vec<FieldError> {
    let mut bytes = 0;
    let fits = |error: &&FieldError| {
        bytes += serde_json::to_string(error).map_or(MOST_BYTES, |text| text.len());
        bytes <= MOST_BYTES
    };
    let parts = errors.iter().take(MOST_PLACES).take_while(fits).count();
    let more = errors.len() - parts;
    if more > 0 {
        errors.truncate(parts);
        errors.push(FieldError {
            pointer: String::new(),
            detail: format!("{more} more errors are not shown; correct these first"),
        });
    }
    errors
}
