//! What a session waits for: the user at the terminal is asked, or sees how to answer.

use anyhow::Context;

use crate::cli::approvals::{answers, question, settles};
use crate::cli::client::{Client, Session, Wait};
use crate::cli::gavel::Where;
use crate::cli::output;
use crate::cli::runs::{Progress, Said, answer, is_here, is_late, questions};
use crate::domain::ids::{PlanningSessionId, RunId};

/// What to do when the session waits for a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnWait {
    /// Shows what it waits for, and continues to watch.
    Watches,
    /// Asks the user at the terminal; ends, if there is none.
    Answers,
}

/// Shows what the session waits for now, and asks the user if that is the way. False: a person must answer, and none
/// did.
///
/// # Errors
/// What it waits for cannot be read, or an answer is refused.
pub(super) async fn handle(
    client: &Client,
    place: &Where,
    id: PlanningSessionId,
    on_wait: OnWait,
    progress: &mut Progress,
) -> anyhow::Result<bool> {
    let session = client.session(id).await?;
    let run = RunId::parse(&session.run_id).context("the answer has no run")?;
    let requests = questions(client, run).await?;
    let in_doubt = in_doubt(&session, place);
    let asks = on_wait == OnWait::Answers && is_here();
    for line in &in_doubt {
        progress.warn(line);
    }
    if !asks {
        for one in &requests {
            progress.warn(&format!("\n{}\n{}", question(one), answers(one, place)));
        }
        // A wait that has ended since asks nothing.
        return Ok(on_wait == OnWait::Watches || (requests.is_empty() && in_doubt.is_empty()));
    }
    for one in requests {
        progress.end();
        match answer(&one).await? {
            Said::Answer(resolution) => match client.resolve(&resolution).await {
                Err(error) if is_late(&error) => output::note(&format!("{error:#}")),
                answered => drop(answered?),
            },
            Said::Later => {
                output::note(&answers(&one, place));
                return Ok(false);
            }
        }
    }
    progress.resume_output();
    Ok(true)
}

/// How to settle the calls whose outcome is unknown.
pub(super) fn in_doubt(session: &Session, place: &Where) -> Vec<String> {
    let place = place.repeated();
    let waits = session.waiting_for.iter().flatten();
    waits
        .filter(|wait| wait.kind == "in_doubt")
        .map(
            |Wait {
                 tool,
                 action_id,
                 task_id,
                 ..
             }| {
                let of = task_id.as_ref().map_or_else(String::new, |task| format!(" of {task}"));
                output::printable(&format!(
                    "in doubt: {tool}{of} may have been done. Look at the receiving end, then run one of these:\n{}",
                    settles(action_id, &place).trim_end()
                ))
            },
        )
        .collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;

    #[derive(Parser)]
    struct Given {
        #[command(flatten)]
        place: Where,
    }

    /// P-306: a session with an unsettled action cannot end, so the user sees how to settle it.
    #[test]
    fn an_in_doubt_action_says_how_it_is_settled() {
        let place = Given::parse_from(["gavel", "--tenant", "acme"]).place;
        let session = json!({"waitingFor": [
            {"kind": "in_doubt", "taskId": "t2", "tool": "create\u{1b}Issue", "actionId": "0198"},
            {"kind": "approval", "taskId": "t2", "tool": "closeIssue", "actionId": "0199", "approvalId": "01aa"},
        ]});
        let session: Session = serde_json::from_value(session).unwrap();
        assert_eq!(
            in_doubt(&session, &place),
            [
                "in doubt: create\\u001bIssue of t2 may have been done. Look at the receiving end, then run one of these:\n  \
                 if it happened:          gavel approvals settle --tenant acme 0198 happened\n  \
                 if it did not happen:    gavel approvals settle --tenant acme 0198 did_not_happen"
            ]
        );
    }
}
