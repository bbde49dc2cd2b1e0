//! Names in a rule, in which only `*` is special.

use globset::{Glob, GlobBuilder, GlobSetBuilder};

use super::super::{AGENTS, Names, SURFACES};
use super::{Fields, MOST_ITEMS, Reader};
use crate::domain::definition::{Content, Node};

impl Reader<'_> {
    /// A list of names, or a single name. An empty list would be a rule that matches nothing.
    pub(super) fn names(&mut self, fields: &Fields<'_>, name: &str) -> Option<Names> {
        const ALLOWED: &str = "names; * matches any text";
        let node = fields.get(name)?;
        let items = match &node.content {
            Content::Text(_) => std::slice::from_ref(node),
            Content::List(items) if !items.is_empty() && items.len() <= MOST_ITEMS => items,
            _ => {
                self.invalid(
                    node.line,
                    &fields.at(name),
                    node.found(),
                    format!("a list of {ALLOWED}"),
                );
                return None;
            }
        };
        let (mut set, mut written) = (GlobSetBuilder::new(), Vec::new());
        for (n, item) in items.iter().enumerate() {
            let name = match &item.content {
                Content::Text(text) => text.trim(),
                _ => "",
            };
            match pattern(name) {
                Some(glob) => {
                    set.add(glob);
                    written.push(name.into());
                }
                None => self.invalid(item.line, &format!("{}[{n}]", fields.at(name)), item.found(), ALLOWED),
            }
        }
        match set.build() {
            Ok(set) => Some(Names { set, written }),
            Err(error) => {
                self.invalid(node.line, &fields.at(name), error.to_string(), ALLOWED);
                None
            }
        }
    }

    /// A name that matches no surface would be a rule that matches nothing.
    pub(super) fn surfaces(&mut self, fields: &Fields<'_>) -> Option<Names> {
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
                self.invalid(item.line, &fields.at("surfaces"), item.found(), allowed);
            }
        }
        self.names(fields, "surfaces")
    }
}

/// Does a rule name agents that are called, and no tools?
pub(super) fn names_agents_only(fields: &Fields<'_>) -> bool {
    let is_agent = |node: &Node| match &node.content {
        Content::Text(name) => name.trim().starts_with(&format!("{AGENTS}__")),
        _ => false,
    };
    fields.get("tools").is_some_and(|tools| match &tools.content {
        Content::List(items) => items.iter().all(is_agent),
        _ => is_agent(tools),
    })
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
