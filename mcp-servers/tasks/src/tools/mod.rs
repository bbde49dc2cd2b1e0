//! The five tools: their arguments and answers with their descriptions for models, and the requests that they are.

mod change;
mod list;

use gavel_mcp_base::Tool;

use crate::server::Tasks;

const MAX_DESCRIPTION: usize = 500;

/// All tools, always in the same order.
pub(crate) fn all() -> Vec<Tool<Tasks>> {
    let [add, update, complete, delete] = change::tools();
    vec![add, list::tool(), update, complete, delete]
}
