//! What servers say of calls before a person is asked about them (`ready` of `mcp.json`).

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde::Deserialize;
use serde_json::json;

use super::super::{Engine, Run, leave};
use super::{Cleared, Nth, What, attempt, cleared, failed};
use crate::domain::canonical;
use crate::domain::journal::{Entry, Judgement, Proposed, Target};
use crate::domain::tool::{FailureCode, Tool};
use crate::ports::tools::CallReply;

/// The longest that a server may take to say whether a tool can be called.
const TO_BE_READY: Duration = Duration::from_secs(5);

/// The longest name of an account, in bytes: the longest address there is.
const LONGEST_ACCOUNT: usize = 320;

/// Asks servers about the calls that a person would be asked about, all at once. Those that could not be made (the user's account is to be
/// connected first; the tool does not take these arguments) fail with the server's words, and nobody is asked for nothing; with the others
/// people are shown the account from which they would be done. Where a server cannot say, people are asked.
pub(super) async fn look_ahead(engine: &Engine, run: &mut Run, calls: &[Proposed]) {
    let shared: &Run = run;
    let waiting = calls.iter().filter_map(|call| match &call.target {
        Target::Tool(tool) => {
            let name = tool.ready.as_deref()?;
            leave::waits(&shared.journal, call.id).then_some((call, tool, name))
        }
        _ => None,
    });
    let replies = waiting.map(|(call, tool, name)| async move {
        let reply = looked_at(engine, shared, call, tool, name).await;
        (call.id, reply)
    });
    for (id, reply) in join_all(replies).await {
        match reply {
            Some(CallReply::Failed(failure))
                if matches!(failure.code, FailureCode::AuthRequired | FailureCode::InvalidArguments) =>
            {
                run.push(failed(id, failure.code, failure.message));
            }
            Some(CallReply::Data(data)) => {
                let said: Ready = serde_json::from_str(data.get()).unwrap_or_default();
                let judged = run.journal.iter_mut().rev().find_map(|entry| match entry {
                    Entry::Judged { call, judgement } if *call == id => Some(judgement),
                    _ => None,
                });
                // It is not written yet.
                if let Some(Judgement::RequireApproval { account, .. }) = judged {
                    *account = said.account.filter(|name| name.len() <= LONGEST_ACCOUNT);
                }
            }
            Some(CallReply::Failed(_) | CallReply::NotSent(_) | CallReply::Unknown(_)) | None => {}
        }
    }
}

/// What a call's server says of it beforehand, where it can be asked.
async fn looked_at(engine: &Engine, run: &Run, call: &Proposed, tool: &Tool, name: &str) -> Option<CallReply> {
    let catalog = engine.tools.catalog();
    let mut offered = catalog.tools.iter();
    let asked = offered.find(|other| other.server == tool.server && *other.name == *name && !other.side_effect);
    let Some(asked) = asked else {
        tracing::warn!(server = %tool.server, tool = %tool.name, ready = %name, "no tool that only reads has this name");
        return None;
    };
    let mut arguments = json!({"for": &*tool.name});
    if asked.input.has_property("arguments") {
        let (given, _) = leave::asked_for(&run.journal, call.id)?;
        arguments["arguments"] = serde_json::from_str(given.get()).unwrap_or_default();
    }
    if let Some(identity) = &asked.identity_argument {
        arguments[&**identity] = asked.user(&run.record.tenant, &run.record.user).into_owned().into();
    }
    let time = TO_BE_READY.min(run.limits.tool_time(asked.timeout, run.elapsed(engine.clock.instant())));
    let one = Cleared {
        key: format!("{}:ready", call.id),
        ..cleared(call, What::Tool(asked), Arc::from(canonical::to_raw(&arguments)))
    };
    Some(attempt(engine, run, &one, asked, time, Nth::First).await)
}

/// What a server says of a call that could be made.
#[derive(Default, Deserialize)]
struct Ready {
    account: Option<String>,
}
