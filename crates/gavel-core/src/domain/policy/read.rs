//! Parses the text of a policy file into a [`Policy`], or returns every error in it.

use std::sync::Arc;

use gavel_reading::{
    At, Content, FLAG, Fields, List, Node, OneOf, ReadError, Record, Scalar, SyntaxError, WORDS, Whole, With, quoted,
    read_file,
};
use globset::{Glob, GlobBuilder, GlobSetBuilder};
use serde_json::{Value, json};

use super::{AGENTS, Case, CaseCall, Condition, Effect, Names, Policy, Rule, SURFACES, SessionFacts};
use crate::domain::address::MOST_RECIPIENTS;
use crate::domain::argument_path::ArgumentPath;
use crate::domain::definition::Approval;
use crate::domain::ids::UserId;
use crate::domain::repository::AllowedRepositories;

/// The longest policy file, in bytes.
const MOST_BYTES: usize = 1 << 20;
/// The most rules, and the most tests.
const MOST_ITEMS: usize = 1000;
/// The most values in the file, including field names: three times what the largest allowed number of rules and tests
/// needs.
const MOST_NODES: usize = 100_000;

/// The name of a rule or of a test.
const NAME: Scalar<String> = Scalar {
    allowed: "a unique name, up to 100 characters on one line",
    read: |node| {
        let fits = |name: &String| name.chars().count() <= 100 && !name.chars().any(char::is_control);
        (WORDS.read)(node).filter(fits)
    },
};

pub(super) fn read(text: &str, file: &str) -> Result<Policy, Vec<ReadError>> {
    let parsed = match text.len() > MOST_BYTES {
        true => Err(SyntaxError {
            line: None,
            message: format!("more than {MOST_BYTES} bytes"),
        }),
        false => Node::parse(text, MOST_NODES),
    };
    // An empty file has no rules.
    let parsed = parsed.map(|node| match node.is_null() {
        true => (Node::bare(Content::Map(Vec::new())), Vec::new()),
        false => (node, Vec::new()),
    });
    read_file(file, "YAML", parsed, |at| at.record(|fields| policy(fields, file)))
}

fn policy(fields: &Fields<'_>, file: &str) -> Option<Policy> {
    let most_recipients = fields.take("max_recipients", Whole(1..=10_000));
    let mut rules: Vec<Rule> = Vec::new();
    for at in items(fields, "rules") {
        if let Some(rule) = at.record(rule) {
            if let Some(first) = rules.iter().find(|first| first.name == rule.name) {
                twice(&at, &rule.name, first.line);
            }
            rules.push(rule);
        }
    }
    let mut tests: Vec<Case> = Vec::new();
    for at in items(fields, "tests") {
        if let Some(case) = at.record(case) {
            if let Some(first) = tests.iter().find(|first| first.name == case.name) {
                twice(&at, &case.name, first.line);
            }
            let rule = case
                .rule
                .as_ref()
                .filter(|name| !rules.iter().any(|rule| rule.name == **name));
            if let Some(name) = rule {
                let names: Vec<_> = rules.iter().map(|rule| &*rule.name).collect();
                let path = format!("{}.rule", at.path);
                at.clone()
                    .named(path)
                    .error(quoted(name), format!("the name of a rule: {}", names.join(", ")));
            }
            tests.push(case);
        }
    }
    Some(Policy {
        rules,
        tests,
        most_recipients: most_recipients.unwrap_or(MOST_RECIPIENTS),
        file: Arc::from(file),
        repositories: AllowedRepositories::default(),
    })
}

fn items<'a>(fields: &Fields<'a>, name: &'static str) -> Vec<At<'a>> {
    fields.get(name).and_then(|at| at.items(MOST_ITEMS)).unwrap_or_default()
}

fn twice(at: &At<'_>, name: &str, first: u64) {
    let found = format!("{} a second time, after line {first}", quoted(name));
    at.clone()
        .named(format!("{}.name", at.path))
        .error(found, "each name once");
}

// Reads one test: a call and its expected decision.

const TOOL: Scalar<String> = Scalar {
    allowed: "the name of a tool, such as google__gmail_send",
    read: WORDS.read,
};
const ARGUMENTS: Scalar<Value> = Scalar {
    allowed: "a map",
    read: |node| matches!(node.content, Content::Map(_)).then(|| node.to_json()),
};
const USER: Scalar<UserId> = Scalar {
    allowed: "the name of a user",
    read: |node| UserId::parse((WORDS.read)(node)?).ok(),
};
const PATH: Scalar<ArgumentPath> = Scalar {
    allowed: ArgumentPath::ALLOWED,
    read: |node| ArgumentPath::parse(node.text()?),
};

fn case(fields: &Fields<'_>) -> Option<Case> {
    let name = fields.need("name", NAME);
    let call = fields.need("call", Record("a call: {tool, arguments, …}", call));
    let expect = fields.need("expect", OneOf(Effect::NAMES));
    let rule = fields.take("rule", WORDS).map(Arc::from);
    Some(Case {
        name: name?.into(),
        line: fields.at.node.line,
        call: call?,
        expect: expect?,
        rule,
    })
}

fn call(fields: &Fields<'_>) -> Option<CaseCall> {
    let server = fields.take("server", WORDS);
    let tool = fields.need("tool", TOOL);
    let arguments = fields.take("arguments", ARGUMENTS).unwrap_or_else(|| json!({}));
    let user = match fields.get("user") {
        Some(_) => fields.take("user", USER),
        None => UserId::parse("local").ok(),
    };
    let agent = fields.take("agent", WORDS).map(Arc::from);
    let surface = fields.take("surface", OneOf(&SURFACES.map(|surface| (surface, surface))));
    let session = |fields: &Fields<'_>| {
        let given = SessionFacts::FIELDS.map(|name| Some((name.to_owned(), fields.take(name, WORDS)?)));
        Some(given.into_iter().flatten().collect())
    };
    let session = fields.take("session", Record("a map with id, owner and repo", session));
    let side_effect = fields.take("side_effect", FLAG).unwrap_or(true);
    let recipients = fields.take("recipients", List(PATH)).unwrap_or_default();
    let approval = fields.take("approval", OneOf(Approval::NAMES)).unwrap_or_default();
    let tool = tool?;
    if tool.starts_with(&format!("{AGENTS}__")) || server.as_deref() == Some(AGENTS) {
        for at in ["side_effect", "recipients", "approval"]
            .into_iter()
            .filter_map(|key| fields.get(key))
        {
            at.invalid("nothing: a call of an agent is decided by rules alone, and the agent's own calls one by one");
        }
    }
    let (server, tool) = match (server, tool.split_once("__")) {
        (Some(server), _) => (server, tool),
        (None, Some((server, tool))) => (server.to_owned(), tool.to_owned()),
        (None, None) => (String::new(), tool),
    };
    Some(CaseCall {
        server: server.into(),
        tool: tool.into(),
        arguments,
        user: user?,
        agent,
        surface: surface.unwrap_or("agent"),
        session: session.unwrap_or_default(),
        side_effect,
        recipients,
        approval,
    })
}

// Names in a rule, in which only `*` is special.

/// What is allowed as names.
const NAMES: &str = "a list of names; * matches any text";

/// A list of names, or a single name. An empty list would be a rule that matches nothing.
fn names(at: &At<'_>) -> Option<Names> {
    let items = match &at.node.content {
        Content::Text(_) => vec![at.clone()],
        Content::List(items) if !items.is_empty() => at.items(MOST_ITEMS)?,
        _ => {
            at.invalid(NAMES);
            return None;
        }
    };
    let (mut set, mut written) = (GlobSetBuilder::new(), Vec::new());
    for item in items {
        let name = item.node.text().unwrap_or_default().trim();
        match pattern(name) {
            Some(glob) => {
                set.add(glob);
                written.push(name.into());
            }
            None => item.invalid("a name; * matches any text"),
        }
    }
    let set = set.build().map_err(|error| at.error(error.to_string(), NAMES)).ok()?;
    Some(Names { set, written })
}

/// A name that matches no surface would be a rule that matches nothing.
fn surfaces(at: &At<'_>) -> Option<Names> {
    let items = match &at.node.content {
        Content::List(_) => at.items(MOST_ITEMS)?,
        _ => vec![at.clone()],
    };
    for item in items {
        if let Some(glob) = item.node.text().and_then(|text| pattern(text.trim()))
            && !SURFACES.iter().any(|surface| glob.compile_matcher().is_match(surface))
        {
            item.invalid(format!("{}, or * for any", SURFACES.join(", ")));
        }
    }
    names(at)
}

/// Does a rule name agents that are called, and no tools?
fn names_agents_only(tools: &At<'_>) -> bool {
    let is_agent = |name: Option<&str>| name.is_some_and(|name| name.trim().starts_with(&format!("{AGENTS}__")));
    match tools.node.items() {
        Some(items) => items.iter().all(|item| is_agent(item.text())),
        None => is_agent(tools.node.text()),
    }
}

/// `None` for a blank name.
fn pattern(name: &str) -> Option<Glob> {
    if name.is_empty() {
        return None;
    }
    // Names of Windows accounts contain backslashes, which `escape` does not change.
    GlobBuilder::new(&escaped(name)).backslash_escape(false).build().ok()
}

/// Only `*` is special: user ids and agent names may contain the other glob characters.
fn escaped(name: &str) -> String {
    let parts: Vec<_> = name.split('*').map(globset::escape).collect();
    // Two in a row, or one beside a `/`, would match directories.
    let mut glob = String::new();
    for (n, part) in parts.iter().enumerate() {
        if n > 0 && !(glob.ends_with('*') && part.is_empty()) {
            glob.push('*');
        }
        glob.push_str(part);
    }
    glob
}

// Reads one rule.

/// The longest reason, in bytes: people and models read it.
const MOST_REASON: usize = 500;

const REASON: Scalar<String> = Scalar {
    allowed: "why, in words for approvers and the model",
    read: WORDS.read,
};

fn rule(fields: &Fields<'_>) -> Option<Rule> {
    let name = fields.need("name", NAME);
    let tools = fields.need(
        "tools",
        With(
            "names of tools, such as [google__gmail_send], or [\"*\"] for all",
            names,
        ),
    );
    let agents = fields.take("agents", With(NAMES, names));
    let users = fields.take("users", With(NAMES, names));
    let surfaces = fields.take("surfaces", With(NAMES, surfaces));
    let when = fields.take("when", With("a CEL expression", condition));
    if let Some(at) = fields
        .get("when")
        .filter(|_| fields.get("tools").is_some_and(|tools| names_agents_only(&tools)))
        && when.as_ref().is_some_and(Condition::uses_recipients)
    {
        at.invalid("a condition without `recipients`: a call of an agent has none");
    }
    let then = fields.need("then", OneOf(Effect::NAMES));
    let reason = fields.need("reason", REASON);
    if let Some(at) = fields
        .get("reason")
        .filter(|_| reason.as_ref().is_some_and(|reason| reason.len() > MOST_REASON))
    {
        let bytes = reason.as_ref().map_or(0, String::len);
        at.error(format!("{bytes} bytes"), format!("at most {MOST_REASON}"));
    }
    Some(Rule {
        name: name?.into(),
        line: fields.at.node.line,
        tools: tools?,
        agents,
        users,
        surfaces,
        when,
        then: then?,
        reason: Arc::from(reason?),
    })
}

fn condition(at: &At<'_>) -> Option<Condition> {
    let Some(source) = at.node.text() else {
        at.invalid("a CEL expression");
        return None;
    };
    let condition = Condition::parse(source.trim()).map_err(|error| {
        let found = format!("{}, which {error}", quoted(source.trim()));
        at.error(found, "a CEL expression that returns true or false");
    });
    condition.ok()
}

#[cfg(test)]
mod tests;
