//! Checks one call, before an approval counts: its arguments, and what the policy answers.

use std::collections::BTreeSet;

use chrono_tz::Tz;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::answer::{Answer, InPlan, Question, answer};
use super::{Attempt, Facts, undeclared};
use crate::domain::action::Details;
use crate::domain::address::recipients;
use crate::domain::argument_path::{self, ArgumentPath};
use crate::domain::definition::{Approval, quoted};
use crate::domain::known::open_texts;
use crate::domain::policy::{self, AGENTS, DecidedBy, Effect, SessionFacts};
use crate::domain::schema::{CheckError, Effort};
use crate::domain::text::{self, is_visible};
use crate::domain::tool::{FailureCode, Tool};
use crate::domain::tool_settings::SessionValue;
use crate::domain::{nesting, warnings};
use crate::limits::MOST_DEPTH;

/// Maximum bytes of arguments that are searched for misleading text on a shared thread; this takes some milliseconds.
const MOST_AT_ONCE: usize = 16 * 1024;
/// Longest error message to a model about the arguments of an agent, in bytes; further errors are cut off.
const LONGEST_MESSAGE: usize = 8 << 10;

/// A call that is refused whatever the policy says.
pub(super) struct Refused {
    pub(super) code: FailureCode,
    pub(super) message: String,
    pub(super) by: Option<DecidedBy>,
}

impl Refused {
    fn by(self, by: DecidedBy) -> Self {
        Self { by: Some(by), ..self }
    }
}

pub(super) fn refused(code: FailureCode, message: impl Into<String>) -> Refused {
    Refused {
        code,
        message: message.into(),
        by: None,
    }
}

/// Why a call has no valid arguments.
pub(super) enum Unread {
    Refused(Refused),
    /// The check took too much effort.
    TooCostly,
}

impl From<Refused> for Unread {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

/// A valid call: its canonical arguments, and what the policy answers.
pub(super) struct Checked {
    pub(super) arguments: Value,
    pub(super) details: Details,
    pub(super) answer: Answer,
}

/// Checks a call of a tool: identity, schema, arguments, policy.
pub(super) fn tool_call(
    tool: &Tool,
    given: &RawValue,
    facts: &Facts,
    attempt: Attempt,
    effort: Effort,
) -> Result<Checked, Unread> {
    let invalid = |message: String| refused(FailureCode::InvalidArguments, message);
    let mut arguments = Value::Object(object(given)?);
    if let Some(name) = tool
        .settings
        .hidden
        .iter()
        .find(|name| arguments.get(&***name).is_some())
    {
        return Err(invalid(format!("{name:?} is set by the tool's server and must not be given")).into());
    }
    if let (Some(name), Value::Object(object)) = (&tool.identity_argument, &mut arguments) {
        if object.contains_key(name.as_ref()) {
            return Err(invalid(format!("{name:?} is set by the service and must not be given")).into());
        }
        let user = tool.user(&facts.tenant, &facts.user).into_owned();
        object.insert(name.to_string(), Value::String(user));
    }
    tool.input.check(&arguments, effort).map_err(|error| match error {
        CheckError::TooCostly => Unread::TooCostly,
        error @ CheckError::Invalid(_) => invalid(error.to_string()).into(),
    })?;
    if let Some(message) = not_allowed(tool, &arguments, facts) {
        return Err(refused(FailureCode::Denied, message).by(DecidedBy::Repositories).into());
    }
    let outside = out_of_bounds(tool, &arguments, facts);
    let plan = in_plan(tool, &arguments, facts, outside.as_deref());
    if let Some(message) = outside.filter(|_| plan.is_none()) {
        return Err(refused(FailureCode::Denied, message).by(DecidedBy::Session).into());
    }
    let now_us = match attempt {
        Attempt::First => facts.now_us,
        Attempt::Again(started_us) => started_us,
    };
    let most = facts.policy.most_recipients;
    let (mut details, uncertain) = check(tool, &arguments, most, facts.zone, now_us)
        .map_err(|errors| invalid(errors.join("; ")).by(DecidedBy::Parameters))?;
    let sends = sends(tool, &arguments, facts);
    let answer = answer(&Question {
        facts: policy::Facts {
            server: &tool.server,
            tool: &tool.name,
            user: facts.user.as_str(),
            agent: facts.agent.as_deref(),
            surface: &facts.surface,
            arguments: &arguments,
            recipients: details.recipients.as_ref(),
            session: SessionFacts::of(facts.bound.as_deref()),
        },
        uncertain,
        digest: &tool.digest,
        tool: tool.settings.approval,
        side_effect: tool.side_effect,
        approval: facts.approval,
        floor: facts.floor,
        policy: &facts.policy,
        grants: if details.ungrantable { &[] } else { &facts.grants },
        plan: plan.as_ref(),
        effects: &tool.effects(&arguments),
        sends: sends.as_deref(),
    });
    // If no approval can be requested, the call is denied without warnings.
    if answer.effect == Effect::RequireApproval && facts.can_wait {
        if matches!(effort, Effort::Quick) && given.get().len() > MOST_AT_ONCE {
            return Err(Unread::TooCostly);
        }
        warnings::of_texts(&tool.input.value(), &arguments, &mut details.warnings);
    }
    Ok(Checked {
        arguments,
        details,
        answer,
    })
}

/// The error of a call that names a repository which its tenant may not use, on whatever surface.
fn not_allowed(tool: &Tool, arguments: &Value, facts: &Facts) -> Option<String> {
    let (repositories, named) = (&facts.policy.repositories, tool.repository(arguments)?);
    (!repositories.allow(&facts.tenant, &named)).then(|| {
        let allowed = repositories.of(&facts.tenant).filter(|allowed| !allowed.is_empty());
        let allowed = allowed.as_deref().unwrap_or("none");
        format!("the repository is {named:?}; allowed by planning.repositories: {allowed}")
    })
}

/// The error of a call whose arguments name another repository than that of its session.
fn out_of_bounds(tool: &Tool, arguments: &Value, facts: &Facts) -> Option<String> {
    let bound = facts.bound.as_ref()?;
    foreign(tool, arguments, |_, value, given| {
        let only = match value {
            SessionValue::Owner => bound.get("owner")?,
            SessionValue::Repo => bound.get("repo")?,
            // The plan allows them, below.
            SessionValue::Branch | SessionValue::Base | SessionValue::Created => return None,
        };
        let fits = given.as_str().is_some_and(|given| given.eq_ignore_ascii_case(only));
        (!fits).then(|| format!("this run may use only {only:?}"))
    })
}

/// The first argument of a tool's `scope` that is none of the session's. `allowed` says what it may be instead.
fn foreign(
    tool: &Tool,
    arguments: &Value,
    allowed: impl Fn(&ArgumentPath, SessionValue, &Value) -> Option<String>,
) -> Option<String> {
    tool.settings
        .scope()
        .find_map(|(path, value)| match path.values(arguments) {
            Ok(found) if tool.side_effect && found.is_empty() && value.names_a_place() => {
                Some(format!("{path} is left out, so the server would choose it"))
            }
            Ok(found) => found.into_iter().find_map(|(_, given)| {
                let allowed = allowed(path, *value, given)?;
                Some(format!("{path} is {given}; {allowed}"))
            }),
            Err(error) => Some(error),
        })
}

/// What a call that only reads would carry out of a planning session, if a text of it is not known.
fn sends(tool: &Tool, arguments: &Value, facts: &Facts) -> Option<String> {
    let known = facts.known.as_ref().filter(|_| tool.asks_the_world())?;
    let mut given = arguments.clone();
    if let (Some(name), Some(object)) = (&tool.identity_argument, given.as_object_mut()) {
        object.remove(name.as_ref());
    }
    let mut texts = Vec::new();
    open_texts(&tool.input.value(), &given, &mut texts);
    let text = texts.into_iter().find(|text| !known.knows(text))?;
    let kind = match text.contains("://") {
        true => "an address that is not in the goal, the confirmed plan, a page of the repository or a search result",
        false => "text that is not in the goal or the confirmed plan",
    };
    let shown = quoted(&text);
    Some(format!("would send {shown} out of the session: {kind}"))
}

/// What the confirmed plan says about a call: one with side effects, or any of a tool that the person wants to be asked
/// about. `outside`: why its arguments leave the session's repository. A call that only reads cannot leave it at all.
fn in_plan(tool: &Tool, arguments: &Value, facts: &Facts, outside: Option<&str>) -> Option<InPlan> {
    let scope = facts.scope.as_ref()?;
    let names = |tools: &BTreeSet<String>| tools.iter().any(|name| tool.is_called(name));
    if names(&scope.ask_for) {
        return Some(InPlan::Asks);
    }
    if !tool.side_effect {
        return None;
    }
    if !names(&scope.tools) {
        let why = "no task of the confirmed plan names this tool".to_owned();
        return Some(InPlan::Outside(why));
    }
    if !tool.is_bound && !scope.by_code {
        let why = "the tool is not bound to the session: it has no `scope`".to_owned();
        return Some(InPlan::Outside(why));
    }
    if let Some(why) = outside {
        return Some(InPlan::Outside(why.to_owned()));
    }
    let prefix = scope.branch_prefix.as_str();
    // OWNER:BRANCH is a branch of another repository.
    let is_own = |branch: &Value| {
        branch
            .as_str()
            .is_some_and(|branch| branch.starts_with(prefix) && !branch.contains(':'))
    };
    let foreign = foreign(tool, arguments, |path, value, given| match value {
        SessionValue::Owner | SessionValue::Repo => None,
        SessionValue::Branch => (!is_own(given)).then(|| format!("branches begin with {prefix:?}")),
        SessionValue::Base => {
            let is_default = scope.base.as_ref().is_some_and(|base| given == base);
            let allowed = || format!("allowed: the default branch, and branches that begin with {prefix:?}");
            (!is_default && !is_own(given)).then(allowed)
        }
        SessionValue::Created => {
            let is_own = scope.created.contains(&tool.own(&path.to_string(), given, arguments));
            (!is_own).then(|| "this session has not created it".to_owned())
        }
    });
    Some(foreign.map_or(InPlan::Within, InPlan::Outside))
}

/// Checks a call of another agent: allowlist, depth, inputs, and the rules that name it. The called agent's own calls
/// are decided one by one, under its name; so only a rule denies a delegation, or requires an approval for it.
pub(super) fn delegation(name: &str, given: &RawValue, facts: &Facts) -> Result<Checked, Refused> {
    let member = facts
        .delegates
        .as_ref()
        .and_then(|agents| Some((agents.depth, agents.snapshot.get(name)?)));
    let Some((depth, member)) = member else {
        let message = format!("{name:?} is not among the agents offered");
        return Err(refused(FailureCode::UnknownTool, message));
    };
    if depth >= MOST_DEPTH {
        let message = format!("agents call each other at most {MOST_DEPTH} deep; do this without {name:?}");
        return Err(refused(FailureCode::LimitReached, message));
    }
    let checked = member.definition.check_call(object(given)?).map_err(|errors| {
        let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
        let message = text::capped(&errors.join("; "), LONGEST_MESSAGE).into_owned();
        refused(FailureCode::InvalidArguments, message)
    });
    let arguments = Value::Object(checked?);
    let answer = answer(&Question {
        facts: policy::Facts {
            server: AGENTS,
            tool: name,
            user: facts.user.as_str(),
            agent: facts.agent.as_deref(),
            surface: &facts.surface,
            arguments: &arguments,
            recipients: None,
            session: SessionFacts::of(facts.bound.as_deref()),
        },
        uncertain: false,
        digest: &member.definition.hash,
        tool: None,
        side_effect: false,
        approval: Approval::Never,
        floor: Approval::Never,
        policy: &facts.policy,
        grants: &[],
        plan: None,
        effects: &[],
        sends: None,
    });
    Ok(Checked {
        arguments,
        details: Details::default(),
        answer,
    })
}

/// Reads arguments. Their depth is checked first.
fn object(given: &RawValue) -> Result<Map<String, Value>, Refused> {
    let invalid = |message: String| refused(FailureCode::InvalidArguments, message);
    if !nesting::within(given.get().as_bytes(), nesting::MAX_LEVELS) {
        return Err(invalid(format!(
            "the arguments nest deeper than {} levels",
            nesting::MAX_LEVELS
        )));
    }
    match serde_json::from_str(given.get()) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(invalid("the arguments must be a JSON object".to_owned())),
        Err(error) => Err(invalid(format!("the arguments are not valid JSON: {error}"))),
    }
}

// Checks a call's arguments, as far as the tool's settings state what they mean.
//
// Nothing here knows any tool: `mcp.json` states which arguments are recipients, single lines, times, and free.

/// Maximum number of arguments that the text about a call without a grant names.
const MOST_NAMED: usize = 8;

/// Checks recipients, single lines and times. `most` is the maximum number of recipients. Returns what an approver should
/// know, and whether the call may reach others than its recipients: it has arguments that no grant can cover, and a
/// value that the tool's schema does not describe.
///
/// # Errors
/// Each error names its place, the value found and what is allowed.
pub(super) fn check(
    tool: &Tool,
    arguments: &Value,
    most: usize,
    zone: Option<Tz>,
    now_us: i64,
) -> Result<(Details, bool), Vec<String>> {
    let (mut details, mut uncertain, mut errors) = (Details::default(), false, Vec::new());
    if !tool.settings.recipients.is_empty() {
        match recipients(&tool.settings.recipients, arguments, most, || needs_recipients(tool)) {
            Ok(checked) => {
                details.recipients = Some(checked.recipients);
                details.warnings = checked.warnings;
            }
            Err(invalid) => errors = invalid,
        }
        let schema = undeclared::search(&tool.input.value(), arguments);
        errors.extend(schema.errors);
        let others = others(tool, arguments);
        details.ungrantable = !others.is_empty();
        uncertain = details.ungrantable && schema.is_open;
        details.warnings.extend(without_grant(&others));
    }
    for path in &tool.settings.single_line {
        errors.extend(not_one_line(path, arguments));
    }
    if let Some(times) = &tool.settings.times {
        match times.check(arguments, zone, now_us) {
            Ok(warnings) => details.warnings.extend(warnings),
            Err(invalid) => errors.extend(invalid),
        }
    }
    if errors.is_empty() {
        Ok((details, uncertain))
    } else {
        Err(errors)
    }
}

/// The places of the values that are neither recipients, nor free, nor set by gavel.
fn others(tool: &Tool, arguments: &Value) -> Vec<String> {
    let mut others = argument_path::others(&tool.settings.recipients, &tool.settings.free_arguments, arguments);
    if let Some(name) = &tool.identity_argument {
        let own = argument_path::pointer("", name);
        others.retain(|place| *place != own);
    }
    others
}

/// Tells the approver why the call can be approved only once.
fn without_grant(others: &[String]) -> Option<String> {
    let named: Vec<_> = others.iter().take(MOST_NAMED).map(|place| quoted(place)).collect();
    let named = named.join(", ");
    let more = match others.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!others.is_empty()).then(|| {
        format!(
            "a grant cannot cover this call: besides the recipients it sets {named}{more}, which are not declared free"
        )
    })
}

/// A tool that requires one of its recipient arguments requires at least one recipient.
fn needs_recipients(tool: &Tool) -> bool {
    let schema = tool.input.value();
    let required = schema.get("required").and_then(Value::as_array);
    required.is_some_and(|required| {
        tool.settings
            .recipients
            .iter()
            .any(|path| required.iter().any(|name| name == path.argument()))
    })
}

/// A line of a message header must not end early and start another header, nor decode to other text: approvers do not
/// read the encoded words of RFC 2047.
fn not_one_line(path: &ArgumentPath, arguments: &Value) -> Vec<String> {
    let texts = match path.texts(arguments) {
        Ok(texts) => texts,
        Err(error) => return vec![error],
    };
    let breaks = |text: &str| text.contains(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'));
    let why = |text: &str| match text {
        _ if breaks(text) => Some("line ends or control characters"),
        _ if !is_visible(text) => Some("invisible characters, or marks that change the writing direction"),
        _ if text.contains("=?") && text.contains("?=") => {
            Some("an encoded word (=?…?=), which is displayed as other text")
        }
        _ => None,
    };
    let invalid = texts
        .into_iter()
        .filter_map(|(place, text)| Some((place, text, why(text)?)));
    invalid
        .map(|(place, text, why)| format!("{place}: {} contains {why}; allowed: one line of text", quoted(text)))
        .collect()
}
