//! The tools: their descriptions for models, how their arguments become requests, and their answers.

mod create;
mod destroy;
mod list;
mod options;
mod read_file;
mod schema;
mod script;
mod sources;
mod target;

pub(crate) use self::create::permitted;
use gavel_mcp_base::Answer;
use rmcp::model::{CallToolResult, JsonObject, Tool};

use crate::call::Call;
use crate::docker::Docker;
use crate::error::{Fault, internal};
use crate::script::Signals;

/// All tools, always in the same order. `permitted` says what containers may be.
pub(crate) fn all(permitted: &str) -> Vec<Tool> {
    vec![
        create::tool(permitted),
        destroy::tool(),
        destroy::group_tool(),
        script::tool(),
        sources::tool(),
        read_file::tool(),
        list::tool(),
    ]
}

/// Carries out a call of an existing tool.
pub(crate) async fn carry_out(
    name: &str,
    arguments: Option<JsonObject>,
    docker: &Docker,
    call: &Call,
    signals: &Signals,
) -> Result<Answer, Fault> {
    match name {
        create::NAME => create::carry_out(arguments, docker, call).await,
        destroy::NAME => destroy::carry_out(arguments, docker, call).await,
        destroy::GROUP => destroy::carry_out_for_group(arguments, docker, call).await,
        script::NAME => script::carry_out(arguments, docker, call, signals).await,
        sources::NAME => sources::carry_out(arguments, docker, call).await,
        read_file::NAME => read_file::carry_out(arguments, docker, call).await,
        list::NAME => list::carry_out(arguments, docker, call).await,
        _ => Err(internal().into()),
    }
}

/// The result of a call. If its answer is a text, that is the text alone.
pub(crate) fn result(answer: Answer) -> CallToolResult {
    let texts = [sources::TEXT, read_file::TEXT];
    match texts.into_iter().find(|text| answer.body.get(text).is_some()) {
        Some(text) => answer.with_text_of(text),
        None => answer.into(),
    }
}
