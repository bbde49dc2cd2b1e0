//! A tool of a server, what a call of it can do, and how a call can fail.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;

use super::argument_path::ArgumentPath;
use super::error_class::ErrorClass;
use super::ids::{TenantId, UserId};
use super::names::names;
use super::schema::JsonSchema;
use super::tool_settings::SessionValue;
use super::tool_settings::ToolSettings;
pub use super::tool_settings::{AmountsTo, ApprovalDefault, Idempotency};

/// One tool of one server. Immutable: a changed tool is a new value in a later generation.
#[derive(Debug)]
pub struct Tool {
    /// The server's name in `mcp.json`.
    pub server: Arc<str>,
    /// The name on that server.
    pub name: Arc<str>,
    /// The server's title for people, if it gives one; at most 120 bytes.
    pub title: Option<Arc<str>>,
    /// The server's description.
    pub description: String,
    /// The schema for checking arguments, including the identity argument.
    pub input: JsonSchema,
    /// The schema that the model sees: translated, without the identity argument and the hidden ones.
    pub model_schema: Box<RawValue>,
    /// The server's output schema, if any.
    pub output_schema: Option<Box<RawValue>>,
    /// Whether a call changes something. True unless the configuration, or a hint of a trusted server, says otherwise.
    pub side_effect: bool,
    /// Whether a call can reach others than its own server and what it stands for. True unless a trusted server says
    /// otherwise.
    pub open_world: bool,
    /// Whether a call may be repeated.
    pub idempotency: Idempotency,
    /// The time limit of a call.
    pub timeout: Duration,
    /// The argument for the acting user's id: gavel sets it, and the model does not see it.
    pub identity_argument: Option<Arc<str>>,
    /// Whether its server receives user ids qualified by their tenant (`tenantUsers` of `mcp.json`).
    pub tenant_users: bool,
    /// What `mcp.json` and its server say of it, together.
    pub settings: ToolSettings,
    /// Do its calls stay within a planning session? The operator, or a server whose hints are trusted, has given it a
    /// `scope`; an empty one says that the server itself binds the calls.
    pub is_bound: bool,
    /// Hex SHA-256 of the canonical JSON that the server sent: `name`, `description` (or `title` if there is none),
    /// `inputSchema`, `outputSchema`, the five annotations of the protocol (`title`, `readOnlyHint`, `destructiveHint`,
    /// `idempotentHint`, `openWorldHint`), and of `_meta` `gavel/idempotency` and `gavel/settings` if present. Excludes
    /// everything in `mcp.json`.
    pub digest: Arc<str>,
}

impl Tool {
    /// A tool of which only the name is known: it has side effects, an unknown schema (`true`), and no settings.
    pub fn named(server: &str, name: &str) -> Self {
        let raw = |text: &str| {
            let raw = RawValue::from_string(text.to_owned());
            raw.unwrap_or_else(|error| unreachable!("it is JSON: {error}"))
        };
        Self {
            server: Arc::from(server),
            name: Arc::from(name),
            title: None,
            description: String::new(),
            input: JsonSchema::compile(raw("true")).unwrap_or_else(|error| unreachable!("it is a schema: {error}")),
            model_schema: raw(r#"{"type":"object"}"#),
            output_schema: None,
            side_effect: true,
            open_world: true,
            idempotency: Idempotency::None,
            timeout: Duration::from_secs(30),
            identity_argument: None,
            tenant_users: false,
            is_bound: false,
            settings: ToolSettings::default(),
            digest: Arc::from(""),
        }
    }

    /// `server__tool`, which is unique across all servers.
    pub fn qualified_name(&self) -> String {
        format!("{}__{}", self.server, self.name)
    }

    /// Whether `name`, bare or `server__tool`, is this tool. A bare name that looks like another server's tool does not
    /// match.
    pub fn is_called(&self, name: &str) -> bool {
        self.qualified_name() == name || (*self.name == *name && !name.contains("__"))
    }

    /// The position of an argument when a person reads a call: recipients first, then single lines, times, other short
    /// values, and long text last.
    pub fn reading_order(&self, argument: &str, is_long: bool) -> (usize, usize) {
        let times = self.settings.times.iter().flat_map(|times| {
            let others = [&times.end, &times.zone].into_iter().flatten();
            std::iter::once(&times.start).chain(others)
        });
        let groups: [Vec<&ArgumentPath>; 3] = [
            self.settings.recipients.iter().collect(),
            self.settings.single_line.iter().collect(),
            times.collect(),
        ];
        let named = |path: &&ArgumentPath| path.argument() == argument;
        let mut places = groups.iter().enumerate();
        let place = places.find_map(|(group, paths)| Some((group, paths.iter().position(named)?)));
        place.unwrap_or((groups.len() + usize::from(is_long), 0))
    }

    /// The acting user's id as the server receives it.
    pub fn user<'a>(&self, tenant: &TenantId, user: &'a UserId) -> Cow<'a, str> {
        match self.tenant_users {
            true => user.within(tenant),
            false => Cow::Borrowed(user.as_str()),
        }
    }

    /// The other tools whose effect a call with these arguments has. A value of an unexpected form counts: the server may
    /// read it in its own way.
    pub fn effects(&self, arguments: &Value) -> Vec<&str> {
        let same = |one: &Value, other: &Value| match (one.as_str(), other.as_str()) {
            (Some(one), Some(other)) => one.trim().eq_ignore_ascii_case(other.trim()),
            _ => one == other,
        };
        let holds = |effect: &&AmountsTo| match effect.argument.values(arguments) {
            Ok(found) => found
                .iter()
                .any(|(_, given)| effect.values.iter().any(|value| same(given, value))),
            Err(_) => true,
        };
        let mut names: Vec<_> = self
            .settings
            .amounts_to
            .iter()
            .filter(holds)
            .map(|effect| &*effect.tool)
            .collect();
        names.dedup();
        names
    }

    /// `owner/repo` of a call, in lower case, if the tool's `scope` names both. What the call does not give as a text is
    /// blank.
    pub fn repository(&self, arguments: &Value) -> Option<String> {
        let of = |value| self.settings.scope().find(|(_, of)| *of == value).map(|(path, _)| path);
        let text = |path: &ArgumentPath| path.one_text(arguments).ok().flatten().map_or("", |(_, text)| text);
        let (owner, repo) = (of(SessionValue::Owner)?, of(SessionValue::Repo)?);
        Some(format!("{}/{}", text(owner), text(repo)).to_ascii_lowercase())
    }

    /// How a planning session remembers that a value of this argument is its own.
    pub fn own(&self, argument: &str, value: &Value, arguments: &Value) -> String {
        let place = self.repository(arguments).unwrap_or_default();
        format!("{} {place} {argument} {value}", self.server)
    }

    /// What a call with this result created.
    pub fn created<'a>(&'a self, arguments: &'a Value, result: &'a Value) -> impl Iterator<Item = String> + 'a {
        let values = self
            .settings
            .creates
            .iter()
            .map(|(name, path)| (name, path.values(result).unwrap_or_default()));
        values.flat_map(move |(name, found)| {
            found
                .into_iter()
                .map(move |(_, value)| self.own(name, value, arguments))
        })
    }

    /// Is it bound to the repository of a session, and not by its own word alone? Then a call reaches only what the session
    /// is about.
    pub fn is_of_repository(&self) -> bool {
        let has = |value| self.settings.scope().any(|(_, bound)| *bound == value);
        self.is_bound && has(SessionValue::Owner) && has(SessionValue::Repo)
    }

    /// Does a call that only reads reach the open world? Then its texts leave the session.
    pub fn asks_the_world(&self) -> bool {
        !self.side_effect && self.open_world && !self.is_of_repository()
    }

    /// Whether the call may be sent again if it is unknown whether the first one arrived.
    pub fn repeatable(&self) -> bool {
        !self.side_effect || self.idempotency != Idempotency::None
    }
}

names! {
    /// Why a call did not succeed; a closed list.
    FailureCode {
        /// The tool is not on the allowlist, or does not exist.
        UnknownTool = "unknown_tool",
        /// The arguments do not match the tool's schema.
        InvalidArguments = "invalid_arguments",
        /// The policy denied the call.
        Denied = "denied",
        /// An approver rejected the call.
        Rejected = "rejected",
        /// No approver answered in time.
        Expired = "expired",
        /// The turn has more calls than allowed.
        TooManyCalls = "too_many_calls",
        /// The turn has a verdict and calls, so no call ran.
        MixedWithVerdict = "mixed_with_verdict",
        /// The limit of iterations or time was reached before the call could run.
        LimitReached = "limit_reached",
        /// The same call was repeated too often; this one did not run.
        DoomLoop = "doom_loop",
        /// The run was cancelled before the call was sent, or during a call that does no harm.
        Cancelled = "cancelled",
        /// The server could not be reached, or its circuit breaker is open. Nothing was sent.
        Unavailable = "unavailable",
        /// The tool reports that the user's own credentials or consent are missing. Only the user can fix that. Nothing was
        /// done.
        AuthRequired = "auth_required",
        /// The tool ran and reported an error.
        ToolError = "tool_error",
        /// The server rejected the call, or answered a read-only call with a protocol error or not at all.
        ProtocolError = "protocol_error",
        /// No answer in time, and the call does no harm.
        Timeout = "timeout",
        /// gavel held too many large answers to read this one, and the call does no harm. It may be retried.
        Overloaded = "overloaded",
        /// Sent, and then the connection failed or the time limit passed: its outcome is unknown.
        InDoubt = "in_doubt",
        /// The tool requested something that gavel does not support (input, sampling).
        Unsupported = "unsupported",
        /// The log entry could not be made durable, so the call was not sent.
        NotRecorded = "not_recorded",
    }
}

/// Who words the message of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wording {
    /// gavel, for every call in the same words.
    Fixed,
    /// gavel, or an approver.
    Own,
    /// It may quote the model or a server: its errors, its schema, an invalid answer.
    Quoted,
}

impl FailureCode {
    /// Its class, its wording, and the text for callers in place of a text that may be a server's own (R-16). `None`: the
    /// text for this code is always gavel's or a person's.
    #[rustfmt::skip] // A line for each.
    const fn about(self) -> (ErrorClass, Wording, Option<&'static str>) {
        use ErrorClass::{AuthError, PolicyError, ToolExecutionError, ValidationError};
        use Wording::{Fixed, Own, Quoted};
        match self {
            Self::UnknownTool => (ValidationError, Quoted, None),
            Self::InvalidArguments => (ValidationError, Quoted, Some("The tool does not accept these arguments.")),
            Self::Denied => (PolicyError, Own, None),
            Self::Rejected => (PolicyError, Own, None),
            Self::Expired => (PolicyError, Fixed, None),
            Self::TooManyCalls => (ValidationError, Fixed, None),
            Self::MixedWithVerdict => (ValidationError, Fixed, None),
            Self::LimitReached => (PolicyError, Fixed, None),
            Self::DoomLoop => (ValidationError, Fixed, None),
            Self::Cancelled => (PolicyError, Quoted, None),
            Self::Unavailable => (ToolExecutionError, Quoted, Some("The tool's server is unavailable.")),
            Self::AuthRequired => (AuthError, Quoted, Some(
                "The tool needs the user's own credentials or consent, which are missing or do not cover this."
            )),
            Self::ToolError => (ToolExecutionError, Quoted, Some("The tool reported an error.")),
            Self::ProtocolError => (ToolExecutionError, Quoted, Some(
                "The tool's server did not accept the call, or its answer was not valid."
            )),
            Self::Timeout => (ToolExecutionError, Own, Some("The tool did not answer in time.")),
            Self::Overloaded => (ToolExecutionError, Fixed, Some(
                "gavel was reading too many large answers to read this one."
            )),
            Self::InDoubt => (ToolExecutionError, Quoted, Some("The outcome of this call is unknown.")),
            Self::Unsupported => (ToolExecutionError, Own, Some(
                "The tool asked for something that gavel does not support."
            )),
            Self::NotRecorded => (ToolExecutionError, Fixed, None),
        }
    }

    /// Its class.
    #[must_use]
    pub const fn class(self) -> ErrorClass {
        self.about().0
    }

    /// Was the call denied by the policy or by a user? A function that was not offered is outside the allowlist.
    #[must_use]
    pub const fn is_denial(self) -> bool {
        matches!(self, Self::Denied | Self::UnknownTool | Self::Rejected | Self::Expired)
    }

    /// Who words its messages.
    #[must_use]
    pub const fn wording(self) -> Wording {
        self.about().1
    }

    /// The text for callers in place of a text that may be a server's own (R-16). `None`: the text for this code is
    /// always gavel's or a person's.
    #[must_use]
    pub const fn in_place_of_a_server(self) -> Option<&'static str> {
        self.about().2
    }

    /// The text for callers if the original text is known to be a server's own.
    #[must_use]
    pub fn for_callers(self) -> &'static str {
        self.in_place_of_a_server().unwrap_or("The call was not made.")
    }
}
