//! What `gavel.tools` says about one tool.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::super::ToolSettings;
use super::{Reader, escape};
use crate::domain::argument_path::ArgumentPath;
use crate::domain::session_value::SessionValue;
use crate::domain::times::Times;
use crate::domain::tool::{AmountsTo, ApprovalDefault, Idempotency};

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
                "creates",
                "amountsTo",
                "repositories",
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
            creates: self.creates(tool, at),
            amounts_to: self.amounts_to(tool, at),
            repositories: self.bool(tool, "repositories", at),
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

    /// The entries of an object, by argument paths. Errors name the place.
    fn by_path(
        &mut self,
        tool: &Map<String, Value>,
        key: &str,
        at: &str,
    ) -> Option<Vec<(ArgumentPath, String, Value)>> {
        let at = &format!("{at}/{key}");
        let Value::Object(given) = tool.get(key)? else {
            self.invalid(at, "must be an object");
            return None;
        };
        let mut entries = Vec::new();
        for (name, value) in given {
            let at = format!("{at}/{}", escape(name));
            match ArgumentPath::parse(name) {
                Some(path) => entries.push((path, at, value.clone())),
                None => self.invalid(&at, format!("`{name}`; allowed: {}", ArgumentPath::ALLOWED)),
            }
        }
        Some(entries)
    }

    fn scope(&mut self, tool: &Map<String, Value>, at: &str) -> Option<Vec<(ArgumentPath, SessionValue)>> {
        let mut scope = Vec::new();
        for (path, at, value) in self.by_path(tool, "scope", at)? {
            match SessionValue::ALL.into_iter().find(|known| value == known.name()) {
                Some(known) => scope.push((path, known)),
                None => {
                    let allowed = SessionValue::ALL.map(|known| format!("`{}`", known.name())).join(", ");
                    self.invalid(&at, format!("`{value}`; allowed: {allowed}"));
                }
            }
        }
        Some(scope)
    }

    fn creates(&mut self, tool: &Map<String, Value>, at: &str) -> BTreeMap<Arc<str>, ArgumentPath> {
        let mut creates = BTreeMap::new();
        for (argument, at, value) in self.by_path(tool, "creates", at).unwrap_or_default() {
            match value.as_str().and_then(ArgumentPath::parse) {
                Some(path) => drop(creates.insert(Arc::from(argument.to_string()), path)),
                None => self.invalid(
                    &at,
                    format!("`{value}`; allowed: a path into the result, such as issue.number"),
                ),
            }
        }
        creates
    }

    fn amounts_to(&mut self, tool: &Map<String, Value>, at: &str) -> Vec<AmountsTo> {
        let at = &format!("{at}/amountsTo");
        let mut all = Vec::new();
        match tool.get("amountsTo") {
            None => {}
            Some(Value::Object(tools)) => {
                for other in tools.keys() {
                    for (argument, at, value) in self.by_path(tools, other, at).unwrap_or_default() {
                        let Value::Array(values) = value else {
                            self.invalid(&at, "must be a list of values, such as [\"closed\"]");
                            continue;
                        };
                        let tool = Arc::from(other.as_str());
                        all.push(AmountsTo { tool, argument, values });
                    }
                }
            }
            Some(_) => self.invalid(at, "must be an object of arguments by tool name"),
        }
        all
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
