//! What `gavel.tools` says about one tool.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::super::ToolSettings;
use super::Reader;
use crate::domain::argument_path::ArgumentPath;
use crate::domain::session_value::SessionValue;
use crate::domain::times::Times;
use crate::domain::tool::{ApprovalDefault, Idempotency};

impl Reader<'_> {
    pub(super) fn tool(&mut self, value: &Value, at: &str) -> Option<ToolSettings> {
        let Value::Object(tool) = value else {
            self.invalid(at, "must be an object");
            return None;
        };
        self.only(
            tool,
            &[
                "sideEffect",
                "approval",
                "timeoutMs",
                "idempotency",
                "recipients",
                "singleLine",
                "times",
                "freeArguments",
                "hidden",
                "preflight",
                "scope",
            ],
            at,
        );
        if tool.contains_key("recipients") && !tool.contains_key("freeArguments") {
            let message =
                "`freeArguments` is missing: a grant covers only calls that set nothing besides the recipients";
            self.warning(at, message);
        }
        let approval = match self.string(tool, "approval", at).as_deref() {
            None => None,
            Some("required") => Some(ApprovalDefault::Required),
            Some("not_required") => Some(ApprovalDefault::NotRequired),
            Some(other) => {
                let message = format!("`{other}`; allowed: `required`, `not_required`");
                self.invalid(&format!("{at}/approval"), message);
                None
            }
        };
        let idempotency = match self.string(tool, "idempotency", at).as_deref() {
            None => None,
            Some("none") => Some(Idempotency::None),
            Some("natural") => Some(Idempotency::Natural),
            Some("key") => Some(Idempotency::Key),
            Some(other) => {
                let message = format!("`{other}`; allowed: `none`, `natural`, `key`");
                self.invalid(&format!("{at}/idempotency"), message);
                None
            }
        };
        Some(ToolSettings {
            side_effect: self.bool(tool, "sideEffect", at),
            approval,
            timeout: self.millis(tool, "timeoutMs", at),
            idempotency,
            hidden: self.arguments(tool, "hidden", at),
            recipients: self.paths(tool, "recipients", at),
            free_arguments: self.paths(tool, "freeArguments", at),
            single_line: self.paths(tool, "singleLine", at),
            times: self.times(tool, at),
            scope: self.scope(tool, at),
            preflight: self.string(tool, "preflight", at).map(Arc::from),
        })
    }

    fn paths(&mut self, tool: &Map<String, Value>, key: &str, at: &str) -> Vec<ArgumentPath> {
        let mut paths = Vec::new();
        for (n, text) in self.strings(tool, key, at).unwrap_or_default().iter().enumerate() {
            match ArgumentPath::parse(text) {
                Some(path) => paths.push(path),
                None => {
                    let message = format!("`{text}`; allowed: {}", ArgumentPath::ALLOWED);
                    self.invalid(&format!("{at}/{key}/{n}"), message);
                }
            }
        }
        paths
    }

    /// Names of whole arguments.
    fn arguments(&mut self, tool: &Map<String, Value>, key: &str, at: &str) -> Vec<Arc<str>> {
        let names = self.strings(tool, key, at).unwrap_or_default();
        for (n, text) in names.iter().enumerate() {
            if ArgumentPath::parse(text).is_none_or(|path| path.argument() != text) {
                let message = format!("`{text}`; allowed: the name of an argument, such as token");
                self.invalid(&format!("{at}/{key}/{n}"), message);
            }
        }
        names.into_iter().map(Arc::from).collect()
    }

    fn scope(&mut self, tool: &Map<String, Value>, at: &str) -> Option<BTreeMap<Arc<str>, SessionValue>> {
        let at = &format!("{at}/scope");
        let Value::Object(given) = tool.get("scope")? else {
            self.invalid(
                at,
                "must be an object of arguments, such as {\"owner\": \"session.owner\"}",
            );
            return None;
        };
        let mut scope = BTreeMap::new();
        for (argument, value) in given {
            match SessionValue::ALL.into_iter().find(|known| value == known.name()) {
                Some(known) if !argument.is_empty() => {
                    scope.insert(Arc::from(argument.as_str()), known);
                }
                Some(_) => self.invalid(at, "an argument has no name"),
                None => {
                    let allowed = SessionValue::ALL.map(|known| format!("`{}`", known.name())).join(", ");
                    let pointer = argument.replace('~', "~0").replace('/', "~1");
                    self.invalid(&format!("{at}/{pointer}"), format!("`{value}`; allowed: {allowed}"));
                }
            }
        }
        Some(scope)
    }

    fn times(&mut self, tool: &Map<String, Value>, at: &str) -> Option<Times> {
        let at = &format!("{at}/times");
        let times = match tool.get("times")? {
            Value::Object(times) => times,
            _ => {
                self.invalid(at, "must be an object with a `start`");
                return None;
            }
        };
        self.only(times, &["start", "end", "zone", "allowPast"], at);
        let mut path = |key: &str| {
            let text = self.string(times, key, at)?;
            let path = ArgumentPath::parse(&text).filter(|_| !text.contains("[]"));
            if path.is_none() {
                let message = format!("`{text}`; allowed: a path to one argument, such as start or event.start");
                self.invalid(&format!("{at}/{key}"), message);
            }
            path
        };
        let (start, end, zone, allow_past) = (path("start"), path("end"), path("zone"), path("allowPast"));
        if !times.contains_key("start") {
            self.invalid(at, "needs a `start`");
        }
        Some(Times {
            start: start?,
            end,
            zone,
            allow_past,
        })
    }
}
