//! The pull requests that a session opened, from the results of its calls.

use serde_json::Value;
use serde_json::value::RawValue;

use super::acted;
use crate::api::planning::PullRequest;
use crate::domain::ids::ActionId;
use crate::domain::journal::Entry;
use crate::engine::tool_name;

/// The tool that opens one.
pub(crate) const OPENS_PULL_REQUEST: &str = "createPullRequest";

/// Collects the pull requests from journals.
#[derive(Default)]
pub(crate) struct PullRequests {
    calls: Vec<ActionId>,
    pub(crate) found: Vec<PullRequest>,
}

impl PullRequests {
    /// Takes the next entry of a task's journal.
    pub(crate) fn take(&mut self, entry: &Entry) {
        if let Entry::ModelTurn { calls, .. } = entry
            && let Some(call) = acted(calls).filter(|call| *tool_name(call) == *OPENS_PULL_REQUEST)
        {
            self.calls.push(call.id);
        }
        if let Entry::Result { call, result } = entry
            && let Ok(data) = &result.outcome
            && self.calls.contains(call)
        {
            self.found.extend(pull_request(data));
        }
    }
}

/// The pull request in a result; `None` if it has another form.
fn pull_request(data: &RawValue) -> Option<PullRequest> {
    let data: Value = serde_json::from_str(data.get()).ok()?;
    let made = data.get("pullRequest")?;
    Some(PullRequest {
        number: made.get("number")?.as_u64()?,
        url: made.get("htmlUrl")?.as_str()?.to_owned(),
    })
}
