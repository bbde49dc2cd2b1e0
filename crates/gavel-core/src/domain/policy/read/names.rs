//! Names in a rule, in which only `*` is special.

use gavel_reading::{At, Content};
use globset::{Glob, GlobBuilder, GlobSetBuilder};

use super::super::{AGENTS, Names, SURFACES};
use super::MOST_ITEMS;

/// What is allowed as names.
pub(super) const NAMES: &str = "a list of names; * matches any text";

/// A list of names, or a single name. An empty list would be a rule that matches nothing.
pub(super) fn names(at: &At<'_>) -> Option<Names> {
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
pub(super) fn surfaces(at: &At<'_>) -> Option<Names> {
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
pub(super) fn names_agents_only(tools: &At<'_>) -> bool {
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
