//! Parses the text of a policy file into a [`Policy`], or returns every error in it.

use std::sync::Arc;

use globset::{Glob, GlobBuilder, GlobSetBuilder};
use serde_json::{Value, json};

use super::{AGENTS, Case, CaseCall, Condition, Effect, Names, Policy, Rule, SURFACES};
use crate::domain::address::MOST_RECIPIENTS;
use crate::domain::argument_path::ArgumentPath;
use crate::domain::definition::nearest::nearest;
use crate::domain::definition::{Approval, Content, DefinitionError, Key, Node, quoted};
use crate::domain::ids::UserId;

/// The longest policy file, in bytes.
const MOST_BYTES: usize = 1 << 20;
/// The most rules, and the most tests.
const MOST_ITEMS: usize = 1000;
/// The most values in the file, including field names: three times what the largest allowed number of rules and tests
/// needs.
const MOST_NODES: usize = 100_000;
/// The most errors that are listed.
const MOST_ERRORS: usize = 100;
/// The longest reason, in bytes: people and models read it.
const MOST_REASON: usize = 500;

const ROOT: [&str; 3] = ["max_recipients", "rules", "tests"];
const RULE: [&str; 8] = ["name", "tools", "agents", "users", "surfaces", "when", "then", "reason"];
const CASE: [&str; 4] = ["name", "call", "expect", "rule"];
const CALL: [&str; 9] = [
    "server",
    "tool",
    "arguments",
    "user",
    "agent",
    "surface",
    "side_effect",
    "recipients",
    "approval",
];

pub(super) fn read(text: &str, file: &str) -> Result<Policy, Vec<DefinitionError>> {
    let mut reader = Reader {
        file,
        errors: Vec::new(),
        more: 0,
    };
    let policy = reader.policy(text);
    match policy {
        Some(policy) if reader.errors.is_empty() => Ok(policy),
        _ => {
            reader.errors.sort_by_key(|error| error.line);
            let more = reader.more;
            reader.errors.extend((more > 0).then(|| DefinitionError {
                file: file.to_owned(),
                line: None,
                field: "the policy".to_owned(),
                found: format!("{more} more errors"),
                allowed: format!("none; the first {MOST_ERRORS} are listed"),
            }));
            Err(reader.errors)
        }
    }
}

struct Reader<'a> {
    file: &'a str,
    errors: Vec<DefinitionError>,
    /// Errors that are not listed.
    more: usize,
}

/// A map with known keys.
struct Fields<'a> {
    path: String,
    line: u64,
    entries: &'a [(Key, Node)],
}

impl<'a> Fields<'a> {
    /// The value of a key; `null` counts as absent.
    fn get(&self, name: &str) -> Option<&'a Node> {
        let found = self.entries.iter().find(|(key, _)| key.name == name);
        found
            .map(|(_, node)| node)
            .filter(|node| !matches!(node.content, Content::Null))
    }

    fn at(&self, name: &str) -> String {
        if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.path)
        }
    }
}

impl Reader<'_> {
    fn wrong(&mut self, line: u64, field: &str, found: impl Into<String>, allowed: impl Into<String>) {
        if self.errors.len() == MOST_ERRORS {
            self.more += 1;
            return;
        }
        self.errors.push(DefinitionError {
            file: self.file.to_owned(),
            line: Some(line),
            field: field.to_owned(),
            found: found.into(),
            allowed: allowed.into(),
        });
    }

    fn policy(&mut self, text: &str) -> Option<Policy> {
        if text.len() > MOST_BYTES {
            let found = format!("{} bytes", text.len());
            self.wrong(1, "the policy", found, format!("at most {MOST_BYTES}"));
            return None;
        }
        let root = match Node::parse(text, MOST_NODES) {
            Ok(root) => root,
            Err(error) => {
                self.wrong(
                    error.line.unwrap_or(1),
                    "the policy",
                    error.message.replace('\n', " "),
                    "YAML",
                );
                return None;
            }
        };
        let empty = Node {
            line: 1,
            content: Content::Map(Vec::new()),
        };
        let root = if matches!(root.content, Content::Null) {
            &empty
        } else {
            &root
        };
        let fields = self.fields(root, "", &ROOT)?;
        let most_recipients = self.most_recipients(&fields);
        let mut rules: Vec<Rule> = Vec::new();
        for (n, node) in self.list(&fields, "rules").iter().enumerate() {
            if let Some(rule) = self.rule(node, &format!("rules[{n}]")) {
                if let Some(first) = rules.iter().find(|first| first.name == rule.name) {
                    let found = format!("{} a second time, after line {}", quoted(&rule.name), first.line);
                    self.wrong(rule.line, &format!("rules[{n}].name"), found, "each name once");
                }
                rules.push(rule);
            }
        }
        let mut tests: Vec<Case> = Vec::new();
        for (n, node) in self.list(&fields, "tests").iter().enumerate() {
            if let Some(case) = self.case(node, &format!("tests[{n}]")) {
                if let Some(first) = tests.iter().find(|first| first.name == case.name) {
                    let found = format!("{} a second time, after line {}", quoted(&case.name), first.line);
                    self.wrong(case.line, &format!("tests[{n}].name"), found, "each name once");
                }
                if let Some(name) = &case.rule
                    && self.errors.is_empty()
                    && !rules.iter().any(|rule| rule.name == *name)
                {
                    let names: Vec<_> = rules.iter().map(|rule| &*rule.name).collect();
                    let allowed = format!("the name of a rule: {}", names.join(", "));
                    self.wrong(case.line, &format!("tests[{n}].rule"), quoted(name), allowed);
                }
                tests.push(case);
            }
        }
        Some(Policy {
            rules,
            tests,
            most_recipients,
            file: Arc::from(self.file),
        })
    }

    fn most_recipients(&mut self, fields: &Fields<'_>) -> usize {
        let Some(node) = fields.get("max_recipients") else {
            return MOST_RECIPIENTS;
        };
        match node.content {
            Content::Integer(most @ 1..=10_000) => usize::try_from(most).unwrap_or(MOST_RECIPIENTS),
            _ => {
                self.wrong(
                    node.line,
                    "max_recipients",
                    node.found(),
                    "a whole number from 1 to 10000",
                );
                MOST_RECIPIENTS
            }
        }
    }

    fn rule(&mut self, node: &Node, path: &str) -> Option<Rule> {
        let fields = self.fields(node, path, &RULE)?;
        let name = self.name(&fields, "name");
        let tools = match fields.get("tools") {
            Some(_) => self.names(&fields, "tools"),
            None => {
                self.missing(
                    &fields,
                    "tools",
                    "names of tools, such as [google__gmail_send], or [\"*\"] for all",
                );
                None
            }
        };
        let agents = self.names(&fields, "agents");
        let users = self.names(&fields, "users");
        let surfaces = self.surfaces(&fields);
        let when = self.condition(&fields);
        if let Some(node) = fields.get("when").filter(|_| names_agents_only(&fields))
            && when.as_ref().is_some_and(Condition::uses_recipients)
        {
            let allowed = "a condition without `recipients`: a call of an agent has none";
            self.wrong(node.line, &fields.at("when"), node.found(), allowed);
        }
        let then = self.effect(&fields, "then");
        let reason = self.needed_text(&fields, "reason", "why, in words for approvers and the model");
        if let Some(reason) = reason.as_ref().filter(|reason| reason.len() > MOST_REASON) {
            let found = format!("{} bytes", reason.len());
            self.wrong(node.line, &fields.at("reason"), found, format!("at most {MOST_REASON}"));
        }
        Some(Rule {
            name: name?.into(),
            line: node.line,
            tools: tools?,
            agents,
            users,
            surfaces,
            when,
            then: then?,
            reason: reason?.into(),
        })
    }

    fn condition(&mut self, fields: &Fields<'_>) -> Option<Condition> {
        let node = fields.get("when")?;
        let Content::Text(source) = &node.content else {
            self.wrong(node.line, &fields.at("when"), node.found(), "a CEL expression");
            return None;
        };
        match Condition::parse(source.trim()) {
            Ok(condition) => Some(condition),
            Err(error) => {
                let found = format!("{}, which {error}", quoted(source.trim()));
                self.wrong(
                    node.line,
                    &fields.at("when"),
                    found,
                    "a CEL expression that returns true or false",
                );
                None
            }
        }
    }

    fn case(&mut self, node: &Node, path: &str) -> Option<Case> {
        let fields = self.fields(node, path, &CASE)?;
        let name = self.name(&fields, "name");
        let call = match fields.get("call") {
            Some(call) => self.call(call, &fields.at("call")),
            None => {
                self.missing(&fields, "call", "a call: {tool, arguments, …}");
                None
            }
        };
        let expect = self.effect(&fields, "expect");
        let rule = self.text(&fields, "rule").map(Arc::from);
        Some(Case {
            name: name?.into(),
            line: node.line,
            call: call?,
            expect: expect?,
            rule,
        })
    }

    fn call(&mut self, node: &Node, path: &str) -> Option<CaseCall> {
        let fields = self.fields(node, path, &CALL)?;
        let tool = self.needed_text(&fields, "tool", "the name of a tool, such as google__gmail_send");
        let server = self.text(&fields, "server");
        let arguments = match fields.get("arguments") {
            None => json!({}),
            Some(node) if matches!(node.content, Content::Map(_)) => node.to_json(),
            Some(node) => {
                self.wrong(node.line, &fields.at("arguments"), node.found(), "a map");
                Value::Null
            }
        };
        let user = self.text(&fields, "user").unwrap_or_else(|| "local".to_owned());
        let user = UserId::parse(user).map_err(|error| {
            self.wrong(node.line, &fields.at("user"), error.to_string(), "the name of a user");
        });
        let agent = self.text(&fields, "agent");
        let surface = match fields.get("surface") {
            None => "agent",
            Some(node) => self.choice(node, &fields.at("surface"), &SURFACES.map(|surface| (surface, surface)))?,
        };
        let side_effect = match fields
            .get("side_effect")
            .map(|node| (node.line, &node.content, node.found()))
        {
            None => true,
            Some((_, Content::Bool(value), _)) => *value,
            Some((line, _, found)) => {
                self.wrong(line, &fields.at("side_effect"), found, "true or false");
                true
            }
        };
        let recipients = self.paths(&fields);
        let approval = match fields.get("approval") {
            None => Approval::default(),
            Some(node) => self.choice(node, &fields.at("approval"), &Approval::NAMES)?,
        };
        let tool = tool?;
        if tool.starts_with(&format!("{AGENTS}__")) || server.as_deref() == Some(AGENTS) {
            for key in ["side_effect", "recipients", "approval"] {
                if let Some(node) = fields.get(key) {
                    let allowed =
                        "nothing: a call of an agent is decided by rules alone, and the agent's own calls one by one";
                    self.wrong(node.line, &fields.at(key), node.found(), allowed);
                }
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
            user: user.ok()?,
            agent: agent.map(Arc::from),
            surface,
            side_effect,
            recipients,
            approval,
        })
    }

    fn paths(&mut self, fields: &Fields<'_>) -> Vec<ArgumentPath> {
        let mut paths = Vec::new();
        for (n, node) in self.list(fields, "recipients").iter().enumerate() {
            let path = match &node.content {
                Content::Text(text) => ArgumentPath::parse(text),
                _ => None,
            };
            match path {
                Some(path) => paths.push(path),
                None => {
                    let place = format!("{}[{n}]", fields.at("recipients"));
                    self.wrong(node.line, &place, node.found(), ArgumentPath::ALLOWED);
                }
            }
        }
        paths
    }

    fn fields<'n>(&mut self, node: &'n Node, path: &str, known: &[&str]) -> Option<Fields<'n>> {
        let Content::Map(entries) = &node.content else {
            let field = if path.is_empty() { "the policy" } else { path };
            self.wrong(
                node.line,
                field,
                node.found(),
                format!("a map with {}", known.join(", ")),
            );
            return None;
        };
        let fields = Fields {
            path: path.to_owned(),
            line: node.line,
            entries,
        };
        for (key, _) in entries.iter().filter(|(key, _)| !known.contains(&key.name.as_str())) {
            let allowed = match nearest(&key.name, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => known.join(", "),
            };
            self.wrong(key.line, &fields.at(&key.name), "an unknown key", allowed);
        }
        Some(fields)
    }

    fn list<'n>(&mut self, fields: &Fields<'n>, name: &str) -> &'n [Node] {
        match fields.get(name) {
            None => &[],
            Some(node) => match &node.content {
                Content::List(items) if items.len() <= MOST_ITEMS => items,
                Content::List(items) => {
                    let found = format!("{} of them", items.len());
                    self.wrong(node.line, &fields.at(name), found, format!("at most {MOST_ITEMS}"));
                    &[]
                }
                _ => {
                    self.wrong(node.line, &fields.at(name), node.found(), "a list");
                    &[]
                }
            },
        }
    }

    /// A list of names, or a single name. An empty list would be a rule that matches nothing.
    fn names(&mut self, fields: &Fields<'_>, name: &str) -> Option<Names> {
        const ALLOWED: &str = "names; * matches any text";
        let node = fields.get(name)?;
        let items = match &node.content {
            Content::Text(_) => std::slice::from_ref(node),
            Content::List(items) if !items.is_empty() && items.len() <= MOST_ITEMS => items,
            _ => {
                self.wrong(
                    node.line,
                    &fields.at(name),
                    node.found(),
                    format!("a list of {ALLOWED}"),
                );
                return None;
            }
        };
        let mut set = GlobSetBuilder::new();
        for (n, item) in items.iter().enumerate() {
            let glob = match &item.content {
                Content::Text(text) => pattern(text.trim()),
                _ => None,
            };
            match glob {
                Some(glob) => {
                    set.add(glob);
                }
                None => self.wrong(item.line, &format!("{}[{n}]", fields.at(name)), item.found(), ALLOWED),
            }
        }
        match set.build() {
            Ok(set) => Some(Names { set }),
            Err(error) => {
                self.wrong(node.line, &fields.at(name), error.to_string(), ALLOWED);
                None
            }
        }
    }

    /// A name that matches no surface would be a rule that matches nothing.
    fn surfaces(&mut self, fields: &Fields<'_>) -> Option<Names> {
        let node = fields.get("surfaces")?;
        let items = match &node.content {
            Content::List(items) => items.as_slice(),
            _ => std::slice::from_ref(node),
        };
        for item in items {
            if let Content::Text(text) = &item.content
                && let Some(glob) = pattern(text.trim())
                && !SURFACES.iter().any(|surface| glob.compile_matcher().is_match(surface))
            {
                let allowed = format!("{}, or * for any", SURFACES.join(", "));
                self.wrong(item.line, &fields.at("surfaces"), item.found(), allowed);
            }
        }
        self.names(fields, "surfaces")
    }

    fn name(&mut self, fields: &Fields<'_>, name: &str) -> Option<String> {
        let text = self.needed_text(fields, name, "a unique name")?;
        if text.chars().count() > 100 || text.chars().any(char::is_control) {
            self.wrong(
                fields.line,
                &fields.at(name),
                quoted(&text),
                "up to 100 characters on one line",
            );
            return None;
        }
        Some(text)
    }

    fn needed_text(&mut self, fields: &Fields<'_>, name: &str, allowed: &str) -> Option<String> {
        if fields.get(name).is_none() {
            self.missing(fields, name, allowed);
            return None;
        }
        self.text(fields, name)
    }

    /// A misspelled key already has an error.
    fn missing(&mut self, fields: &Fields<'_>, name: &str, allowed: &str) {
        let prefix = format!("{}.", fields.path);
        let meant = format!("did you mean `{name}`?");
        let misspelled = |error: &DefinitionError| error.allowed == meant && error.field.starts_with(&prefix);
        if !self.errors.iter().any(misspelled) {
            self.wrong(fields.line, &fields.at(name), "nothing", allowed);
        }
    }

    fn text(&mut self, fields: &Fields<'_>, name: &str) -> Option<String> {
        let node = fields.get(name)?;
        match &node.content {
            Content::Text(text) if !text.trim().is_empty() => Some(text.trim().to_owned()),
            _ => {
                self.wrong(node.line, &fields.at(name), node.found(), "text that is not blank");
                None
            }
        }
    }

    fn effect(&mut self, fields: &Fields<'_>, name: &str) -> Option<Effect> {
        let Some(node) = fields.get(name) else {
            self.missing(fields, name, &choices(&Effect::NAMES));
            return None;
        };
        self.choice(node, &fields.at(name), &Effect::NAMES)
    }

    fn choice<T: Copy>(&mut self, node: &Node, path: &str, names: &[(&str, T)]) -> Option<T> {
        let found = match &node.content {
            Content::Text(text) => names.iter().find(|(name, _)| name == text),
            _ => None,
        };
        if found.is_none() {
            self.wrong(node.line, path, node.found(), choices(names));
        }
        found.map(|(_, value)| *value)
    }
}

/// Does a rule name agents that are called, and no tools?
fn names_agents_only(fields: &Fields<'_>) -> bool {
    let is_agent = |node: &Node| match &node.content {
        Content::Text(name) => name.trim().starts_with(&format!("{AGENTS}__")),
        _ => false,
    };
    fields.get("tools").is_some_and(|tools| match &tools.content {
        Content::List(items) => items.iter().all(is_agent),
        _ => is_agent(tools),
    })
}

fn choices<T>(names: &[(&str, T)]) -> String {
    let names: Vec<_> = names.iter().map(|(name, _)| *name).collect();
    names.join(", ")
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::domain::policy::{Evaluation, Facts};

    fn errors(text: &str) -> Vec<String> {
        let errors = read(text, "policy.yaml").unwrap_err();
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_empty_file_has_no_rules() {
        for text in ["", "# nothing yet\n", "rules: []\n", "rules:\ntests:\n"] {
            let policy = read(text, "policy.yaml").unwrap();
            assert!(policy.rules.is_empty() && policy.tests.is_empty() && policy.most_recipients == 50);
        }
    }

    #[test]
    fn every_mistake_is_told_at_once_with_file_and_line() {
        let text = "\
max_recipients: 0
rule: []
rules:
  - name: a
    tools: [x]
    then: permit
    reason: because
  - name: a
    tols: [x]
    when: argument.to == 'x'
    then: deny
    reason: because
  - name: b
    tools: []
    then: deny
  - 7
tests:
  - name: t
    call: {tool: x, side_effect: maybe, recipients: ['a[0]'], arguments: [1]}
    expect: denied
";
        let found = errors(text);
        let expected = [
            "policy.yaml:1: max_recipients: found 0; allowed: a whole number from 1 to 10000",
            "policy.yaml:2: rule: found an unknown key; allowed: did you mean `rules`?",
            "policy.yaml:6: rules[0].then: found \"permit\"; allowed: allow, require_approval, deny",
            "policy.yaml:9: rules[1].tols: found an unknown key; allowed: did you mean `tools`?",
            "policy.yaml:10: rules[1].when: found \"argument.to == 'x'\", which names `argument`; variables are",
            "policy.yaml:13: rules[2].reason: found nothing; allowed: why",
            "policy.yaml:14: rules[2].tools: found a list; allowed: a list of names",
            "policy.yaml:16: rules[3]: found 7; allowed: a map with name",
            "policy.yaml:19: tests[0].call.arguments: found a list; allowed: a map",
            "policy.yaml:19: tests[0].call.side_effect: found \"maybe\"; allowed: true or false",
            "policy.yaml:19: tests[0].call.recipients[0]: found \"a[0]\"; allowed: a path",
            "policy.yaml:20: tests[0].expect: found \"denied\"; allowed: allow, require_approval, deny",
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found}\n{expected}");
        }
    }

    /// A called agent has no recipients, and no settings of a tool.
    #[test]
    fn a_rule_or_a_test_about_an_agent_says_nothing_that_only_tools_have() {
        let text = "\
rules:
  - name: a
    tools: [agent__researcher]
    when: recipients.size() > 1
    then: deny
    reason: because
  - {name: b, tools: agent__researcher, when: arguments.depth > 1, then: deny, reason: because}
tests:
  - name: t
    call: {tool: agent__researcher, recipients: [to], approval: never}
    expect: deny
";
        let found = errors(text);
        let expected = [
            "policy.yaml:4: rules[0].when: found \"recipients.size() > 1\"; allowed: a condition without `recipients`",
            "policy.yaml:10: tests[0].call.recipients: found a list; allowed: nothing: a call of an agent",
            "policy.yaml:10: tests[0].call.approval: found \"never\"; allowed: nothing: a call of an agent",
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found}\n{expected}");
        }
    }

    #[test]
    fn what_is_no_yaml_and_names_twice_are_mistakes() {
        assert!(errors("rules: [")[0].starts_with("policy.yaml:"));
        assert!(errors("- a")[0].contains("the policy: found a list"));
        let twice =
            "rules:\n- {name: a, tools: x, then: deny, reason: r}\n- {name: a, tools: x, then: deny, reason: r}\n";
        assert_eq!(
            errors(twice),
            ["policy.yaml:3: rules[1].name: found \"a\" a second time, after line 2; allowed: each name once"]
        );
        let unknown = "tests:\n- {name: t, call: {tool: x}, expect: deny, rule: b}\n";
        assert!(
            errors(unknown)[0].starts_with("policy.yaml:2: tests[0].rule: found \"b\"; allowed: the name of a rule")
        );
    }

    #[test]
    fn a_star_stands_for_anything_and_nothing_else_is_special() {
        let applies = |pattern: &str, server: &str, tool: &str| {
            let text = format!("rules:\n- {{name: a, tools: ['{pattern}'], then: deny, reason: r}}\n");
            let policy = read(&text, "p").unwrap();
            let facts = Facts {
                server,
                tool,
                user: "u",
                agent: None,
                surface: "chat",
                arguments: &json!({}),
                recipients: None,
            };
            policy.rules[0].applies(&mut Evaluation::new(facts)).unwrap()
        };
        assert!(applies("gmail_send", "google", "gmail_send"));
        assert!(applies("google__gmail_send", "google", "gmail_send"));
        assert!(!applies("google__gmail_send", "evil", "gmail_send"));
        assert!(applies("gmail_*", "google", "gmail_send"));
        assert!(applies("google__*", "google", "gmail_send"));
        assert!(applies("*", "google", "files/read"));
        assert!(applies("**", "google", "a/b"));
        assert!(!applies("gmail_?end", "google", "gmail_send"));
        assert!(applies("a[b]", "s", "a[b]"));
        assert!(!applies("{a,b}", "s", "a"));
        assert!(!applies("gmail", "google", "gmail_send"));
        assert!(applies(r"CORP\ann", "s", r"CORP\ann") && applies(r"CORP\*", "s", r"CORP\ann"));
        assert!(!applies(r"CORP\ann", "s", "CORPann"));
        assert!(applies(r"[\]*?", "s", r"[\]x?") && !applies(r"[\]*?", "s", r"\xy"));
    }

    /// A server cannot gain the permissions of another server's tool through a tool name. A denied tool remains denied
    /// by either name.
    #[test]
    fn a_bare_name_that_looks_like_another_servers_tool_lifts_nothing() {
        let applies = |then: &str, server: &str, tool: &str| {
            let text = format!("rules:\n- {{name: a, tools: 'google__*', then: {then}, reason: r}}\n");
            read(&text, "p").unwrap().rules[0].applies(&mut Evaluation::new(Facts {
                server,
                tool,
                user: "u",
                agent: None,
                surface: "chat",
                arguments: &json!({}),
                recipients: None,
            }))
        };
        for then in ["allow", "require_approval", "deny"] {
            assert_eq!(applies(then, "google", "gmail_send"), Ok(true), "{then}");
            assert_eq!(applies(then, "google", "odd__name"), Ok(true), "{then}");
            assert_eq!(
                applies(then, "evil", "google__gmail_send"),
                Ok(then != "allow"),
                "{then}"
            );
        }
    }

    /// A rule for a surface that does not exist would match nothing, and its own test would not reveal it.
    #[test]
    fn a_surface_that_does_not_exist_is_a_mistake() {
        let text = "\
rules:
- {name: a, tools: x, surfaces: [agent, threads], then: deny, reason: r}
- {name: b, tools: x, surfaces: 'api*', then: deny, reason: r}
- {name: c, tools: x, surfaces: ['*', chat, t*d], then: deny, reason: r}
tests:
- {name: t, call: {tool: x, surface: agents}, expect: deny}
- {name: u, call: {tool: x, surface: thread}, expect: deny}
";
        assert_eq!(
            errors(text),
            [
                "policy.yaml:2: rules[0].surfaces: found \"threads\"; allowed: chat, agent, thread, or * for any",
                "policy.yaml:3: rules[1].surfaces: found \"api*\"; allowed: chat, agent, thread, or * for any",
                "policy.yaml:6: tests[0].call.surface: found \"agents\"; allowed: chat, agent, thread",
            ]
        );
    }

    #[test]
    fn a_rule_is_about_those_it_names() {
        let text =
            "rules:\n- {name: a, tools: x, agents: [w*], users: ann, surfaces: [agent, t*], then: deny, reason: r}\n";
        let policy = read(text, "p").unwrap();
        let applies = |agent, user, surface| {
            policy.rules[0].applies(&mut Evaluation::new(Facts {
                server: "s",
                tool: "x",
                user,
                agent,
                surface,
                arguments: &json!({}),
                recipients: None,
            }))
        };
        assert_eq!(applies(Some("workspace"), "ann", "agent"), Ok(true));
        assert_eq!(applies(Some("workspace"), "ann", "thread"), Ok(true));
        assert_eq!(applies(Some("other"), "ann", "agent"), Ok(false));
        assert_eq!(applies(None, "ann", "agent"), Ok(false));
        assert_eq!(applies(Some("workspace"), "bob", "agent"), Ok(false));
        assert_eq!(applies(Some("workspace"), "ann", "chat"), Ok(false));
    }
}
