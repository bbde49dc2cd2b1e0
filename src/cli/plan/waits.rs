//! What a session waits for: the user at the terminal is asked, or sees how to answer.

use crate::api::planning::{Session, WaitingFor, WaitingKind};
use crate::cli::approvals::{answers, question, settles};
use crate::cli::client::Client;
use crate::cli::gavel::Where;
use crate::cli::output;
use crate::cli::runs::{Progress, Said, answer, asked, is_here, is_late, questions};
use crate::domain::ids::PlanningSessionId;

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
    let requests = questions(client, session.run_id).await?;
    let in_doubt = in_doubt(&session, place);
    let asks = on_wait == OnWait::Answers && is_here();
    for line in &in_doubt {
        progress.warn(line);
    }
    if !asks {
        for one in asked(&requests) {
            progress.warn(&format!("\n{}\n{}", question(&one), answers(&one, place)));
        }
        // A wait that has ended since asks nothing.
        return Ok(on_wait == OnWait::Watches || (requests.is_empty() && in_doubt.is_empty()));
    }
    for one in asked(&requests) {
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
        .filter(|wait| wait.kind == WaitingKind::InDoubt)
        .map(
            |WaitingFor {
                 tool,
                 action_id,
                 task_id,
                 ..
             }| {
                let of = task_id.map_or_else(String::new, |task| format!(" of {task}"));
                output::printable(&format!(
                    "in doubt: {tool}{of} may have been done. Look at the receiving end, then run one of these:\n{}",
                    settles(*action_id, &place).trim_end()
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
            {"kind": "in_doubt", "taskId": "t2", "tool": "create\u{1b}Issue", "actionId": "01980000-0000-7000-8000-000000000000"},
            {"kind": "approval", "taskId": "t2", "tool": "closeIssue", "actionId": "01990000-0000-7000-8000-000000000000"},
        ]});
        let session: Session = crate::cli::tests::samples::sample(session);
        assert_eq!(
            in_doubt(&session, &place),
            [
                "in doubt: create\\u001bIssue of t2 may have been done. Look at the receiving end, then run one of these:\n  \
                 if it happened:          gavel approvals settle --tenant acme 01980000-0000-7000-8000-000000000000 happened\n  \
                 if it did not happen:    gavel approvals settle --tenant acme 01980000-0000-7000-8000-000000000000 did_not_happen"
            ]
        );
    }
}
