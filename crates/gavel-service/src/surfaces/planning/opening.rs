//! What code reads of a repository before the planner's first turn (P-201), and how much of it the planner sees.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::domain::planning_session::READS;
use crate::domain::repository::Repository;
use crate::engine::opening::{Opening, Read, Shown};
use crate::engine::planning::{AGENT_MD, AGENTS_MD, REPOSITORY, TREE};

/// The most paths of the tree, those in the fewest directories first.
const PATHS: usize = 2000;
/// The most bytes of AGENT.md.
const AGENTS_FILE: usize = 32 * 1024;
/// The most bytes of README.md.
const README: usize = 16 * 1024;

const RETRIEVE: &str = READS[0];
const LIST: &str = READS[1];
const FILE: &str = READS[2];

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
        let mut read = read(name, FILE, "/file/content", Shown::Text(most));
        read.arguments.insert("path".to_owned(), Value::from(path));
        read
    };
    Opening {
        reads: vec![
            Read {
                is_required: true,
                ..read(REPOSITORY, RETRIEVE, "/repository", Shown::Json)
            },
            Read {
                is_required: true,
                ..read(TREE, LIST, "/entries", Shown::Paths(PATHS))
            },
            file(AGENT_MD, "AGENT.md", AGENTS_FILE),
            file(AGENTS_MD, "AGENTS.md", AGENTS_FILE),
            file("readme", "README.md", README),
        ],
        message: message.to_owned(),
        values,
    }
}
