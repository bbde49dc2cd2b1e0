//! The tool: its description for models, how its arguments become a command, and its answers.

pub(crate) mod run_shell_command;

use gavel_mcp_base::{Answer, ToolError};
use rmcp::model::{JsonObject, Tool};

use crate::calls::Request;
use crate::error::{internal, limit_reached};
use crate::job::{Ended, Sandbox};
use crate::root::Owner;
use crate::settings::Settings;

/// What the host says of a call.
#[derive(Debug)]
pub(crate) struct Call {
    /// Of the arguments.
    pub(crate) digest: String,
    pub(crate) key: Option<String>,
    pub(crate) session: Option<String>,
    pub(crate) owner: Owner,
}

/// All tools.
pub(crate) fn all(settings: &Settings, sandbox: &Sandbox) -> Vec<Tool> {
    vec![run_shell_command::tool(settings, sandbox)]
}

/// The command of a call of an existing tool.
pub(crate) fn request(
    name: &str,
    arguments: Option<JsonObject>,
    call: Call,
    settings: &Settings,
) -> Result<Request, ToolError> {
    match name {
        run_shell_command::NAME => run_shell_command::request(arguments, call, settings),
        _ => Err(internal()),
    }
}

/// The answer for a command that ended.
pub(crate) fn answer(ended: &Ended, settings: &Settings) -> Answer {
    match ended.disk_full {
        Some(used) => limit_reached(ended, used, settings.limits.disk).into(),
        None => Answer::of(&ended.result),
    }
}
