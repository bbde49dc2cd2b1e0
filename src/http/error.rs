//! What goes wrong at the edge, and how it is told: one [`Error`] → status, code, safe words.
//!
//! Problems are RFC 9457 `application/problem+json`. `code` is a closed list; clients decide by it.
//! Nothing here repeats a credential, an upstream's message or a payload.

use std::borrow::Cow;
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use serde::Serialize;
use utoipa::ToSchema;

use super::headers;
use crate::domain::action::{ActionStatus, Resolution};
use crate::domain::agent_run::DoubtfulCall;
use crate::domain::budget::Exceeded;
use crate::domain::definition::DefinitionError;
use crate::domain::error_class::ErrorClass;
use crate::domain::ids::{DecisionId, RunId};
use crate::surfaces::agents::{AgentError, Unheard};
use crate::surfaces::caller::APPROVER;
use crate::surfaces::chat::ChatError;
use crate::surfaces::chat::request::FieldError;
use crate::surfaces::decisions::QueryError;

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $variant:ident = $text:literal, $status:literal;)+) => {
        /// Why there is no answer: the closed list that clients decide by.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code { $($(#[doc = $doc])+ $variant,)+ }

        impl Code {
            /// Every code there is.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The code on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// The HTTP status it comes with.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)+ }
            }

            /// Its class, for the routes of threads, runs and approvals (R-16).
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

            /// What it means, for the reference.
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
    /// Credentials are missing or were not accepted.
    Unauthenticated = "unauthenticated", 401;
    /// The body names another user than the token.
    UserMismatch = "user_mismatch", 403;
    /// The caller lacks the role that this needs.
    Forbidden = "forbidden", 403;
    /// There is no such route or object, or it is somebody else's.
    NotFound = "not_found", 404;
    /// The route does not have this method; `Allow` names those it has.
    MethodNotAllowed = "method_not_allowed", 405;
    /// The body took too long to arrive.
    RequestTimeout = "request_timeout", 408;
    /// A request with this idempotency key is still running.
    StillRunning = "still_running", 409;
    /// The agent is from a file; files are changed where they stand.
    ReadOnly = "read_only", 409;
    /// The project has as many agents by the API as it may have.
    TooManyAgents = "too_many_agents", 409;
    /// Only a paused run can be resumed.
    NotPaused = "not_paused", 409;
    /// The run was resumed already; `run_id` names the run that goes on with it.
    AlreadyResumed = "already_resumed", 409;
    /// The run was called by another one, and is resumed with it; or the action is settled with its run. `run_id` names that one.
    PartOfRun = "part_of_run", 409;
    /// Another run of the thread is going; `run_id` names it.
    ThreadBusy = "thread_busy", 409;
    /// Somebody has answered before, or the time was over.
    AlreadyResolved = "already_resolved", 409;
    /// Only an action in doubt can be settled.
    NotInDoubt = "not_in_doubt", 409;
    /// An action is settled when its run is over; `run_id` names it.
    RunNotOver = "run_not_over", 409;
    /// No steps are left over all resumes of the run.
    StepsSpent = "steps_spent", 409;
    /// It is not known whether calls of the run had their effect; `errors` names each. Say what happened in `settled`.
    CallsInDoubt = "calls_in_doubt", 409;
    /// Another version of the agent is current than `If-Match` says.
    VersionConflict = "version_conflict", 412;
    /// The body is over its limit.
    BodyTooLarge = "body_too_large", 413;
    /// The body is not JSON in UTF-8 without content coding.
    UnsupportedMediaType = "unsupported_media_type", 415;
    /// The answer would take too long to find; narrow the filter.
    QueryTooSlow = "query_too_slow", 422;
    /// The definition is wrong; `errors` names every mistake.
    WrongDefinition = "wrong_definition", 422;
    /// Leave for good cannot be given for this call. Nothing was answered.
    NotGrantable = "not_grantable", 422;
    /// This idempotency key was used with another body.
    IdempotencyKeyReused = "idempotency_key_reused", 422;
    /// Over the caller's quota; `Retry-After` says how long to wait.
    RateLimited = "rate_limited", 429;
    /// Something was done, or may have been, and is not recorded yet; `decision_id` or `run_id` names it. Look there before it is
    /// sent again.
    OutcomeUnrecorded = "outcome_unrecorded", 500;
    /// A fault of gavel.
    Internal = "internal", 500;
    /// The run is there, and how it stands cannot be read now; `run_id` names it. Look at it later; do not send the request again
    /// without its idempotency key.
    RunUnreadable = "run_unreadable", 503;
    /// Nothing can be recorded now, so nothing was done. Safe to send again.
    RecordUnavailable = "record_unavailable", 503;
    /// Too much is under way, or the service is stopping. Safe to send again.
    Overloaded = "overloaded", 503;
    /// Whoever shall answer in threads is not there, or cannot: a setting of the service is wrong. Nothing was done.
    AgentUnavailable = "agent_unavailable", 503;
    /// The keys that tokens are checked with cannot be had now.
    AuthUnavailable = "auth_unavailable", 503;
}

/// Seconds a client should wait before it tries again what is unavailable or still running.
const RETRY_AFTER: &str = "1";

/// Why a request has no answer of a surface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// Body or query off.
    Invalid(Vec<FieldError>),
    /// A header off: its name, what is wrong.
    InvalidHeader(&'static str, &'static str),
    /// No credentials, with the challenge.
    Unauthenticated,
    /// Credentials that do not count. Which part was wrong is not told.
    NotAccepted,
    /// The body names another user.
    UserMismatch,
    /// The request names a host that is not this machine, and nobody is told apart.
    NotThisHost,
    /// No such route.
    NoRoute,
    /// No such object.
    NotFound,
    /// As [`Error::NotFound`], saying what was looked for. What is somebody else's is told as what is not there.
    Missing(String),
    /// Wrong method; the value of `Allow`.
    MethodNotAllowed(String),
    /// A definition in a form that is none.
    NoForm,
    /// What the surface of agents says.
    Agent(AgentError),
    /// The body did not arrive in time.
    BodyTimeout,
    /// The body broke off, or its framing is wrong.
    BodyBroken,
    /// The body has more bytes than this.
    BodyTooLarge(usize),
    /// As much as this is under way, and no more may be. Nothing was done.
    TooMuch(Exceeded),
    /// A page of another site sent it, and nobody is told apart.
    ForeignPage,
    /// No JSON.
    NotJson,
    /// Neither JSON nor plain text.
    NotJsonOrText,
    /// A `Content-Encoding`.
    Encoded,
    /// The first request with this key is still running.
    StillRunning,
    /// The key came with another body before.
    KeyReused,
    /// Not found within this time.
    QueryTooSlow(Duration),
    /// Done, and not recorded yet.
    OutcomeUnrecorded(DecisionId),
    /// Nothing can be recorded.
    RecordUnavailable,
    /// No keys to check tokens with.
    AuthUnavailable,
    /// Our fault.
    Internal,
}

/// How an error is told.
struct Told {
    code: Code,
    detail: Cow<'static, str>,
    errors: Vec<FieldError>,
    decision: Option<DecisionId>,
    run: Option<RunId>,
    outcome: Option<Late>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Told {
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

    /// Worth another try.
    fn later(self) -> Self {
        self.header(header::RETRY_AFTER, RETRY_AFTER)
    }
}

/// What became of an action before somebody came late.
#[derive(Debug, Serialize, ToSchema)]
pub struct Late {
    /// Where the action is.
    pub state: ActionStatus,
    /// What was answered (`already_resolved`); absent where nobody did.
    #[schema(required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<Resolution>,
    /// By whom.
    #[schema(required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved_by: Option<String>,
}

/// `application/problem+json` (RFC 9457).
#[derive(Debug, Serialize, ToSchema)]
pub struct Problem<'a> {
    /// Always `about:blank`: `code` tells the problems apart.
    #[schema(value_type = String, example = "about:blank")]
    pub r#type: &'static str,
    /// The status in words.
    #[schema(value_type = String, example = "Bad Request")]
    pub title: &'a str,
    /// The HTTP status.
    #[schema(example = 400)]
    pub status: u16,
    /// What happened, for a person.
    #[schema(example = "the request is not valid")]
    #[schema(value_type = String)]
    pub detail: Cow<'static, str>,
    /// What happened, for a program; see the list of codes.
    #[schema(schema_with = super::openapi::schemas::code)]
    pub code: &'static str,
    /// The class of the code; on the routes below `/api/agent`.
    #[schema(required = false)]
    #[serde(rename = "errorClass", skip_serializing_if = "Option::is_none")]
    pub error_class: Option<ErrorClass>,
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
    /// What became of the action (`already_resolved`, `not_in_doubt`).
    #[schema(required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Late>,
    /// Each place that is wrong.
    #[schema(schema_with = super::openapi::schemas::field_errors, required = false)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
}

impl Error {
    /// The code it is told by.
    #[must_use]
    pub fn code(&self) -> Code {
        self.clone().tell().code
    }

    #[rustfmt::skip]
    fn tell(self) -> Told {
        match self {
            Self::Invalid(errors) => Told {
                errors,
                ..Told::new(Code::InvalidRequest, "The request is not valid; errors names each place.")
            },
            Self::InvalidHeader(name, problem) => Told {
                errors: vec![FieldError { pointer: name.to_owned(), detail: problem.to_owned() }],
                ..Told::new(Code::InvalidRequest, format!("The header {name} {problem}."))
            },
            Self::Unauthenticated => Told::new(Code::Unauthenticated, "This route needs credentials.")
                .header(header::WWW_AUTHENTICATE, r#"Bearer realm="gavel""#),
            Self::NotAccepted => Told::new(Code::Unauthenticated, "The credentials were not accepted.")
                .header(header::WWW_AUTHENTICATE, r#"Bearer realm="gavel", error="invalid_token""#),
            Self::UserMismatch => {
                Told::new(Code::UserMismatch, "user_id or X-Gavel-User names somebody else than the key or the token; leave it out, or name the same.")
            }
            Self::NotThisHost => {
                let detail = "With auth.mode = none gavel answers under localhost and loopback addresses alone; another name needs api_key or jwt.";
                Told::new(Code::Forbidden, detail)
            }
            Self::NoRoute => Told::new(Code::NotFound, "There is no such route."),
            Self::NotFound => Told::new(Code::NotFound, "There is no such object, or it is another user's: a service names the user it acts for (X-Gavel-User; --user on the command line)."),
            Self::Missing(what) => Told::new(Code::NotFound, what),
            Self::MethodNotAllowed(allow) => {
                let value = HeaderValue::from_str(&allow).ok();
                let told = Told::new(Code::MethodNotAllowed, format!("This route has only {allow}."));
                Told { headers: value.map(|value| (header::ALLOW, value)).into_iter().collect(), ..told }
            }
            Self::NoForm => {
                let detail = "A definition comes as application/json, application/yaml, text/markdown or \
                              application/x-protobuf; say so in Content-Type.";
                Told::new(Code::UnsupportedMediaType, detail)
            }
            Self::Agent(error) => agent(error),
            Self::BodyTimeout => Told::new(Code::RequestTimeout, "The body took too long to arrive."),
            Self::BodyBroken => Told::new(Code::InvalidRequest, "The body broke off, or its framing is wrong."),
            Self::BodyTooLarge(limit) => Told::new(Code::BodyTooLarge, format!("The body has more than {limit} bytes.")),
            Self::TooMuch(exceeded) => {
                Told::new(Code::Overloaded, format!("Too much is under way: {exceeded}. Nothing was done; send the request again later.")).later()
            }
            Self::ForeignPage => {
                let detail = "A page of another site sent this (Origin, Sec-Fetch-Site). With auth.mode = none gavel changes nothing for other sites; a service that calls for a page needs api_key or jwt.";
                Told::new(Code::Forbidden, detail)
            }
            Self::NotJson => {
                let detail = "The body must be application/json in UTF-8; say so in Content-Type.";
                Told::new(Code::UnsupportedMediaType, detail).header(header::ACCEPT, "application/json")
            }
            Self::NotJsonOrText => {
                let detail = "The body must be application/json or text/plain, in UTF-8; say so in Content-Type. For an agent without inputs leave it out.";
                Told::new(Code::UnsupportedMediaType, detail).header(header::ACCEPT, "application/json, text/plain")
            }
            Self::Encoded => {
                let detail = "The body must come without Content-Encoding.";
                Told::new(Code::UnsupportedMediaType, detail).header(header::ACCEPT_ENCODING, "identity")
            }
            Self::StillRunning => {
                let detail = "A request with this idempotency key is still running; try again later.";
                Told::new(Code::StillRunning, detail).later()
            }
            Self::KeyReused => {
                Told::new(Code::IdempotencyKeyReused, "This idempotency key was used with another request body.")
            }
            Self::QueryTooSlow(limit) => Told::new(Code::QueryTooSlow, format!(
                "The answer was not found within {} s. Narrow the filter, with a created_at for example.", limit.as_secs()
            )),
            Self::OutcomeUnrecorded(id) => Told {
                decision: Some(id),
                ..Told::new(Code::OutcomeUnrecorded, format!(
                    "Decision {id} may have had effects, and its outcome is not recorded yet. Do not send the request again; see \
                     the decision for what is known."
                ))
            },
            Self::RecordUnavailable => {
                let detail = "The record store is unavailable. Nothing was done; the request can be sent again.";
                Told::new(Code::RecordUnavailable, detail).later()
            }
            Self::AuthUnavailable => {
                Told::new(Code::AuthUnavailable, "Tokens cannot be checked now; the request can be sent again.").later()
            }
            Self::Internal => {
                Told::new(Code::Internal, "gavel failed to answer; the request id finds the reason in its log.")
            }
        }
    }

    /// Status, words, each place that is wrong, and `Retry-After`, for a page.
    pub(super) fn in_words(self) -> (StatusCode, Cow<'static, str>, Vec<FieldError>, Option<HeaderValue>) {
        let mut told = self.tell();
        let status = StatusCode::from_u16(told.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let later = told.headers.iter().position(|(name, _)| *name == header::RETRY_AFTER);
        let later = later.map(|at| told.headers.swap_remove(at).1);
        (status, told.detail, bounded(told.errors), later)
    }

    /// The problem as JSON text, with its status; with the class of its code where that is told.
    pub(super) fn problem(
        self,
        request_id: &str,
        classed: bool,
    ) -> (StatusCode, String, Vec<(HeaderName, HeaderValue)>) {
        let told = self.tell();
        let status = StatusCode::from_u16(told.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let problem = Problem {
            r#type: "about:blank",
            title: status.canonical_reason().unwrap_or_default(),
            status: status.as_u16(),
            detail: told.detail,
            code: told.code.as_str(),
            error_class: classed.then(|| told.code.class()),
            request_id,
            decision_id: told.decision,
            run_id: told.run,
            outcome: told.outcome,
            errors: bounded(told.errors),
        };
        let text = serde_json::to_string(&problem).unwrap_or_else(|error| unreachable!("a problem prints: {error}"));
        (status, text, told.headers)
    }

    /// The problem as a response.
    pub(super) fn respond(self, request_id: &str, classed: bool) -> HttpResponse {
        let (status, text, headers) = self.problem(request_id, classed);
        let mut response = HttpResponse::build(status);
        response.insert_header((header::CONTENT_TYPE, headers::PROBLEM_JSON));
        response.insert_header((header::CACHE_CONTROL, headers::NO_STORE));
        for header in headers {
            response.insert_header(header);
        }
        response.body(text)
    }
}

/// Places that are told of one request, and their bytes as JSON: no request is answered with more than it is worth.
const MOST_PLACES: usize = 101;
const MOST_BYTES: usize = 48 << 10;

/// As many places as are told, and how many more there are.
fn bounded(mut errors: Vec<FieldError>) -> Vec<FieldError> {
    let mut bytes = 0;
    let fits = |error: &&FieldError| {
        bytes += serde_json::to_string(error).map_or(MOST_BYTES, |text| text.len());
        bytes <= MOST_BYTES
    };
    let told = errors.iter().take(MOST_PLACES).take_while(fits).count();
    let more = errors.len() - told;
    if more > 0 {
        errors.truncate(told);
        errors.push(FieldError {
            pointer: String::new(),
            detail: format!("{more} more are wrong; put these right first"),
        });
    }
    errors
}

/// What goes wrong with agents and their runs.
fn agent(error: AgentError) -> Told {
    match error {
        AgentError::NotFound => Error::NotFound.tell(),
        AgentError::Invalid(errors) => Error::Invalid(errors).tell(),
        AgentError::KeyReused => Error::KeyReused.tell(),
        AgentError::Begun(run) => Told {
            run: Some(run),
            ..Error::OutcomeUnrecorded(run.decision()).tell()
        },
        AgentError::Unreadable(run) => Told {
            run: Some(run),
            ..Told::new(
                Code::RunUnreadable,
                format!(
                    "Run {run} is there, and how it stands cannot be read now. Look at it in a moment; do not send the request \
                     again without its Idempotency-Key."
                ),
            )
        },
        AgentError::Unheard(what) => Told {
            run: match what {
                Unheard::Run(run) | Unheard::Cancel(run) | Unheard::Answer(run) | Unheard::Settle(run) => Some(run),
                Unheard::Put | Unheard::Revoke => None,
            },
            ..Told::new(Code::OutcomeUnrecorded, what.to_string())
        },
        AgentError::RecordUnavailable => Error::RecordUnavailable.tell(),
        AgentError::Query(error) => Error::from(error).tell(),
        AgentError::WrongDefinition(errors) => Told {
            errors: errors.into_iter().map(mistake).collect(),
            ..Told::new(
                Code::WrongDefinition,
                "The definition is wrong; errors names every mistake.",
            )
        },
        AgentError::MissingRole(APPROVER) => {
            let detail = "This needs the role approver, or X-Gavel-User, which names whose it is to be.";
            Told::new(Code::Forbidden, detail)
        }
        AgentError::MissingRole(role) => Told::new(Code::Forbidden, format!("This needs the role {role}.")),
        AgentError::FromFile => {
            let detail = "The agent is from a file, which is changed where it stands; gavel reads it again by itself.";
            Told::new(Code::ReadOnly, detail)
        }
        AgentError::VersionConflict(current) => Told::new(
            Code::VersionConflict,
            format!("Version {current} is current; 0 means that there is none."),
        ),
        AgentError::TooManyAgents(most) => Told::new(
            Code::TooManyAgents,
            format!(
                "The project has {most} agents by the API, the most it may have; put the agent into another project."
            ),
        ),
        AgentError::RateLimited(quota) => Told {
            headers: headers::rate_limit(&quota)
                .into_iter()
                .chain([(header::RETRY_AFTER, headers::seconds(quota.reset_s.max(1)))])
                .collect(),
            ..Told::new(Code::RateLimited, "Over the quota; Retry-After says how long to wait.")
        },
        AgentError::Overloaded => Told::new(
            Code::Overloaded,
            "Too much is under way. Nothing was begun; the request can be sent again.",
        )
        .later(),
        AgentError::NotPaused(status) => Told::new(
            Code::NotPaused,
            format!("Only a paused run can be resumed; this one is {}.", status.as_str()),
        ),
        AgentError::ResumedBy(run) => Told {
            run: Some(run),
            ..Told::new(
                Code::AlreadyResumed,
                format!("The run was resumed already, by run {run}."),
            )
        },
        AgentError::PartOf(run) => Told {
            run: Some(run),
            ..Told::new(
                Code::PartOfRun,
                format!("The run was called by another one; resume run {run} instead."),
            )
        },
        AgentError::SettledWith(run) => Told {
            run: Some(run),
            ..Told::new(
                Code::PartOfRun,
                format!("The action is settled with its run: resume run {run}, with what happened in settled."),
            )
        },
        AgentError::NotOver(run) => Told {
            run: Some(run),
            ..Told::new(
                Code::RunNotOver,
                format!(
                    "Run {run} of this action is not over; answer what it asks or cancel it, and settle the action then."
                ),
            )
        },
        AgentError::NotGrantable(why) => Told::new(Code::NotGrantable, format!("{why}.")),
        AgentError::NoAnswerer(why) => {
            let detail =
                format!("Nobody answers here, since the setting runs.agent is wrong: {why}. Tell the operator.");
            Told::new(Code::AgentUnavailable, detail)
        }
        AgentError::ThreadBusy(run) => Told {
            run: Some(run),
            ..Told::new(
                Code::ThreadBusy,
                format!(
                    "Run {run} of this thread is going, or waits for a person's answer; answer what it asks, send the message when it is over, or cancel that run."
                ),
            )
        },
        AgentError::Resolved(status, resolution, by) => {
            let detail = match (resolution, &by) {
                (Some(resolution), Some(by)) => format!(
                    "This was answered already: {} by {by}; the action is {}.",
                    resolution.as_str(),
                    status.as_str()
                ),
                _ => "Nobody answered in time, or the run was over first; the action is expired and does not run."
                    .to_owned(),
            };
            Told {
                outcome: Some(Late {
                    state: status,
                    decision: resolution,
                    resolved_by: by,
                }),
                ..Told::new(Code::AlreadyResolved, detail)
            }
        }
        AgentError::NotInDoubt(status) => Told {
            outcome: Some(Late {
                state: status,
                decision: None,
                resolved_by: None,
            }),
            ..Told::new(
                Code::NotInDoubt,
                format!(
                    "Only an action in doubt can be settled; this one is {}.",
                    status.as_str()
                ),
            )
        },
        AgentError::StepsSpent => Told::new(
            Code::StepsSpent,
            "No steps are left over all resumes of this run; trigger the agent anew.",
        ),
        AgentError::InDoubt(calls) => Told {
            errors: calls.iter().map(doubtful).collect(),
            ..Told::new(
                Code::CallsInDoubt,
                "It is not known whether these calls had their effect. Find out, and say of each in settled: true if it \
                 happened, false if it did not.",
            )
        },
    }
}

/// An error or a warning of a definition: its field, and its line where it has one.
pub(super) fn mistake(error: DefinitionError) -> FieldError {
    let place = match (error.file.as_str(), error.line) {
        ("body", None) => String::new(),
        ("body", Some(line)) => format!("line {line}: "),
        (file, None) => format!("{file}: "),
        (file, Some(line)) => format!("{file}, line {line}: "),
    };
    // Of another agent's definition nothing stands in the body.
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

/// A field's path as a JSON pointer into the definition: `tools[0]` is `/tools/0`. Empty for what is no field, as "front matter".
fn pointer(field: &str) -> String {
    if field.contains(' ') {
        return String::new();
    }
    let parts = field.split(['.', '[']).map(|part| part.trim_end_matches(']'));
    parts.map(|part| format!("/{part}")).collect()
}

fn doubtful(call: &DoubtfulCall) -> FieldError {
    FieldError {
        pointer: format!("/settled/{}", call.action_id),
        detail: format!("is missing: did the call of {} happen? true or false", call.tool),
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
                tracing::error!(%reason, "a query found the record store away");
                Self::RecordUnavailable
            }
        }
    }
}
