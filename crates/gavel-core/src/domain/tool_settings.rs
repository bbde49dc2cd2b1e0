//! Settings of one tool (`gavel.tools.NAME` of `mcp.json`), which a server may also say of its own tool.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gavel_reading::{At, Content, Entries, FLAG, List, Mapped, Node, OneOf, Parser, Record, Scalar, read_file, record};
use serde_json::Value;

use super::argument_path::ArgumentPath;
use super::definition::quoted;
use super::names::names;
use super::times::Times;

names! {
    /// Whether a call may be sent twice.
    Idempotency {
        /// No: a second call has a second effect.
        None = "none",
        /// Yes: the tool itself makes a second call harmless.
        Natural = "natural",
        /// Yes, with the same `gavel/idempotency_key`.
        Key = "key",
    }
}

names! {
    /// A tool's default for approval.
    ApprovalDefault {
        /// Calls require approval.
        Required = "required",
        /// Calls require no approval.
        NotRequired = "not_required",
    }
}

/// Values of an argument with which a call has the effect of another tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AmountsTo {
    /// The other tool of the same server.
    pub tool: Arc<str>,
    /// The argument.
    pub argument: ArgumentPath,
    /// The values.
    pub values: Vec<Value>,
}

record! {
    /// Settings of one tool. What is absent is not said.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct ToolSettings {
        /// Does a call have a side effect?
        side_effect: Option<bool> = "sideEffect": FLAG;
        /// Does a call require approval? If absent, the agent's rule decides.
        approval: Option<ApprovalDefault> = "approval": OneOf(ApprovalDefault::NAMES);
        /// Call timeout.
        timeout: Option<Duration> = "timeoutMs": MILLIS;
        /// May a call be repeated?
        idempotency: Option<Idempotency> = "idempotency": OneOf(Idempotency::NAMES);
        /// Arguments that the model neither sees nor gives: the server sets them itself.
        hidden: Vec<Arc<str>> = "hidden": List(ARGUMENT);
        /// Paths of the arguments that name recipients.
        recipients: Vec<ArgumentPath> = "recipients": List(PATH);
        /// Paths of the arguments that a grant covers with any value. It covers no others besides the recipients.
        free_arguments: Vec<ArgumentPath> = "freeArguments": List(PATH);
        /// Paths of the arguments that must be a single line.
        single_line: Vec<ArgumentPath> = "singleLine": List(PATH);
        /// The arguments that contain times.
        times: Option<Times> = "times": Record("a map with a `start`", Times::read);
        /// What arguments have to match in a planning session. All of it holds.
        scope: Option<Vec<(ArgumentPath, SessionValue)>> = "scope": ByPath(OneOf(SessionValue::NAMES));
        /// Where a result has what a later argument of this name may then be.
        creates: BTreeMap<Arc<str>, ArgumentPath> = "creates": Mapped(ByPath(IN_RESULT), creates);
        /// Values of arguments that have the effect of another tool.
        amounts_to: Vec<AmountsTo> = "amountsTo": Mapped(Entries(ByPath(VALUES)), amounts_to);
        /// Does the server limit the call to the repositories that gavel names to it?
        repositories: Option<bool> = "repositories": FLAG;
        /// The tool of the same server that reports whether this one can be called for a user.
        preflight: Option<Arc<str>> = "preflight": TOOL;
    }
}

impl ToolSettings {
    /// What a server says of its own tool.
    ///
    /// # Errors
    /// Every error, each with its place.
    pub fn said(value: &Value) -> Result<Self, String> {
        let settings = read_file("", "JSON", Ok((Node::from(value), Vec::new())), |at| {
            at.record(Self::read)
        });
        settings.map_err(|errors| {
            let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
            errors.join("; ")
        })
    }

    /// What `mcp.json` and the server say, together. What restricts a call holds, whether the file or the server says
    /// it. What permits something is said by `mcp.json`, or by a server whose hints are trusted where it is silent.
    #[must_use]
    pub fn with(self, said: Self, is_trusted: bool) -> Self {
        let permitted = if is_trusted { said.clone() } else { Self::default() };
        Self {
            side_effect: strictest(true, self.side_effect, said.side_effect, is_trusted),
            approval: strictest(ApprovalDefault::Required, self.approval, said.approval, is_trusted),
            timeout: self.timeout.or(permitted.timeout),
            idempotency: self.idempotency.or(permitted.idempotency),
            hidden: united(self.hidden, said.hidden),
            // Alone, an untrusted server could name some and keep silent about others.
            recipients: match self.recipients.is_empty() {
                true => permitted.recipients,
                false => united(self.recipients, said.recipients),
            },
            free_arguments: match self.free_arguments.is_empty() {
                true => permitted.free_arguments,
                false => self.free_arguments,
            },
            single_line: united(self.single_line, said.single_line),
            times: self.times.or(said.times),
            scope: match (self.scope, said.scope) {
                (Some(own), said) => Some(united(own, said.unwrap_or_default())),
                (None, said) => said,
            },
            creates: match self.creates.is_empty() {
                true => permitted.creates,
                false => self.creates,
            },
            amounts_to: united(self.amounts_to, said.amounts_to),
            repositories: strictest(true, self.repositories, said.repositories, is_trusted),
            preflight: self.preflight.or(permitted.preflight),
        }
    }

    /// What arguments have to match in a planning session.
    pub fn scope(&self) -> impl Iterator<Item = &(ArgumentPath, SessionValue)> {
        self.scope.iter().flatten()
    }
}

/// The value that restricts, whether the file or the server says it; else that of the file, or of a server that is
/// trusted.
fn strictest<T: PartialEq>(restricts: T, own: Option<T>, said: Option<T>, is_trusted: bool) -> Option<T> {
    match said.as_ref() == Some(&restricts) {
        true => said,
        false => own.or(said.filter(|_| is_trusted)),
    }
}

fn united<T: PartialEq>(mut own: Vec<T>, said: Vec<T>) -> Vec<T> {
    for one in said {
        if !own.contains(&one) {
            own.push(one);
        }
    }
    own
}

fn creates(paths: Vec<(ArgumentPath, ArgumentPath)>) -> BTreeMap<Arc<str>, ArgumentPath> {
    let paths = paths.into_iter();
    paths
        .map(|(argument, path)| (Arc::from(argument.to_string()), path))
        .collect()
}

/// Values, by the paths of their arguments.
type ByArgument = Vec<(ArgumentPath, Vec<Value>)>;

fn amounts_to(tools: Vec<(String, ByArgument)>) -> Vec<AmountsTo> {
    let of_tool = |(tool, arguments): (String, ByArgument)| {
        let tool: Arc<str> = tool.into();
        arguments.into_iter().map(move |(argument, values)| AmountsTo {
            tool: Arc::clone(&tool),
            argument,
            values,
        })
    };
    tools.into_iter().flat_map(of_tool).collect()
}

/// A time limit.
pub const MILLIS: Scalar<Duration> = Scalar {
    allowed: "1 to 86400000 milliseconds",
    read: |node| match node.content {
        Content::Integer(ms @ 1..=86_400_000) => u64::try_from(ms).ok().map(Duration::from_millis),
        _ => None,
    },
};
const PATH: Scalar<ArgumentPath> = Scalar {
    allowed: ArgumentPath::ALLOWED,
    read: |node| ArgumentPath::parse(node.text()?),
};
const IN_RESULT: Scalar<ArgumentPath> = Scalar {
    allowed: "a path into the result, such as issue.number",
    read: |node| ArgumentPath::parse(node.text()?),
};
const ARGUMENT: Scalar<Arc<str>> = Scalar {
    allowed: "the name of an argument, such as token",
    read: |node| {
        let name = node.text()?;
        ArgumentPath::parse(name)
            .filter(|path| path.argument() == name)
            .map(|_| Arc::from(name))
    },
};
const TOOL: Scalar<Arc<str>> = Scalar {
    allowed: "the name of a tool",
    read: |node| node.text().map(Arc::from),
};
const VALUES: Scalar<Vec<Value>> = Scalar {
    allowed: "a list of values, such as [\"closed\"]",
    read: |node| Some(node.items()?.iter().map(Node::to_json).collect()),
};

/// A map from paths of arguments to values.
struct ByPath<P>(P);

impl<P: Parser> Parser for ByPath<P> {
    type Value = Vec<(ArgumentPath, P::Value)>;

    fn allowed(&self) -> String {
        format!("a map from paths of arguments, each value {}", self.0.allowed())
    }

    fn parse(&self, at: &At<'_>) -> Option<Self::Value> {
        let entry = |(name, at): (&str, At<'_>)| match ArgumentPath::parse(name) {
            Some(path) => Some((path, self.0.parse(&at)?)),
            None => {
                at.error(quoted(name), ArgumentPath::ALLOWED);
                None
            }
        };
        Some(at.entries()?.into_iter().filter_map(entry).collect())
    }
}

names! {
    /// What of a planning session an argument of a tool has to match (`scope` of `mcp.json`).
    SessionValue {
        /// `session.owner`: the owner of the session's repository.
        Owner = "session.owner",
        /// `session.repo`: the name of the session's repository.
        Repo = "session.repo",
        /// `session.branch`: a branch that the session may write, known by its prefix.
        Branch = "session.branch",
        /// `session.base`: a branch that may receive the session's changes: the repository's default one, or one of the
        /// session's.
        Base = "session.base",
        /// `session.created`: what a call of this session created, as `creates` of its tool says.
        Created = "session.created",
    }
}

impl SessionValue {
    /// Does it say where an effect takes place? Without such an argument the server would choose.
    #[must_use]
    pub const fn names_a_place(self) -> bool {
        matches!(self, Self::Owner | Self::Repo | Self::Branch)
    }
}
