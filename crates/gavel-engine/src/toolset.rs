//! The functions that one agent may call, by the names that its model sees.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::verdict::VerdictFunction;
use crate::domain::definition::{Definition, well_known_tool};
use crate::domain::journal::{FunctionCall, Target, ToolRef};
use crate::domain::tool::Tool;
use crate::ports::model::{Declaration, Functions};
use crate::ports::records::Kept;
use crate::ports::tools::Catalog;

/// Longest name shown to a model (`docs/explanation/gemini.md`: 64 is safe on both APIs and old models).
const MAX_NAME: usize = 64;

/// An allowlist of tools, resolved against one generation of the catalog.
#[derive(Debug)]
pub struct Toolset {
    /// The catalog's generation it was built from.
    pub generation: u64,
    /// The functions shown to the model: tools in the allowlist's order, then verdicts.
    pub functions: Arc<Functions>,
    /// Names on the allowlist that no server offers now, with the reason.
    pub missing: Vec<Missing>,
    /// Servers that were not connected.
    away: Vec<Arc<str>>,
    /// Once it was offered.
    kept: OnceLock<Arc<Kept>>,
    routes: HashMap<String, Route>,
}

/// A toolset as the log keeps it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Offered<'a> {
    /// As declared to the model, in this order.
    pub functions: Cow<'a, [Declaration]>,
    /// What could not be offered.
    pub missing: Cow<'a, [Missing]>,
}

/// A tool on the allowlist that cannot be offered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// The name on the allowlist.
    pub name: String,
    /// The reason, for operators.
    pub reason: String,
}

/// Groups missing tools by reason, since one cause, such as an unavailable server, often affects several tools.
pub fn by_reason(missing: &[Missing]) -> Vec<(&str, Vec<&str>)> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for one in missing {
        match reasons.iter_mut().find(|(reason, _)| *reason == one.reason) {
            Some((_, names)) => names.push(&one.name),
            None => reasons.push((&one.reason, vec![&one.name])),
        }
    }
    reasons
}

/// The error if a name in `tools` is both an agent and a server's tool, so that its meaning is ambiguous.
pub fn clash(catalog: &Catalog, definition: &Definition, is_agent: impl Fn(&str) -> bool) -> Option<String> {
    let mut names = definition.tools.iter().filter(|name| is_agent(name));
    names.find_map(|name| named_twice(catalog, name))
}

/// Like [`clash`], for one name of an agent.
pub fn named_twice(catalog: &Catalog, name: &str) -> Option<String> {
    let tool = catalog.tools.iter().find(|tool| tool.is_called(name))?;
    Some(format!(
        "{name:?} in tools is the name of the agent {name} and of a tool of the server {}; list the tool as {}, or rename the agent",
        tool.server,
        tool.qualified_name()
    ))
}

#[derive(Debug)]
enum Route {
    Tool(Arc<Tool>),
    Agent(Arc<str>),
    Verdict(VerdictFunction),
}

impl Toolset {
    /// Resolves the allowlist `grant` (bare names, or `server__tool`) in `catalog`.
    ///
    /// A bare name that several servers offer gives no tool: the author of the allowlist meant one of them, and a
    /// server added later must not replace it.
    pub fn build(catalog: &Catalog, grant: &[String], verdicts: &[VerdictFunction]) -> Self {
        Self::with_agents(catalog, grant, &[], verdicts)
    }

    /// Like [`Toolset::build`], with other agents in addition: their declarations, by the agents' names.
    pub fn with_agents(
        catalog: &Catalog,
        grant: &[String],
        agents: &[Declaration],
        verdicts: &[VerdictFunction],
    ) -> Self {
        let (mut routes, mut declarations, mut missing) = (HashMap::new(), Vec::new(), Vec::new());
        let granted: Vec<_> = grant.iter().map(|name| (name, resolve(catalog, name))).collect();
        for (name, resolved) in &granted {
            match resolved {
                Ok(tool) => {
                    // If one of two tools with the same name had the bare name, the model could mean the other.
                    let reserved = |shown: &str| {
                        let mut tools = granted.iter().filter_map(|(_, other)| other.as_ref().ok());
                        verdicts.iter().any(|verdict| verdict.name() == shown)
                            || agents.iter().any(|agent| safe_name(&agent.name) == shown)
                            || tools.any(|other| !Arc::ptr_eq(other, tool) && safe_name(&other.name) == shown)
                    };
                    let mut shown = shown_name(tool, reserved);
                    if routes.contains_key(&shown) {
                        shown = safe_name(&tool.qualified_name());
                    }
                    if routes.insert(shown.clone(), Route::Tool(Arc::clone(tool))).is_none() {
                        declarations.push(Declaration {
                            name: shown,
                            description: tool.description.clone(),
                            parameters: tool.model_schema.clone(),
                        });
                    }
                }
                Err(reason) => missing.push(Missing {
                    name: (*name).clone(),
                    reason: reason.clone(),
                }),
            }
        }
        for agent in agents {
            let shown = safe_name(&agent.name);
            routes.insert(shown.clone(), Route::Agent(Arc::from(agent.name.as_str())));
            declarations.push(Declaration {
                name: shown,
                ..agent.clone()
            });
        }
        for verdict in verdicts {
            routes.insert(verdict.name().to_owned(), Route::Verdict(verdict.clone()));
            declarations.push(verdict.declaration());
        }
        let functions = Arc::new(Functions {
            declarations,
            encoded: OnceLock::new(),
        });
        let away = catalog.down.keys().chain(&catalog.connecting);
        Self {
            generation: catalog.generation,
            functions,
            away: away.cloned().collect(),
            missing,
            kept: OnceLock::new(),
            routes,
        }
    }

    /// What the log keeps of it: the functions as they are offered, and what is missing.
    pub(super) fn kept(&self) -> Arc<Kept> {
        let kept = || {
            let offered = Offered {
                functions: Cow::Borrowed(&self.functions.declarations),
                missing: Cow::Borrowed(&self.missing),
            };
            let text = serde_json::to_string(&offered).unwrap_or_else(|_| unreachable!("declarations are JSON"));
            Arc::new(Kept::new(text))
        };
        Arc::clone(self.kept.get_or_init(kept))
    }

    /// The target of a call. Names are compared byte by byte: a look-alike is unknown.
    ///
    /// # Errors
    /// The verdict function whose arguments take too long to check on a shared thread.
    pub(super) fn route(&self, call: &FunctionCall) -> Result<Target, VerdictFunction> {
        Ok(match self.routes.get(&call.name) {
            Some(Route::Tool(tool)) => Target::Tool(Arc::clone(tool)),
            Some(Route::Agent(name)) => Target::Agent(Arc::clone(name)),
            Some(Route::Verdict(function)) => match function.read_quickly(&call.args) {
                Some(read) => Target::Verdict(read),
                None => return Err(function.clone()),
            },
            None => Target::Unknown,
        })
    }

    /// The tool that the model calls by this name.
    pub fn tool(&self, name: &str) -> Option<&Arc<Tool>> {
        match self.routes.get(name) {
            Some(Route::Tool(tool)) => Some(tool),
            _ => None,
        }
    }

    /// The target of a call that code makes.
    pub(super) fn target(&self, name: &str) -> Target {
        let tool = self.tool(name).map(Arc::clone);
        tool.map_or(Target::Unknown, Target::Tool)
    }

    /// The missing tools and the unconnected servers, for the decision log; `None` if no tool is missing.
    pub fn shortage(&self) -> Option<String> {
        if self.missing.is_empty() {
            return None;
        }
        let names: Vec<_> = self.missing.iter().map(|one| one.name.as_str()).collect();
        let away = match self.away.is_empty() {
            true => "none".to_owned(),
            false => self.away.join(", "),
        };
        Some(format!(
            "tools on the allowlist that were missing: {}; servers not connected: {away}",
            names.join(", ")
        ))
    }

    /// The tool of an earlier process, if it is still on the allowlist and unchanged.
    pub fn find(&self, tool: &ToolRef) -> Option<&Arc<Tool>> {
        self.routes.values().find_map(|route| match route {
            Route::Tool(found)
                if found.server == tool.server && found.name == tool.name && found.digest == tool.digest =>
            {
                Some(found)
            }
            _ => None,
        })
    }
}

fn resolve<'a>(catalog: &'a Catalog, name: &str) -> Result<&'a Arc<Tool>, String> {
    let mut found = catalog.tools.iter().filter(|tool| tool.is_called(name));
    match (found.next(), found.next()) {
        (Some(tool), None) => Ok(tool),
        (Some(one), Some(other)) => Err(format!(
            "offered by {:?} and {:?}; list {} or {}",
            one.server,
            other.server,
            one.qualified_name(),
            other.qualified_name()
        )),
        (None, _) => Err(absence(catalog, name)),
    }
}

fn absence(catalog: &Catalog, name: &str) -> String {
    if let Some(left) = catalog.left_out.iter().find(|left| left.tool == name) {
        return format!("excluded from {:?}: {}", left.server, left.reason);
    }
    if let Some(tool) = catalog.tools.iter().find(|tool| *tool.name == *name) {
        return format!(
            "a tool of {:?} has this bare name; list it as {}",
            tool.server,
            tool.qualified_name()
        );
    }
    let down = catalog.down.iter().map(|(server, reason)| match reason.as_str() {
        "" => server.to_string(),
        reason => format!("{server} ({reason})"),
    });
    let connecting = catalog
        .connecting
        .iter()
        .map(|server| format!("{server} (still connecting)"));
    let away: Vec<_> = down.chain(connecting).collect();
    if away.is_empty() {
        return format!(
            "no configured server offers it, and no agent has this name{}",
            written(name)
        );
    }
    format!(
        "no connected server offers it; not connected: {}{}",
        away.join(", "),
        written(name)
    )
}

/// A hint with the name to write instead of a name of Gemini CLI or Claude Code.
fn written(name: &str) -> String {
    well_known_tool(name).map_or_else(String::new, |known| format!("; write {known}"))
}

fn shown_name(tool: &Tool, reserved: impl Fn(&str) -> bool) -> String {
    let bare = safe_name(&tool.name);
    if reserved(&bare) {
        safe_name(&tool.qualified_name())
    } else {
        bare
    }
}

/// At most 64 characters of `[A-Za-z0-9_-]`, the first one a letter or `_`. A changed name gets eight hex digits of its
/// hash, so that different names stay different.
fn safe_name(name: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if begins && name.len() <= MAX_NAME && name.chars().all(fits) {
        return name.to_owned();
    }
    let hash = Sha256::digest(name.as_bytes());
    let mut safe: String = if begins { String::new() } else { "_".to_owned() };
    safe.extend(name.chars().map(|c| if fits(c) { c } else { '_' }).take(MAX_NAME - 10));
    safe.push('_');
    for byte in hash.iter().take(4) {
        use std::fmt::Write;
        let _ = write!(safe, "{byte:02x}");
    }
    safe
}

#[cfg(test)]
mod tests;
