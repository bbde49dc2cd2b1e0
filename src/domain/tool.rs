//! A tool as a server offers it, what a call of it may do, and how a call can fail.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::openapi::{Object, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use super::argument_path::ArgumentPath;
use super::ids::{TenantId, UserId};
use super::schema::JsonSchema;
use super::times::Times;

/// May a call be sent twice?
// DESIGN.md section 5, `idempotency`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Idempotency {
    /// No: a second call is a second effect.
    None,
    /// Yes: the tool itself makes a second call harmless.
    Natural,
    /// Yes, with the same `gavel/idempotency_key`.
    Key,
}

/// A tool's own word on whether a person must agree first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ApprovalDefault {
    /// A person must agree.
    Required,
    /// Nobody is asked.
    NotRequired,
}

/// One tool of one server. Immutable; a changed tool is another value in a later generation.
#[derive(Debug)]
pub struct Tool {
    /// The server's name in `mcp.json`.
    pub server: Arc<str>,
    /// The name on that server.
    pub name: Arc<str>,
    /// What the server says it does.
    pub description: String,
    /// The schema arguments are checked against, identity argument included.
    pub input: JsonSchema,
    /// The schema the model is shown: translated, identity argument taken out.
    pub model_schema: Box<RawValue>,
    /// The server's output schema, if it gave one.
    pub output_schema: Option<Box<RawValue>>,
    /// Does a call change something? True unless configured, or hinted by a trusted server, otherwise.
    pub side_effect: bool,
    /// May a call be repeated?
    pub idempotency: Idempotency,
    /// `approval` of `mcp.json`; absent: the agent's rule decides.
    pub approval: Option<ApprovalDefault>,
    /// The longest a call may take.
    pub timeout: Duration,
    /// The argument that carries the acting user's id, set by code and hidden from the model.
    pub identity_argument: Option<Arc<str>>,
    /// Is its server told users together with their tenant (`tenantUsers` of `mcp.json`)?
    pub tenant_users: bool,
    /// Paths of the arguments that name recipients (`recipients` of `mcp.json`).
    pub recipients: Vec<ArgumentPath>,
    /// Paths of the arguments that leave for good does not cover (`ungrantable` of `mcp.json`).
    pub ungrantable: Vec<ArgumentPath>,
    /// Paths of the arguments that must be one line (`oneLine` of `mcp.json`).
    pub one_line: Vec<ArgumentPath>,
    /// The arguments that hold times (`times` of `mcp.json`).
    pub times: Option<Times>,
    /// The tool of its server that tells whether it can be called for a user at all (`ready` of `mcp.json`).
    pub ready: Option<Arc<str>>,
    /// Hex SHA-256 over the canonical JSON of what the server sent: `name`, `description` (or `title`, where it has none),
    /// `inputSchema`, `outputSchema`, the five annotations of the protocol (`title`, `readOnlyHint`, `destructiveHint`,
    /// `idempotentHint`, `openWorldHint`), and `_meta["gavel/idempotency"]` where it is given. Nothing of `mcp.json`.
    pub digest: Arc<str>,
}

impl Tool {
    /// `server__tool`, the name that is unique over all servers.
    #[must_use]
    pub fn qualified_name(&self) -> String {
        format!("{}__{}", self.server, self.name)
    }

    /// Is it meant by `name`, bare or `server__tool`? A bare name that looks like another server's tool does not count.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        self.qualified_name() == name || (*self.name == *name && !name.contains("__"))
    }

    /// Where an argument stands when a person reads a call: whom it goes to first, then what its one line says, when it is, anything else
    /// short, and long text last.
    #[must_use]
    pub fn reading_order(&self, argument: &str, is_long: bool) -> (usize, usize) {
        let times = self.times.iter().flat_map(|times| {
            let others = [&times.end, &times.zone].into_iter().flatten();
            std::iter::once(&times.start).chain(others)
        });
        let groups: [Vec<&ArgumentPath>; 3] = [
            self.recipients.iter().collect(),
            self.one_line.iter().collect(),
            times.collect(),
        ];
        let named = |path: &&ArgumentPath| path.argument() == argument;
        let mut places = groups.iter().enumerate();
        let place = places.find_map(|(group, paths)| Some((group, paths.iter().position(named)?)));
        place.unwrap_or((groups.len() + usize::from(is_long), 0))
    }

    /// What the server is told of who acts.
    #[must_use]
    pub fn user<'a>(&self, tenant: &TenantId, user: &'a UserId) -> Cow<'a, str> {
        match self.tenant_users {
            true => user.within(tenant),
            false => Cow::Borrowed(user.as_str()),
        }
    }

    /// May this call be sent again when it is not known whether the first one arrived?
    #[must_use]
    pub fn repeatable(&self) -> bool {
        !self.side_effect || self.idempotency != Idempotency::None
    }
}

macro_rules! failure_codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal,)+) => {
        /// Why a call has no good result. The closed list of `error.code` in `tool_calls[]`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum FailureCode { $($(#[$doc])* #[serde(rename = $text)] $variant,)+ }

        impl FailureCode {
            /// Every code there is.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name on the wire.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// Reads the name; `None` for what is not in the list.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

failure_codes! {
    /// The name is not granted here, or does not exist.
    UnknownTool = "unknown_tool",
    /// The arguments do not fit the tool's schema.
    InvalidArguments = "invalid_arguments",
    /// The gate said no.
    Denied = "denied",
    /// A person said no.
    Rejected = "rejected",
    /// A person was asked, and did not answer in time.
    Expired = "expired",
    /// More calls in one turn than allowed.
    TooManyCalls = "too_many_calls",
    /// A verdict came together with calls, so none of them ran.
    MixedWithVerdict = "mixed_with_verdict",
    /// Iterations or time were spent before it could run.
    LimitReached = "limit_reached",
    /// The same call again and again; this one did not run.
    DoomLoop = "doom_loop",
    /// The run was cancelled before the call was sent, or while it ran and did no harm.
    Cancelled = "cancelled",
    /// The server could not be reached, or is left alone for a while; nothing was sent.
    Unavailable = "unavailable",
    /// The user's own credentials or consent are missing, as the tool says; only the user can mend that. Nothing was done.
    AuthRequired = "auth_required",
    /// The tool ran and reported an error.
    ToolError = "tool_error",
    /// The server turned the call away, or answered a call that only reads with an error of the protocol or not at all.
    ProtocolError = "protocol_error",
    /// No answer in time, and the call does no harm.
    Timeout = "timeout",
    /// gavel held too many large answers to read this one, and the call does no harm. It may be made again.
    Overloaded = "overloaded",
    /// Sent, and then the connection or the time was lost: it may or may not have had its effect.
    InDoubt = "in_doubt",
    /// The tool wanted something gavel does not give (input, sampling).
    Unsupported = "unsupported",
    /// The record could not be made durable, so the call was not sent.
    NotRecorded = "not_recorded",
}

impl FailureCode {
    /// What callers are told in place of words that may be a server's own. `None`: the words beside this code are always
    /// gavel's, or a person's.
    #[must_use]
    pub const fn in_place_of_a_server(self) -> Option<&'static str> {
        Some(match self {
            Self::InvalidArguments => "The tool does not take these arguments.",
            Self::AuthRequired => {
                "The tool needs the user's own credentials or consent, which are missing or do not cover this."
            }
            Self::ToolError => "The tool reported an error.",
            Self::ProtocolError => "The tool's server did not accept the call, or its answer was not valid.",
            Self::Timeout => "The tool did not answer in time.",
            Self::Unavailable => "The tool's server is unavailable.",
            Self::Overloaded => "gavel was reading too many large answers to read this one.",
            Self::Unsupported => "The tool asked for something that gavel does not support.",
            Self::InDoubt => "It is not known whether this had its effect.",
            Self::UnknownTool
            | Self::Denied
            | Self::Rejected
            | Self::Expired
            | Self::TooManyCalls
            | Self::MixedWithVerdict
            | Self::LimitReached
            | Self::DoomLoop
            | Self::Cancelled
            | Self::NotRecorded => return None,
        })
    }

    /// What callers are told where the words are known to be a server's own.
    #[must_use]
    pub fn for_callers(self) -> &'static str {
        self.in_place_of_a_server().unwrap_or("The call was not made.")
    }
}

impl PartialSchema for FailureCode {
    fn schema() -> RefOr<Schema> {
        let names = Self::ALL.iter().map(|code| code.as_str());
        let description = "Why a call has no good result; a closed list.";
        Object::builder()
            .schema_type(Type::String)
            .enum_values(Some(names))
            .description(Some(description))
            .into()
    }
}

impl ToSchema for FailureCode {}
