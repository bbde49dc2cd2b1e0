//! Errors of the HTTP edge and how responses report them: one [`Error`] → status, code, safe text. The errors of a
//! surface become problems beside its routes.
//!
//! Problems are RFC 9457 `application/problem+json`. `code` is a closed list on which clients branch. No problem
//! contains a credential, an upstream message or a payload.

pub(super) mod code;

use std::borrow::Cow;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::names;
use crate::api::problem::FieldError;
use crate::domain::action::{ActionStatus, Resolution};
use crate::domain::budget::Exceeded;
use crate::domain::error_class::ErrorClass;
use crate::domain::ids::{DecisionId, RunId};
use crate::http::headers;
use crate::http::spelling::Spelling;
use crate::surfaces::StoreFailure;
use crate::surfaces::decisions::QueryError;
pub use code::Code;

/// Why a surface did not answer a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The body or query is invalid.
    Invalid(Vec<FieldError>),
    /// A header is invalid: its name, and the problem.
    InvalidHeader(&'static str, &'static str),
    /// Credentials are missing; the response carries the challenge.
    Unauthenticated,
    /// The credentials are invalid. The response does not say which part.
    NotAccepted,
    /// The request names another user.
    UserMismatch,
    /// The request names a host that is not this machine, and callers are not authenticated.
    NotThisHost,
    /// No such route.
    NoRoute,
    /// No such object.
    NotFound,
    /// As [`Error::NotFound`], naming the object. An object of another user is reported as missing.
    Missing(String),
    /// Unsupported method; contains the value of `Allow`.
    MethodNotAllowed(String),
    /// A definition in an unknown format.
    NoForm,
    /// A query of a list is invalid or takes too long.
    Query(QueryError),
    /// An error of a surface, as its module here puts it.
    Problem(Box<ProblemParts>),
    /// The body did not arrive in time.
    BodyTimeout,
    /// The body ended early, or its framing is invalid.
    BodyBroken,
    /// The body exceeds this many bytes.
    BodyTooLarge(usize),
    /// The limit of work in progress is reached. Nothing was done.
    TooMuch(Exceeded),
    /// A page of another site sent the request, and callers are not authenticated.
    ForeignPage,
    /// The body is not JSON.
    NotJson,
    /// The body is neither JSON nor plain text.
    NotJsonOrText,
    /// The body has a `Content-Encoding`.
    Encoded,
    /// The first request with this key is still running.
    StillRunning,
    /// The key was used before with another body.
    KeyReused,
    /// The request was executed, and its outcome is not recorded yet.
    OutcomeUnrecorded(DecisionId),
    /// The record store is unavailable.
    RecordUnavailable,
    /// The keys that verify tokens are unavailable.
    AuthUnavailable,
    /// An internal error.
    Internal,
}

impl Error {
    /// One invalid place of the request: a JSON pointer into the body, or the name of a parameter.
    pub(super) fn invalid(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Invalid(vec![FieldError::new(pointer, detail)])
    }

    // One table: each error with its code and its words. As separate functions it could not be read at a glance.
    #[rustfmt::skip]
    fn tell(self) -> ProblemParts {
        let (code, detail) = match self {
            Self::UserMismatch => (Code::UserMismatch, "user_id or X-Gavel-User names another user than the key or the token; omit it, or name the same user."),
            Self::NotThisHost => (Code::Forbidden, "With auth.mode = none gavel accepts only localhost and loopback addresses as host; any other host requires api_key or jwt."),
            Self::ForeignPage => (Code::Forbidden, "A page of another site sent this request (Origin, Sec-Fetch-Site). With auth.mode = none gavel rejects such requests; a service that sends requests for a page requires api_key or jwt."),
            Self::NoRoute => (Code::NotFound, "There is no such route."),
            Self::NotFound => (Code::NotFound, "There is no such object, or it belongs to another user. A service must name the user it acts for (X-Gavel-User; --user on the command line)."),
            Self::NoForm => (Code::UnsupportedMediaType, "A definition must be application/json, application/yaml, text/markdown or application/x-protobuf; set Content-Type."),
            Self::BodyTimeout => (Code::RequestTimeout, "The body took too long to arrive."),
            Self::BodyBroken => (Code::InvalidRequest, "The body ended early, or its framing is invalid."),
            Self::StillRunning => (Code::StillRunning, "A request with this idempotency key is still running; try again later."),
            Self::KeyReused => (Code::IdempotencyKeyReused, "This idempotency key was used with another request body."),
            Self::RecordUnavailable => (Code::RecordUnavailable, "The record store is unavailable. Nothing was done; the request can be sent again."),
            Self::AuthUnavailable => (Code::AuthUnavailable, "Tokens cannot be verified now; the request can be sent again."),
            Self::Internal => (Code::Internal, "gavel failed to answer; search its log for the request id to find the reason."),
            Self::Unauthenticated => return ProblemParts::new(Code::Unauthenticated, "This route requires credentials.")
                .header(header::WWW_AUTHENTICATE, r#"Bearer realm="gavel""#),
            Self::NotAccepted => return ProblemParts::new(Code::Unauthenticated, "The credentials are invalid.")
                .header(header::WWW_AUTHENTICATE, r#"Bearer realm="gavel", error="invalid_token""#),
            Self::NotJson => return ProblemParts::new(Code::UnsupportedMediaType, "The body must be application/json in UTF-8; set Content-Type.")
                .header(header::ACCEPT, "application/json"),
            Self::NotJsonOrText => return ProblemParts::new(Code::UnsupportedMediaType, "The body must be application/json or text/plain, in UTF-8; set Content-Type. Omit the body for an agent without inputs.")
                .header(header::ACCEPT, "application/json, text/plain"),
            Self::Encoded => return ProblemParts::new(Code::UnsupportedMediaType, "The body must not have a Content-Encoding.")
                .header(header::ACCEPT_ENCODING, "identity"),
            Self::Invalid(errors) => return ProblemParts::new(Code::InvalidRequest, "The request is not valid; errors names each place.").places(errors),
            Self::InvalidHeader(name, problem) => return ProblemParts::new(Code::InvalidRequest, format!("The header {name} {problem}."))
                .places(vec![FieldError::new(name, problem)]),
            Self::MethodNotAllowed(allow) => {
                let value = HeaderValue::from_str(&allow).ok();
                let parts = ProblemParts::new(Code::MethodNotAllowed, format!("This route supports only {allow}."));
                return parts.headers(value.map(|value| (header::ALLOW, value)));
            }
            Self::Missing(what) => return ProblemParts::new(Code::NotFound, what),
            Self::BodyTooLarge(limit) => return ProblemParts::new(Code::BodyTooLarge, format!("The body has more than {limit} bytes.")),
            Self::TooMuch(exceeded) => {
                return ProblemParts::new(Code::Overloaded, format!("Too much work is in progress: {exceeded}. Nothing was done; send the request again later."));
            }
            Self::OutcomeUnrecorded(id) => return ProblemParts::unrecorded(id),
            Self::Query(error) => return query(error),
            Self::Problem(parts) => return *parts,
        };
        ProblemParts::new(code, detail)
    }
}

fn query(error: QueryError) -> ProblemParts {
    match error {
        QueryError::Invalid { field, detail } => Error::invalid(field, detail).tell(),
        QueryError::TooSlow { limit } => ProblemParts::new(
            Code::QueryTooSlow,
            format!(
                "The query took longer than {} s. Narrow the filter, for example by created_at.",
                limit.as_secs()
            ),
        ),
        QueryError::Unavailable(_) => Error::RecordUnavailable.tell(),
    }
}

impl From<Exceeded> for Error {
    fn from(exceeded: Exceeded) -> Self {
        Self::TooMuch(exceeded)
    }
}

impl From<QueryError> for Error {
    fn from(error: QueryError) -> Self {
        StoreFailure::from(error).into()
    }
}

impl From<StoreFailure> for Error {
    fn from(failure: StoreFailure) -> Self {
        match failure {
            StoreFailure::NotFound => Self::NotFound,
            StoreFailure::KeyReused => Self::KeyReused,
            StoreFailure::Query(error) => Self::Query(error),
            StoreFailure::Unavailable => Self::RecordUnavailable,
            StoreFailure::OutcomeUnknown(unknown) => {
                let parts = ProblemParts::new(Code::OutcomeUnrecorded, unknown.detail);
                match unknown.run {
                    Some(run) => parts.about(run).into(),
                    None => parts.into(),
                }
            }
        }
    }
}

/// The parts of an error response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProblemParts {
    pub(crate) code: Code,
    pub(crate) detail: Cow<'static, str>,
    errors: Vec<FieldError>,
    decision: Option<DecisionId>,
    run: Option<RunId>,
    outcome: Option<Late>,
    pub(crate) plan_version: Option<u32>,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
}

impl ProblemParts {
    pub(crate) fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            detail: detail.into(),
            errors: Vec::new(),
            decision: None,
            run: None,
            outcome: None,
            plan_version: None,
            headers: code
                .retry_after_s()
                .map(|s| (header::RETRY_AFTER, headers::seconds(s)))
                .into_iter()
                .collect(),
        }
    }

    pub(crate) fn header(mut self, name: HeaderName, value: &'static str) -> Self {
        self.headers.push((name, HeaderValue::from_static(value)));
        self
    }

    /// Too much work is in progress.
    pub(crate) fn overloaded() -> Self {
        let detail = "Too much work is in progress. Nothing was started; the request can be sent again.";
        Self::new(Code::Overloaded, detail)
    }

    /// The outcome of this decision is not recorded yet.
    pub(crate) fn unrecorded(id: DecisionId) -> Self {
        let detail = format!(
            "Decision {id} may have had effects, and its outcome is not recorded yet. Do not send the request again; check \
             the decision for its outcome."
        );
        Self {
            decision: Some(id),
            ..Self::new(Code::OutcomeUnrecorded, detail)
        }
    }

    pub(crate) fn headers(mut self, headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>) -> Self {
        self.headers.extend(headers);
        self
    }

    /// Names the run concerned.
    pub(crate) fn about(mut self, run: RunId) -> Self {
        self.run = Some(run);
        self
    }

    /// Names each invalid place.
    pub(crate) fn places(mut self, errors: Vec<FieldError>) -> Self {
        self.errors = errors;
        self
    }

    /// Names the current version of the plan.
    pub(crate) fn plan_version(mut self, version: u32) -> Self {
        self.plan_version = Some(version);
        self
    }

    /// Names the outcome of the action.
    pub(crate) fn outcome(mut self, outcome: Late) -> Self {
        self.outcome = Some(outcome);
        self
    }
}

impl From<ProblemParts> for Error {
    fn from(parts: ProblemParts) -> Self {
        Self::Problem(Box::new(parts))
    }
}

/// The outcome of an action that was resolved or settled before this request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Late {
    /// The current state of the action.
    #[schema(value_type = names::ActionStatus)]
    pub state: ActionStatus,
    /// The decision of the approver (`already_resolved`); absent if the approval expired.
    #[schema(value_type = Option<names::Resolution>, required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<Resolution>,
    /// The approver.
    #[schema(required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved_by: Option<String>,
}

/// The two spellings of a problem (RFC 9457), each with the members of its own and how the parts give them.
macro_rules! problems {
    ($(#[$of:meta])* $name:ident { $($(#[$more:meta])* $field:ident: $type:ty = |$parts:ident| $value:expr,)* }) => {
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
            #[schema(value_type = String)]
            pub detail: Cow<'static, str>,
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
            fn new(parts: ProblemParts, status: StatusCode, request_id: &'a str) -> Self {
                Self {
                    r#type: "about:blank",
                    title: status.canonical_reason().unwrap_or_default(),
                    status: status.as_u16(),
                    code: parts.code,
                    request_id,
                    decision_id: parts.decision,
                    run_id: parts.run,
                    $($field: { let $parts = &parts; $value },)*
                    detail: parts.detail,
                    errors: parts.errors,
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
        error_class: ErrorClass = |parts| parts.code.class(),
        /// The outcome of the action (`already_resolved`, `not_in_doubt`).
        #[schema(required = false)]
        #[serde(skip_serializing_if = "Option::is_none")]
        outcome: Option<Late> = |parts| parts.outcome.clone(),
        /// The current version of the plan (`plan_changed`).
        #[schema(required = false)]
        #[serde(skip_serializing_if = "Option::is_none")]
        plan_version: Option<u32> = |parts| parts.plan_version,
    }
}

impl Error {
    /// Status, text, invalid places, and `Retry-After`, for a console page.
    pub(crate) fn in_words(self) -> (StatusCode, Cow<'static, str>, Vec<FieldError>, Option<HeaderValue>) {
        let mut parts = self.tell();
        let status = StatusCode::from_u16(parts.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let later = parts.headers.iter().position(|(name, _)| *name == header::RETRY_AFTER);
        let later = later.map(|at| parts.headers.swap_remove(at).1);
        (status, parts.detail, bounded(parts.errors), later)
    }

    /// The problem as JSON text, with its status.
    pub(crate) fn problem(
        self,
        request_id: &str,
        spelling: Spelling,
    ) -> (StatusCode, String, Vec<(HeaderName, HeaderValue)>) {
        // The surfaces know one spelling of the parameters of a list.
        let of_list = matches!(self, Self::Query(_));
        let mut parts = self.tell();
        let status = StatusCode::from_u16(parts.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = std::mem::take(&mut parts.headers);
        parts.errors = bounded(parts.errors);
        for error in parts.errors.iter_mut().filter(|_| of_list) {
            error.pointer = spelling.name(&error.pointer);
        }
        let text = match spelling {
            Spelling::Snake => serde_json::to_string(&Problem::new(parts, status, request_id)),
            Spelling::Camel => serde_json::to_string(&AgentProblem::new(parts, status, request_id)),
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
