//! Parts of problems, and the closed list of codes on which clients branch.

use std::borrow::Cow;
use std::fmt;

use serde::{Serialize, Serializer};
use utoipa::openapi::{Object, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use super::names::{self, sent};
use crate::domain::action::{ActionStatus, Resolution};
use crate::domain::error_class::ErrorClass;

sent! {
    /// One invalid place of a request.
    #[derive(PartialEq, Eq)]
    FieldError as "FieldError" {
        /// JSON pointer into the body (empty: the body itself), or the name of a query parameter or header.
        pointer: String,
        /// What was found, and what is allowed.
        detail: String,
    }
}

impl FieldError {
    /// An error at this place.
    pub fn new(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            pointer: pointer.into(),
            detail: detail.into(),
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.pointer, self.detail)
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

            /// The class of the code, for the routes of threads, runs and approvals.
            #[must_use]
            pub const fn class(self) -> ErrorClass {
                match self {
                    Self::Unauthenticated | Self::UserMismatch | Self::Forbidden | Self::AuthUnavailable => {
                        ErrorClass::AuthError
                    }
                    Self::NotGrantable
                    | Self::RateLimited
                    | Self::RepositoryNotAllowed
                    | Self::TooManySessions => ErrorClass::PolicyError,
                    _ if self.status() >= 500 => ErrorClass::ToolExecutionError,
                    _ => ErrorClass::ValidationError,
                }
            }

            /// Seconds that a client should wait before it sends the request again, if that helps. That of the quota is
            /// in its response.
            #[must_use]
            pub const fn retry_after_s(self) -> Option<u32> {
                match self {
                    Self::StillRunning | Self::RecordUnavailable | Self::AuthUnavailable | Self::Overloaded => Some(1),
                    Self::TooManySessions => Some(60),
                    _ => None,
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
    /// The operator does not let planning sessions use this repository.
    RepositoryNotAllowed = "repository_not_allowed", 403;
    /// There is no such route or object, or the object belongs to another user. A service must name the user it acts for
    /// (X-Gavel-User; --user on the command line).
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
    /// A version of the plan is being made; wait for it, or cancel the session.
    PlanInProgress = "plan_in_progress", 409;
    /// The plan was confirmed, so it can no longer be changed by hand.
    PlanLocked = "plan_locked", 409;
    /// Another version of the plan is current; `planVersion` names it.
    PlanChanged = "plan_changed", 409;
    /// The planning session has ended.
    SessionOver = "session_over", 409;
    /// The deadline of the run or the planning session has passed.
    DeadlinePassed = "deadline_passed", 409;
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
    /// There are as many planning sessions as allowed. Cancel one, or wait until one has ended.
    TooManySessions = "too_many_sessions", 429;
    /// The request may have had effects, and its outcome is not recorded yet; `decision_id` or `run_id` names the
    /// record. Check it before you send the request again.
    OutcomeUnrecorded = "outcome_unrecorded", 500;
    /// An internal error of gavel; its log names the reason beside the request id.
    Internal = "internal", 500;
    /// The run exists, but its state cannot be read now; `run_id` names it. Check it later; do not send the request
    /// again without its idempotency key.
    RunUnreadable = "run_unreadable", 503;
    /// The record store is unavailable, so nothing was done. The request can be sent again.
    RecordUnavailable = "record_unavailable", 503;
    /// Too many requests are in progress, or the service is stopping. The request can be sent again.
    Overloaded = "overloaded", 503;
    /// The agent that answers in threads or makes plans, or a tool that it needs, is missing or unavailable; usually the
    /// configuration of the service is invalid. Nothing was done.
    AgentUnavailable = "agent_unavailable", 503;
    /// The keys that verify tokens are unavailable now.
    AuthUnavailable = "auth_unavailable", 503;
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// The closed list of codes.
impl PartialSchema for Code {
    fn schema() -> RefOr<Schema> {
        let codes = Object::builder().schema_type(Type::String);
        codes
            .enum_values(Some(Self::ALL.iter().map(|code| code.as_str())))
            .into()
    }
}

impl ToSchema for Code {
    fn name() -> Cow<'static, str> {
        "ProblemCode".into()
    }
}
