//! The four tools: their arguments and answers with their descriptions for models, and what they do.

mod glob;
mod grep;
mod ls;
mod pattern;
mod read_file;

use std::sync::Arc;

use gavel_mcp_base::{Call, Kind, Output, Tool, ToolError};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::budget::Budget;
use crate::root::Root;
use crate::server::Files;

/// All tools, always in the same order.
pub(crate) fn all() -> Vec<Tool<Files>> {
    vec![ls::tool(), read_file::tool(), glob::tool(), grep::tool()]
}

/// A tool whose work blocks.
fn tool<A, R>(
    name: &'static str,
    title: &str,
    description: &'static str,
    read: fn(A, &Root, &Budget) -> Result<R, ToolError>,
) -> Tool<Files>
where
    A: DeserializeOwned + JsonSchema + Send + 'static,
    R: Output + Send + 'static,
{
    Tool::new(
        name,
        title,
        description,
        Kind::Reads,
        move |files: Arc<Files>, call: Call<A>| async move {
            let Call { arguments, dropped, .. } = call;
            let read = files.read(dropped, move |root, budget| read(arguments, root, budget));
            Ok(read.await?)
        },
    )
}

fn is_false(value: &bool) -> bool {
    !value
}
