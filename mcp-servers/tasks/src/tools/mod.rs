//! The five tools: their arguments and answers with their descriptions for models, and the requests that they are.

mod change;
mod list;

use gavel_mcp_base::{Server, Tool, about};

use crate::identity::Identity;
use crate::server::Tasks;
use crate::store::Store;

const MAX_DESCRIPTION: usize = 500;

const INSTRUCTIONS: &str = "\
The task list of one user. Tasks are found by `id` (exact, from list_tasks) or by `title` (the words \
of the description). Call list_tasks before acting on 'the first one' or on a task that is only \
vaguely named. An `ambiguous_title` error lists the candidates: ask the user which one is meant, do \
not guess. Delete only what the user named, one task at a time.";

/// The MCP server.
pub(crate) fn server(store: Store, identity: Identity) -> Server<Tasks> {
    Server::new(about!("Tasks", INSTRUCTIONS), Tasks { store, identity }, all())
}

/// All tools, always in the same order.
pub(crate) fn all() -> Vec<Tool<Tasks>> {
    let [add, update, complete, delete] = change::tools();
    vec![add, list::tool(), update, complete, delete]
}
