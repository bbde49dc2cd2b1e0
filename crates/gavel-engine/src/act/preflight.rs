//! Asks servers about calls before their approval is requested (`preflight` in `mcp.json`).

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde::Deserialize;
use serde_json::json;

use super::super::ledger::Call;
use super::super::run::{Engine, Run};
use super::send::{Nth, attempt};
use super::{Callee, Cleared, cleared};
use crate::domain::canonical;
use crate::domain::journal::{Entry, PolicyDecision, Proposed, Target};
use crate::domain::tool::{FailureCode, Tool};
use crate::ports::tools::CallReply;

/// The longest time for a server's preflight answer.
const TO_BE_READY: Duration = Duration::from_secs(5);

/// The longest account name, in bytes: the length of the longest email address.
const LONGEST_ACCOUNT: usize = 320;

/// Asks servers about all calls that require approval, concurrently. A call fails with the server's message if the user
/// must connect an account first, or if the tool does not accept the arguments. Then no approval is requested. For the
/// other calls, approvers are shown the account that the call would use. If a server cannot answer, approval is
/// requested.
pub(super) async fn preflight(engine: &Engine, run: &mut Run, calls: &[Proposed]) {
    let shared: &Run = run;
    let ledger = shared.record.journal.ledger();
    let waiting = calls.iter().filter_map(|call| match &call.target {
        Target::Tool(tool) => {
            // A person decides first whether the text of a read may leave.
            let name = tool.settings.preflight.as_deref().filter(|_| !tool.asks_the_world())?;
            let state = ledger.call(call.id).filter(|state| state.requires_approval())?;
            Some((state, tool, name))
        }
        _ => None,
    });
    let replies = waiting.map(|(call, tool, name)| async move {
        let reply = looked_at(engine, shared, call, tool, name).await;
        (call.id(), reply)
    });
    let replies = join_all(replies).await;
    for (id, reply) in replies {
        match reply {
            Some(CallReply::Failed(failure))
                if matches!(failure.code, FailureCode::AuthRequired | FailureCode::InvalidArguments) =>
            {
                run.push(Entry::failed(id, failure.code, failure.message));
            }
            Some(CallReply::Data(data)) => {
                let said: Ready = serde_json::from_str(data.get()).unwrap_or_default();
                let decided = run
                    .record
                    .journal
                    .entries_mut()
                    .iter_mut()
                    .rev()
                    .find_map(|entry| match entry {
                        Entry::Decided { call, decision } if *call == id => Some(decision),
                        _ => None,
                    });
                // The entry is not written yet.
                if let Some(PolicyDecision::RequireApproval { account, .. }) = decided {
                    *account = said.account.filter(|name| name.len() <= LONGEST_ACCOUNT);
                }
            }
            Some(CallReply::Failed(_) | CallReply::NotSent(_) | CallReply::Unknown(_)) | None => {}
        }
    }
}

/// A server's preflight answer for a call; `None` if it cannot be asked.
async fn looked_at(engine: &Engine, run: &Run, call: Call<'_>, tool: &Tool, name: &str) -> Option<CallReply> {
    let catalog = engine.tools.catalog();
    let mut offered = catalog.tools.iter();
    let asked = offered.find(|other| other.server == tool.server && *other.name == *name && !other.side_effect);
    let Some(asked) = asked else {
        tracing::warn!(server = %tool.server, tool = %tool.name, ready = %name, "the preflight tool does not exist or is not read-only");
        return None;
    };
    let mut arguments = json!({"for": &*tool.name});
    if asked.input.has_property("arguments") {
        arguments["arguments"] = serde_json::from_str(call.requested()?.get()).unwrap_or_default();
    }
    if let Some(identity) = &asked.identity_argument {
        arguments[&**identity] = asked
            .user(&run.record.decision.tenant, &run.record.decision.user)
            .into_owned()
            .into();
    }
    let time = TO_BE_READY.min(
        run.context
            .limits
            .tool_time(asked.timeout, run.record.elapsed(engine.clock.instant())),
    );
    let one = Cleared {
        key: format!("{}:ready", call.id()),
        ..cleared(
            call.proposed,
            Callee::Tool(asked),
            Arc::from(canonical::to_raw(&arguments)),
        )
    };
    Some(attempt(engine, run, &one, asked, time, Nth::First).await)
}

/// A server's answer for a call that could be made.
#[derive(Default, Deserialize)]
struct Ready {
    account: Option<String>,
}
