//! Conditions for UPDATEs that change a status, built from the legal transitions: an illegal change affects no row.

use crate::domain::action::ActionStatus;
use crate::domain::agent_run::RunStatus;
use crate::domain::planning_session::SessionStatus;

/// The statuses of a table's rows.
pub(super) trait Status: Copy + 'static {
    const ALL: &'static [Self];
    fn name(self) -> &'static str;
    fn may_become(self, next: Self) -> bool;
}

macro_rules! statuses {
    ($($status:ty),+) => {
        $(impl Status for $status {
            const ALL: &'static [Self] = <$status>::ALL;

            fn name(self) -> &'static str {
                self.as_str()
            }

            fn may_become(self, next: Self) -> bool {
                <$status>::may_become(self, next)
            }
        })+
    };
}

statuses!(ActionStatus, RunStatus, SessionStatus);

/// Condition on a row: it may become `next`.
pub(super) fn may_become<S: Status>(next: S) -> String {
    one_of(|from: S| from.may_become(next))
}

/// Condition on a row that changes to the status in `parameter`, one of `targets`: the change is legal.
pub(super) fn may_become_any<S: Status>(parameter: &str, targets: &[S]) -> String {
    any(parameter, targets, may_become)
}

/// The same for a settlement of an action.
pub(super) fn may_be_settled_as_any(parameter: &str, targets: &[ActionStatus]) -> String {
    any(parameter, targets, |next| {
        one_of(|from: ActionStatus| from.may_be_settled_as(next))
    })
}

fn any<S: Status>(parameter: &str, targets: &[S], may: impl Fn(S) -> String) -> String {
    let each = targets
        .iter()
        .map(|next| format!("({parameter} = '{}' AND {})", next.name(), may(*next)));
    format!("({})", each.collect::<Vec<_>>().join(" OR "))
}

fn one_of<S: Status>(legal: impl Fn(S) -> bool) -> String {
    let from = S::ALL.iter().filter(|from| legal(**from));
    let from: Vec<_> = from.map(|from| format!("status = '{}'", from.name())).collect();
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
        assert_eq!(may_become(ActionStatus::Approved), "status = 'awaiting_confirmation'");
        assert_eq!(
            may_become(ActionStatus::Expired),
            "(status = 'awaiting_confirmation' OR status = 'approved')"
        );
        assert_eq!(
            may_become(RunStatus::Paused),
            "(status = 'running' OR status = 'awaiting_confirmation')"
        );
        assert_eq!(may_become(SessionStatus::Executing), "status = 'AWAITING_CONFIRMATION'");
        let ends = [ActionStatus::Completed, ActionStatus::InDoubt];
        assert_eq!(
            may_become_any("$2", &ends),
            "(($2 = 'completed' AND status = 'executing') OR ($2 = 'in_doubt' AND status = 'executing'))"
        );
    }
}
