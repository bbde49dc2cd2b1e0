//! The four tools: their descriptions for models, how their arguments become a request, and their answers.

mod glob;
mod grep;
mod ls;
mod pattern;
mod read_file;
mod schema;

use std::sync::LazyLock;

use gavel_mcp_base::{Answer, Code as Common, ToolError};
use rmcp::model::{JsonObject, Tool};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::budget::Budget;
use crate::error;
use crate::root::Root;

/// A call with parsed arguments.
#[derive(Debug)]
pub(crate) enum Request {
    Ls(ls::Request),
    ReadFile(read_file::Request),
    Glob(glob::Request),
    Grep(grep::Request),
}

/// All tools, always in the same order.
pub(crate) fn all() -> &'static [Tool] {
    static TOOLS: LazyLock<Vec<Tool>> =
        LazyLock::new(|| vec![ls::tool(), read_file::tool(), glob::tool(), grep::tool()]);
    &TOOLS
}

pub(crate) fn parse(name: &str, arguments: Option<JsonObject>) -> Result<Request, ToolError> {
    let arguments = Value::Object(arguments.unwrap_or_default());
    match name {
        ls::NAME => read(arguments).map(Request::Ls),
        read_file::NAME => read(arguments).map(Request::ReadFile),
        glob::NAME => read(arguments).map(Request::Glob),
        grep::NAME => read(arguments).map(Request::Grep),
        _ => Err(ToolError::new(Common::Internal, "There is no such tool.")),
    }
}

fn read<Arguments: DeserializeOwned>(arguments: Value) -> Result<Arguments, ToolError> {
    serde_json::from_value(arguments).map_err(|error| {
        let error: String = error.to_string().chars().take(300).collect();
        error::invalid_argument(format!("The arguments are invalid: {error}."))
    })
}

impl Request {
    /// Blocks: run it on its own thread.
    pub(crate) fn carry_out(self, root: &Root, budget: &Budget) -> Result<Answer, ToolError> {
        Ok(match self {
            Self::Ls(request) => Answer::of(&request.carry_out(root, budget)?),
            Self::ReadFile(request) => Answer::of(&request.carry_out(root, budget)?),
            Self::Glob(request) => Answer::of(&request.carry_out(root, budget)?),
            Self::Grep(request) => Answer::of(&request.carry_out(root, budget)?),
        })
    }
}

/// A whole number from 1 to `MAX`. Some models write 5 as 5.0.
fn whole_number<'de, const MAX: u32, D: serde::Deserializer<'de>>(given: D) -> Result<Option<u32>, D::Error> {
    let Some(number) = <Option<f64> as serde::Deserialize>::deserialize(given)? else {
        return Ok(None);
    };
    if number.fract() != 0.0 || !(1.0..=f64::from(MAX)).contains(&number) {
        return Err(serde::de::Error::custom(format!(
            "{number} is not allowed here, only a whole number from 1 to {MAX}"
        )));
    }
    Ok(Some(number as u32))
}

fn is_false(value: &bool) -> bool {
    !value
}
