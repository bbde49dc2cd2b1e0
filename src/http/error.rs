//! Errors of the HTTP edge and how responses report them: one [`Error`] → status, code, safe text.
//!
//! Problems are RFC 9457 `application/problem+json`. `code` is a closed list on which clients branch. No problem
//! contains a credential, an upstream message or a payload.

use std::borrow::Cow;
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use serde::Serialize;
use utoipa::ToSchema;

use super::headers;
use super::spelling::Spelling;
use crate::domain::action::{ActionStatus, Resolution};
use crate::domain::agent_run::InDoubtCall;
use crate::domain::budget::Exceeded;
use crate::domain::definition::DefinitionError;
use crate::domain::error_class::ErrorClass;
use crate::domain::ids::{DecisionId, RunId};
use crate::surfaces::agents::{AgentError, OutcomeUnknown};
use crate::surfaces::caller::APPROVER;
use crate::surfaces::chat::ChatError;
use crate::surfaces::chat::request::FieldError;
use crate::surfaces::decisions::QueryError;

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $variant:ident = $text:literal, $status:literal;)+) => {
        /// Why a request failed: the closed list on which clients branch.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code { $($(#[doc = $doc])+ $variant,)+ }

        impl Code {
            /// All codes.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The code on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// The HTTP status of the code.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)+ }
            }

            /// The class of the code, for the routes of threads, runs and approvals (R-16).
            #[must_use]
            pub const fn class(self) -> ErrorClass {
                match self {
                    Self::Unauthenticated | Self::UserMismatch | Self::Forbidden | Self::AuthUnavailable => {
                        ErrorClass::AuthError
                    }
                    Self::NotGrantable | Self::RateLimited => ErrorClass::PolicyError,
                    _ if self.status() >= 500 => ErrorClass::ToolExecutionError,
                    _ => ErrorClass::ValidationError,
                }
            }

            /// The meaning of the code, for the API reference.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc),+),)+ }
            }
        }
    };
}

codes! {
    /// The body, a query parameter or a header is not valid; `errors` names each place.
    InvalidRequest = "invalid_request", 400;
    /// Credentials are missing or invalid.
    Unauthenticated = "unauthenticated", 401;
    /// The request names another user than its token or key.
    UserMismatch = "user_mismatch", 403;
    /// The caller lacks a required role.
    Forbidden = "forbidden", 403;
    /// There is no such route or object, or the object belongs to another user.
    NotFound = "not_found", 404;
    /// The route does not support this method; `Allow` names the supported ones.
    MethodNotAllowed = "method_not_allowed", 405;
    /// The body took too long to arrive.
    RequestTimeout = "request_timeout", 408;
    /// A request with this idempotency key is still running.
    StillRunning = "still_running", 409;
    /// The agent comes from a file and can be changed only in that file.
    ReadOnly = "read_only", 409;
    /// The project has as many agents created through the API as it may have.
    TooManyAgents = "too_many_agents", 409;
    /// Only a paused run can be resumed.
    NotPaused = "not_paused", 409;
    /// The run was resumed already; `run_id` names the run that continues it.
    AlreadyResumed = "already_resumed", 409;
    /// The run was called by another run, which must be resumed instead; or the action is settled by resuming its run.
    /// `run_id` names that run.
    PartOfRun = "part_of_run", 409;
    /// Another run of the thread is in progress; `run_id` names it.
    ThreadBusy = "thread_busy", 409;
    /// The approval was resolved already, or it expired.
    AlreadyResolved = "already_resolved", 409;
    /// Only an in-doubt action can be settled.
    NotInDoubt = "not_in_doubt", 409;
    /// An action can be settled only after its run has ended; `run_id` names the run.
    RunInProgress = "run_in_progress", 409;
    /// The steps of the run are exhausted, counted over all its resumes.
    StepLimitExceeded = "step_limit_exceeded", 409;
    /// The outcome of some tool calls is unknown; `errors` names each one. Report what happened in `settled`.
    CallsInDoubt = "calls_in_doubt", 409;
    /// The current version of the agent is not the one in `If-Match`.
    VersionConflict = "version_conflict", 412;
    /// The body exceeds its size limit.
    BodyTooLarge = "body_too_large", 413;
    /// The body is not JSON in UTF-8 without content coding.
    UnsupportedMediaType = "unsupported_media_type", 415;
    /// The query takes too long; narrow the filter.
    QueryTooSlow = "query_too_slow", 422;
    /// The definition is invalid; `errors` names every error.
    InvalidDefinition = "invalid_definition", 422;
    /// A grant cannot be given for this action. The approval was not resolved.
    NotGrantable = "not_grantable", 422;
    /// This idempotency key was used with another body.
    IdempotencyKeyReused = "idempotency_key_reused", 422;
    /// The caller's quota is exceeded; `Retry-After` says how long to wait.
    RateLimited = "rate_limited", 429;
    /// The request may have had effects, and its outcome is not recorded yet; `decision_id` or `run_id` names the
    /// record. Check it before you send the request again.
    OutcomeUnrecorded = "outcome_unrecorded", 500;
    /// An internal error of gavel.
    Internal = "internal", 500;
    /// The run exists, but its state cannot be read now; `run_id` names it. Check it later; do not send the request
    /// again without its idempotency key.
    RunUnreadable = "run_unreadable", 503;
    /// The record store is unavailable, so nothing was done. The request can be sent again.
    RecordUnavailable = "record_unavailable", 503;
    /// Too many requests are in progress, or the service is stopping. The request can be sent again.
    Overloaded = "overloaded", 503;
    /// The agent that answers in threads is missing or cannot run, because the configuration of the service is invalid.
    /// Nothing was done.
    AgentUnavailable = "agent_unavailable", 503;
    /// The keys that verify tokens are unavailable now.
    AuthUnavailable = "auth_unavailable", 503;
}

/// Seconds that a client should wait before it retries.
const RETRY_AFTER: &str = "1";

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
    /// An error of the agents surface.
    Agent(AgentError),
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
    /// The query exceeded this time.
    QueryTooSlow(Duration),
    /// The request was executed, and its outcome is not recorded yet.
    OutcomeUnrecorded(DecisionId),
    /// The record store is unavailable.
    RecordUnavailable,
    /// The keys that verify tokens are unavailable.
    AuthUnavailable,
    /// An internal error.
    Internal,
}

/// The parts of an error response.
struct ProblemParts {
    code: Code,
    detail: Cow<'static, str>,
    errors: Vec<FieldError>,
    decision: Option<DecisionId>,
    run: Option<RunId>,
    outcome: Option<Late>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl ProblemParts {
    fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            detail: detail.into(),
            errors: Vec::new(),
            decision: None,
            run: None,
            outcome: None,
            headers: Vec::new(),
        }
    }

    fn header(mut self, name: HeaderName, value: &'static str) -> Self {
        self.headers.push((name, HeaderValue::from_static(value)));
        self
    }

    /// Adds `Retry-After`.
    fn later(self) -> Self {
        self.header(header::RETRY_AFTER, RETRY_AFTER)
    }
}

/// The outcome of an action that was resolved or settled before this request.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Late {
    /// The current state of the action.
    pub state: ActionStatus,
    /// The decision of the approver (`already_resolved`); absent if the approval expired.
    #[schema(required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<Resolution>,
    /// The approver.
    #[schema(required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved_by: Option<String>,
}

/// The two spellings of a problem (RFC 9457).
macro_rules! problems {
    ($(#[$of:meta])* $name:ident { $($(#[$more:meta])* $field:ident: $type:ty,)* }) => {
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
            #[schema(schema_with = super::openapi::schemas::code)]
            pub code: &'static str,
            /// The request's id, as in `X-Request-Id`.
            #[schema(value_type = String)]
            pub request_id: &'a str,
            /// The decision concerned (`outcome_unrecorded`).
            #[schema(schema_with = super::openapi::schemas::id, required = false)]
            #[serde(skip_serializing_if = "Option::is_none")]
            pub decision_id: Option<DecisionId>,
            /// The run concerned (`already_resumed`, `part_of_run`, `run_unreadable`, `outcome_unrecorded` of a run).
            #[schema(schema_with = super::openapi::schemas::id, required = false)]
            #[serde(skip_serializing_if = "Option::is_none")]
            pub run_id: Option<RunId>,
            /// Each invalid place.
            #[schema(schema_with = super::openapi::schemas::field_errors, required = false)]
            #[serde(skip_serializing_if = "Vec::is_empty")]
            pub errors: Vec<FieldError>,
            $($(#[$more])* pub $field: $type,)*
        }
    };
}

problems! {
    /// `application/problem+json` (RFC 9457).
    Problem {}
}

problems! {
    /// `application/problem+json` (RFC 9457), as routes below `/api/agent/` return it.
    #[serde(rename_all = "camelCase")]
    AgentProblem {
        /// The class of the code.
        error_class: ErrorClass,
        /// The outcome of the action (`already_resolved`, `not_in_doubt`).
        #[schema(required = false)]
        #[serde(skip_serializing_if = "Option::is_none")]
        outcome: Option<Late>,
    }
}

impl Error {
    /// The code of the error.
    #[must_use]
    pub fn code(&self) -> Code {
        self.clone().tell().code
    }

    #[rustfmt::skip]
    fn tell(self) -> ProblemParts {
        match self {
            Self::Invalid(errors) => ProblemParts {
                errors,
                ..ProblemParts::new(Code::InvalidRequest, "The request is not valid; errors names each place.")
            },
            Self::InvalidHeader(name, problem) => ProblemParts {
                errors: vec![FieldError { pointer: name.to_owned(), detail: problem.to_owned() }],
                ..ProblemParts::new(Code::InvalidRequest, format!("The header {name} {problem}."))
            },
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
            Self::NotFound => ProblemParts::new(Code::NotFound, "There is no such object, or it belongs to another user: a service must name the user it acts for (X-Gavel-User; --user on the command line)."),
            Self::Missing(what) => ProblemParts::new(Code::NotFound, what),
            Self::MethodNotAllowed(allow) => {
                let value = HeaderValue::from_str(&allow).ok();
                let parts = ProblemParts::new(Code::MethodNotAllowed, format!("This route supports only {allow}."));
                ProblemParts { headers: value.map(|value| (header::ALLOW, value)).into_iter().collect(), ..parts }
            }
            Self::NoForm => {
                let detail = "A definition must be application/json, application/yaml, text/markdown or \
                              application/x-protobuf; set Content-Type.";
                ProblemParts::new(Code::UnsupportedMediaType, detail)
            }
            Self::Agent(error) => agent(error),
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
            Self::QueryTooSlow(limit) => ProblemParts::new(Code::QueryTooSlow, format!(
                "The query took longer than {} s. Narrow the filter, for example by created_at.", limit.as_secs()
            )),
            Self::OutcomeUnrecorded(id) => ProblemParts {
                decision: Some(id),
                ..ProblemParts::new(Code::OutcomeUnrecorded, format!(
                    "Decision {id} may have had effects, and its outcome is not recorded yet. Do not send the request again; check \
                     the decision for its outcome."
                ))
            },
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

    /// Status, text, invalid places, and `Retry-After`, for a console page.
    pub(super) fn in_words(self) -> (StatusCode, Cow<'static, str>, Vec<FieldError>, Option<HeaderValue>) {
        let mut parts = self.tell();
        let status = StatusCode::from_u16(parts.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let later = parts.headers.iter().position(|(name, _)| *name == header::RETRY_AFTER);
        let later = later.map(|at| parts.headers.swap_remove(at).1);
        (status, parts.detail, bounded(parts.errors), later)
    }

    /// The problem as JSON text, with its status.
    pub(super) fn problem(
        self,
        request_id: &str,
        spelling: Spelling,
    ) -> (StatusCode, String, Vec<(HeaderName, HeaderValue)>) {
        // The surfaces know one spelling of the parameters of a list.
        let of_list = matches!(self, Self::Agent(AgentError::Query(_)));
        let parts = self.tell();
        let status = StatusCode::from_u16(parts.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let (r#type, title) = ("about:blank", status.canonical_reason().unwrap_or_default());
        let mut errors = bounded(parts.errors);
        for error in errors.iter_mut().filter(|_| of_list) {
            error.pointer = spelling.parameter(&error.pointer).to_owned();
        }
        let text = match spelling {
            Spelling::Snake => serde_json::to_string(&Problem {
                r#type,
                title,
                status: status.as_u16(),
                detail: parts.detail,
                code: parts.code.as_str(),
                request_id,
                decision_id: parts.decision,
                run_id: parts.run,
                errors,
            }),
            Spelling::Camel => serde_json::to_string(&AgentProblem {
                r#type,
                title,
                status: status.as_u16(),
                detail: parts.detail,
                code: parts.code.as_str(),
                request_id,
                decision_id: parts.decision,
                run_id: parts.run,
                errors,
                error_class: parts.code.class(),
                outcome: parts.outcome,
            }),
        };
        let text = text.unwrap_or_else(|error| unreachable!("a problem serializes: {error}"));
        (status, text, parts.headers)
    }

    /// The problem as a response.
    pub(super) fn respond(self, request_id: &str, spelling: Spelling) -> HttpResponse {
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

/// Reports an error of agents and their runs.
fn agent(error: AgentError) -> ProblemParts {
    match error {
        AgentError::NotFound => Error::NotFound.tell(),
        AgentError::Invalid(errors) => Error::Invalid(errors).tell(),
        AgentError::KeyReused => Error::KeyReused.tell(),
        AgentError::Begun(run) => ProblemParts {
            run: Some(run),
            ..Error::OutcomeUnrecorded(run.decision()).tell()
        },
        AgentError::Unreadable(run) => ProblemParts {
            run: Some(run),
            ..ProblemParts::new(
                Code::RunUnreadable,
                format!(
                    "Run {run} exists, but its state cannot be read now. Check it in a moment; do not send the request \
                     again without its Idempotency-Key."
                ),
            )
        },
        AgentError::OutcomeUnknown(what) => ProblemParts {
            run: match what {
                OutcomeUnknown::Run(run)
                | OutcomeUnknown::Cancel(run)
                | OutcomeUnknown::Answer(run)
                | OutcomeUnknown::Settle(run) => Some(run),
                OutcomeUnknown::Put | OutcomeUnknown::Revoke => None,
            },
            ..ProblemParts::new(Code::OutcomeUnrecorded, what.to_string())
        },
        AgentError::RecordUnavailable => Error::RecordUnavailable.tell(),
        AgentError::Query(error) => Error::from(error).tell(),
        AgentError::InvalidDefinition(errors) => ProblemParts {
            errors: errors.into_iter().map(definition_error).collect(),
            ..ProblemParts::new(
                Code::InvalidDefinition,
                "The definition is invalid; errors names every error.",
            )
        },
        AgentError::MissingRole(APPROVER) => {
            let detail = "This requires the role approver, or X-Gavel-User with the user it concerns.";
            ProblemParts::new(Code::Forbidden, detail)
        }
        AgentError::MissingRole(role) => ProblemParts::new(Code::Forbidden, format!("This requires the role {role}.")),
        AgentError::FromFile => {
            let detail = "The agent comes from a file; edit that file, and gavel reloads it automatically.";
            ProblemParts::new(Code::ReadOnly, detail)
        }
        AgentError::VersionConflict(current) => ProblemParts::new(
            Code::VersionConflict,
            format!("The current version is {current}; 0 means that there is none."),
        ),
        AgentError::TooManyAgents(most) => ProblemParts::new(
            Code::TooManyAgents,
            format!(
                "The project has {most} agents created through the API, the most it may have; put the agent into another project."
            ),
        ),
        AgentError::RateLimited(quota) => ProblemParts {
            headers: headers::rate_limit(&quota)
                .into_iter()
                .chain([(header::RETRY_AFTER, headers::seconds(quota.reset_s.max(1)))])
                .collect(),
            ..ProblemParts::new(
                Code::RateLimited,
                "The quota is exceeded; Retry-After says how long to wait.",
            )
        },
        AgentError::Overloaded => ProblemParts::new(
            Code::Overloaded,
            "Too much work is in progress. Nothing was started; the request can be sent again.",
        )
        .later(),
        AgentError::NotPaused(status) => ProblemParts::new(
            Code::NotPaused,
            format!("Only a paused run can be resumed; this one is {}.", status.as_str()),
        ),
        AgentError::ResumedBy(run) => ProblemParts {
            run: Some(run),
            ..ProblemParts::new(
                Code::AlreadyResumed,
                format!("The run was resumed already, by run {run}."),
            )
        },
        AgentError::PartOf(run) => ProblemParts {
            run: Some(run),
            ..ProblemParts::new(
                Code::PartOfRun,
                format!("The run was called by another run; resume run {run} instead."),
            )
        },
        AgentError::SettledWith(run) => ProblemParts {
            run: Some(run),
            ..ProblemParts::new(
                Code::PartOfRun,
                format!(
                    "The action is settled by resuming its run: resume run {run} and report what happened in settled."
                ),
            )
        },
        AgentError::NotOver(run) => ProblemParts {
            run: Some(run),
            ..ProblemParts::new(
                Code::RunInProgress,
                format!(
                    "Run {run} of this action is still in progress; resolve its approvals or cancel it, and then settle the action."
                ),
            )
        },
        AgentError::NotGrantable(why) => ProblemParts::new(Code::NotGrantable, format!("{why}.")),
        AgentError::NoAnswerer(why) => {
            let detail =
                format!("No agent answers here, since the setting runs.agent is invalid: {why}. Tell the operator.");
            ProblemParts::new(Code::AgentUnavailable, detail)
        }
        AgentError::ThreadBusy(run) => ProblemParts {
            run: Some(run),
            ..ProblemParts::new(
                Code::ThreadBusy,
                format!(
                    "Run {run} of this thread is in progress or waits for approval; resolve its approvals, send the message after the run has ended, or cancel that run."
                ),
            )
        },
        AgentError::Resolved(status, resolution, by) => {
            let detail = match (resolution, &by) {
                (Some(resolution), Some(by)) => format!(
                    "The approval was resolved already: {} by {by}; the action is {}.",
                    resolution.as_str(),
                    status.as_str()
                ),
                _ => "The approval expired, or the run ended first. The action was not executed.".to_owned(),
            };
            ProblemParts {
                outcome: Some(Late {
                    state: status,
                    decision: resolution,
                    resolved_by: by,
                }),
                ..ProblemParts::new(Code::AlreadyResolved, detail)
            }
        }
        AgentError::NotInDoubt(status) => ProblemParts {
            outcome: Some(Late {
                state: status,
                decision: None,
                resolved_by: None,
            }),
            ..ProblemParts::new(
                Code::NotInDoubt,
                format!(
                    "Only an in-doubt action can be settled; this one is {}.",
                    status.as_str()
                ),
            )
        },
        AgentError::StepLimitExceeded => ProblemParts::new(
            Code::StepLimitExceeded,
            "The steps of this run are exhausted over all its resumes; trigger the agent again.",
        ),
        AgentError::InDoubt(calls) => ProblemParts {
            errors: calls.iter().map(in_doubt_error).collect(),
            ..ProblemParts::new(
                Code::CallsInDoubt,
                "The outcome of these tool calls is unknown. Find out, and report each one in settled: true if it \
                 happened, false if it did not.",
            )
        },
    }
}

/// Reports an error or a warning of a definition, with its field, and its line if known.
pub(super) fn definition_error(error: DefinitionError) -> FieldError {
    let place = match (error.file.as_str(), error.line) {
        ("body", None) => String::new(),
        ("body", Some(line)) => format!("line {line}: "),
        (file, None) => format!("{file}: "),
        (file, Some(line)) => format!("{file}, line {line}: "),
    };
    // The body does not contain the definitions of other agents.
    let pointer = if error.file == "body" {
        pointer(&error.field)
    } else {
        String::new()
    };
    let field = if pointer.is_empty() {
        format!("{}: ", error.field)
    } else {
        String::new()
    };
    FieldError {
        pointer,
        detail: format!("{place}{field}found {}; allowed: {}", error.found, error.allowed),
    }
}

/// A field's path as a JSON pointer into the definition: `tools[0]` is `/tools/0`. Empty for text that is not a field,
/// such as "front matter".
fn pointer(field: &str) -> String {
    if field.contains(' ') {
        return String::new();
    }
    let parts = field.split(['.', '[']).map(|part| part.trim_end_matches(']'));
    parts.map(|part| format!("/{part}")).collect()
}

fn in_doubt_error(call: &InDoubtCall) -> FieldError {
    FieldError {
        pointer: format!("/settled/{}", call.action_id),
        detail: format!(
            "is missing; set it to true if the call of {} happened, else to false",
            call.tool
        ),
    }
}

impl From<Exceeded> for Error {
    fn from(exceeded: Exceeded) -> Self {
        Self::TooMuch(exceeded)
    }
}

impl From<AgentError> for Error {
    fn from(error: AgentError) -> Self {
        Self::Agent(error)
    }
}

impl From<ChatError> for Error {
    fn from(error: ChatError) -> Self {
        match error {
            ChatError::Invalid(errors) => Self::Invalid(errors),
            ChatError::RecordUnavailable => Self::RecordUnavailable,
            ChatError::OutcomeUnrecorded(id) => Self::OutcomeUnrecorded(id),
            ChatError::KeyReused => Self::KeyReused,
            ChatError::StillRunning => Self::StillRunning,
        }
    }
}

impl From<QueryError> for Error {
    fn from(error: QueryError) -> Self {
        match error {
            QueryError::Invalid { field, detail } => Self::Invalid(vec![FieldError {
                pointer: field.to_owned(),
                detail,
            }]),
            QueryError::TooSlow { limit } => Self::QueryTooSlow(limit),
            QueryError::Unavailable(reason) => {
                tracing::error!(%reason, "a query failed: the record store is unavailable");
                Self::RecordUnavailable
            }
        }
    }
}
