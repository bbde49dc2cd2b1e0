//! Errors of the HTTP edge and how responses report them: one [`Error`] → status, code, safe text. The errors of a
//! surface become problems beside its routes.
//!
//! Problems are RFC 9457 `application/problem+json`. `code` is a closed list on which clients branch. No problem
//! contains a credential, an upstream message or a payload.

pub(super) mod code;
mod problem;

use actix_web::http::header::{self, HeaderValue};

pub use code::Code;
pub use problem::{AgentProblem, Late, Problem, ProblemParts};

use crate::api::problem::FieldError;
use crate::domain::budget::Exceeded;
use crate::domain::ids::DecisionId;
use crate::surfaces::StoreFailure;
use crate::surfaces::decisions::QueryError;

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
        match self {
            Self::Invalid(errors) => {
                ProblemParts::new(Code::InvalidRequest, "The request is not valid; errors names each place.").places(errors)
            }
            Self::InvalidHeader(name, problem) => {
                ProblemParts::new(Code::InvalidRequest, format!("The header {name} {problem}.")).places(vec![FieldError::new(name, problem)])
            }
            Self::Unauthenticated => ProblemParts::new(Code::Unauthenticated, "This route requires credentials.")
                .header(header::WWW_AUTHENTICATE, r#"Bearer realm="gavel""#),
            Self::NotAccepted => ProblemParts::new(Code::Unauthenticated, "The credentials are invalid.")
                .header(header::WWW_AUTHENTICATE, r#"Bearer realm="gavel", error="invalid_token""#),
            Self::UserMismatch => {
                ProblemParts::new(Code::UserMismatch, "user_id or X-Gavel-User names another user than the key or the token; omit it, or name the same user.")
            }
            Self::NotThisHost => {
                let detail = "With auth.mode = none gavel accepts only localhost and loopback addresses as host; any other host requires api_key or jwt.";
                ProblemParts::new(Code::Forbidden, detail)
            }
            Self::NoRoute => ProblemParts::new(Code::NotFound, "There is no such route."),
            Self::NotFound => ProblemParts::new(Code::NotFound, "There is no such object, or it belongs to another user. A service must name the user it acts for (X-Gavel-User; --user on the command line)."),
            Self::Missing(what) => ProblemParts::new(Code::NotFound, what),
            Self::MethodNotAllowed(allow) => {
                let value = HeaderValue::from_str(&allow).ok();
                let parts = ProblemParts::new(Code::MethodNotAllowed, format!("This route supports only {allow}."));
                parts.headers(value.map(|value| (header::ALLOW, value)))
            }
            Self::NoForm => {
                let detail = "A definition must be application/json, application/yaml, text/markdown or \
                              application/x-protobuf; set Content-Type.";
                ProblemParts::new(Code::UnsupportedMediaType, detail)
            }
            Self::Problem(parts) => *parts,
            Self::Query(error) => query(error),
            Self::BodyTimeout => ProblemParts::new(Code::RequestTimeout, "The body took too long to arrive."),
            Self::BodyBroken => ProblemParts::new(Code::InvalidRequest, "The body ended early, or its framing is invalid."),
            Self::BodyTooLarge(limit) => ProblemParts::new(Code::BodyTooLarge, format!("The body has more than {limit} bytes.")),
            Self::TooMuch(exceeded) => {
                ProblemParts::new(Code::Overloaded, format!("Too much work is in progress: {exceeded}. Nothing was done; send the request again later.")).later()
            }
            Self::ForeignPage => {
                let detail = "A page of another site sent this request (Origin, Sec-Fetch-Site). With auth.mode = none gavel rejects such requests; a service that sends requests for a page requires api_key or jwt.";
                ProblemParts::new(Code::Forbidden, detail)
            }
            Self::NotJson => {
                let detail = "The body must be application/json in UTF-8; set Content-Type.";
                ProblemParts::new(Code::UnsupportedMediaType, detail).header(header::ACCEPT, "application/json")
            }
            Self::NotJsonOrText => {
                let detail = "The body must be application/json or text/plain, in UTF-8; set Content-Type. Omit the body for an agent without inputs.";
                ProblemParts::new(Code::UnsupportedMediaType, detail).header(header::ACCEPT, "application/json, text/plain")
            }
            Self::Encoded => {
                let detail = "The body must not have a Content-Encoding.";
                ProblemParts::new(Code::UnsupportedMediaType, detail).header(header::ACCEPT_ENCODING, "identity")
            }
            Self::StillRunning => {
                let detail = "A request with this idempotency key is still running; try again later.";
                ProblemParts::new(Code::StillRunning, detail).later()
            }
            Self::KeyReused => {
                ProblemParts::new(Code::IdempotencyKeyReused, "This idempotency key was used with another request body.")
            }
            Self::OutcomeUnrecorded(id) => ProblemParts::unrecorded(id),
            Self::RecordUnavailable => {
                let detail = "The record store is unavailable. Nothing was done; the request can be sent again.";
                ProblemParts::new(Code::RecordUnavailable, detail).later()
            }
            Self::AuthUnavailable => {
                ProblemParts::new(Code::AuthUnavailable, "Tokens cannot be verified now; the request can be sent again.").later()
            }
            Self::Internal => {
                ProblemParts::new(Code::Internal, "gavel failed to answer; search its log for the request id to find the reason.")
            }
        }
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
