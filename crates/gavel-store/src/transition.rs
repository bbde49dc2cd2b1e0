//! Conditions for UPDATEs that change a status, built from the legal transitions: an illegal change affects no row.

use crate::domain::action::ActionStatus;
use crate::domain::agent_run::RunStatus;
use crate::domain::planning_session::SessionStatus;

/// Condition on an action: it may become `next`.
pub(super) fn action_may_become(next: ActionStatus) -> String {
    one_of(ActionStatus::ALL, |from| from.may_become(next), ActionStatus::as_str)
}

/// Condition on an action: a settlement may change it to `next`.
pub(super) fn action_may_be_settled_as(next: ActionStatus) -> String {
    one_of(
        ActionStatus::ALL,
        |from| from.may_be_settled_as(next),
        ActionStatus::as_str,
    )
}

/// Condition on a run: it may become `next`.
pub(super) fn run_may_become(next: RunStatus) -> String {
    one_of(RunStatus::ALL, |from| from.may_become(next), RunStatus::as_str)
}

/// Condition on a planning session: it may become `next`.
pub(super) fn session_may_become(next: SessionStatus) -> String {
    one_of(SessionStatus::ALL, |from| from.may_become(next), SessionStatus::as_str)
}

/// Condition on a row that changes to the status in `parameter`, one of `targets`: the change is legal.
pub(super) fn any<S: Copy>(
    parameter: &str,
    targets: &[S],
    name: fn(S) -> &'static str,
    may: fn(S) -> String,
) -> String {
    let each = targets
        .iter()
        .map(|next| format!("({parameter} = '{}' AND {})", name(*next), may(*next)));
    format!("({})", each.collect::<Vec<_>>().join(" OR "))
}

fn one_of<S: Copy>(all: &[S], legal: impl Fn(S) -> bool, name: fn(S) -> &'static str) -> String {
    let from = all.iter().copied().filter(|from| legal(*from));
    let from: Vec<_> = from.map(|from| format!("status = '{}'", name(from))).collect();
    match from.as_slice() {
        [one] => one.clone(),
        _ => format!("({})", from.join(" OR ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_changes_only_where_that_is_legal() {
        assert_eq!(
            action_may_become(ActionStatus::Approved),
            "status = 'awaiting_confirmation'"
        );
        assert_eq!(
            action_may_become(ActionStatus::Expired),
            "(status = 'awaiting_confirmation' OR status = 'approved')"
        );
        assert_eq!(
            run_may_become(RunStatus::Paused),
            "(status = 'running' OR status = 'awaiting_confirmation')"
        );
        assert_eq!(
            session_may_become(SessionStatus::Executing),
            "status = 'AWAITING_CONFIRMATION'"
        );
        let ends = [ActionStatus::Completed, ActionStatus::InDoubt];
        assert_eq!(
            any("$2", &ends, ActionStatus::as_str, action_may_become),
            "(($2 = 'completed' AND status = 'executing') OR ($2 = 'in_doubt' AND status = 'executing'))"
        );
    }
}
