//! What code reads of a repository before the planner's first turn (P-201), and how much of it the planner sees.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::domain::repository::Repository;
use crate::engine::opening::{Opening, Read, Shown};

/// The planner's first message for a new session.
pub(super) const FIRST: &str = include_str!("../../../templates/planning/plan.md");
/// The planner's first message for a change of the plan.
pub(super) const REFINED: &str = include_str!("../../../templates/planning/refine.md");

/// The most paths of the tree, those in the fewest directories first (PLANNING.md section 3).
const PATHS: usize = 2000;
/// The most bytes of AGENT.md.
const AGENT_MD: usize = 32 * 1024;
/// The most bytes of README.md.
const README: usize = 16 * 1024;

/// The reads of a repository, and the message that is made of them.
pub(super) fn opening(repository: &Repository, message: &str, values: BTreeMap<String, String>) -> Opening {
    let read = |name: &str, tool: &str, pointer: &str, shown: Shown| Read {
        name: name.to_owned(),
        tool: tool.to_owned(),
        arguments: Map::from_iter([
            ("owner".to_owned(), Value::from(repository.owner.as_str())),
            ("repo".to_owned(), Value::from(repository.name.as_str())),
        ]),
        pointer: pointer.to_owned(),
        shown,
        is_required: false,
    };
    let file = |name: &str, path: &str, most: usize| {
        let mut read = read(name, "getFileContents", "/file/content", Shown::Text(most));
        read.arguments.insert("path".to_owned(), Value::from(path));
        read
    };
    Opening {
        reads: vec![
            Read {
                is_required: true,
                ..read("repository", "retrieveRepository", "/repository", Shown::Json)
            },
            Read {
                is_required: true,
                ..read("tree", "getRepositoryTree", "/entries", Shown::Paths(PATHS))
            },
            file("agent_md", "AGENT.md", AGENT_MD),
            file("agents_md", "AGENTS.md", AGENT_MD),
            file("readme", "README.md", README),
        ],
        message: message.to_owned(),
        values,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::domain::templates::Template;

    /// A placeholder without a value would stop every session: the built-in templates name only what there is.
    #[test]
    fn the_built_in_templates_name_only_what_is_read_or_given() {
        let repository = Repository {
            owner: "acme".to_owned(),
            name: "dates".to_owned(),
        };
        let given = ["goal", "repo_url", "deadline", "tools"];
        for (message, further) in [(FIRST, &[][..]), (REFINED, &["plan", "feedback", "change"][..])] {
            let opening = opening(&repository, message, BTreeMap::new());
            let known = |name: &str| {
                opening.reads.iter().any(|read| read.name == name) || given.contains(&name) || further.contains(&name)
            };
            let template = Template::parse(message).unwrap();
            let unknown: Vec<_> = template.names().filter(|name| !known(name)).collect();
            assert!(unknown.is_empty(), "{unknown:?}");
        }
    }
}
