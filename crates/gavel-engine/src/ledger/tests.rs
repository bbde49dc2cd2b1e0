//! One test for each question whose answer depends on the order of entries.

use super::*;
use crate::journal::Journal;
use crate::testing::{catalog_of, function_call, raw, tool_on, turn_of};
use crate::toolset::Toolset;

/// A journal with one call, and these entries about it.
fn journal(entries: impl FnOnce(ActionId) -> Vec<Entry>) -> Journal {
    let catalog = catalog_of([tool_on("mail", "send")]);
    let toolset = Toolset::build(&catalog, &["send".to_owned()], &[]);
    let (turn, calls) = turn_of(&toolset, "", &[function_call("send", "{}")]);
    let id = calls[0].id;
    let mut journal = Journal::from(vec![Entry::ModelTurn { turn, calls }]);
    journal.extend(entries(id));
    journal
}

fn allow(call: ActionId, arguments: &str, by: Option<DecidedBy>) -> Entry {
    let arguments = Arc::from(raw(arguments));
    Entry::Decided {
        call,
        decision: PolicyDecision::Allow { arguments, by },
        lost: Vec::new(),
    }
}

fn require(call: ActionId, arguments: &str) -> Entry {
    Entry::Decided {
        call,
        decision: PolicyDecision::RequireApproval {
            arguments: Arc::from(raw(arguments)),
            by: vec![DecidedBy::SideEffects],
            details: crate::domain::action::Details::default(),
        },
        lost: Vec::new(),
    }
}

fn resolved(call: ActionId, approved: bool, by: Option<&str>) -> Entry {
    Entry::ApprovalResolved {
        call,
        approved,
        by: by.map(str::to_owned),
        reason: None,
        waited: (0, 0),
    }
}

fn started(call: ActionId, at_us: i64) -> Entry {
    Entry::Started {
        call,
        at_us,
        child: None,
    }
}

fn result(call: ActionId, sent: bool, failure: Option<FailureCode>) -> Entry {
    Entry::Result {
        call,
        result: CallResult {
            outcome: match failure {
                None => Ok(Arc::from(raw("1"))),
                Some(code) => Err(CallFailure::new(code, String::new())),
            },
            sent,
            duration_us: 5,
        },
    }
}

fn of<T>(entries: impl FnOnce(ActionId) -> Vec<Entry>, asked: impl FnOnce(Call<'_>) -> T) -> T {
    let journal = journal(entries);
    let call = journal.ledger().calls().next().unwrap();
    asked(call)
}

/// Promise: at most once. A call counts as sent from its last start on, unless that start's result says that it was not
/// sent.
#[test]
fn a_call_that_was_started_and_not_sent_has_no_time() {
    let sent = |entries: fn(ActionId) -> Vec<Entry>| of(entries, |call| call.sent_us());
    assert_eq!(sent(|_| vec![]), None);
    assert_eq!(sent(|id| vec![started(id, 1)]), Some(1));
    assert_eq!(sent(|id| vec![started(id, 1), result(id, true, None)]), Some(1));
    let not_sent = |id| vec![started(id, 1), result(id, false, Some(FailureCode::Unavailable))];
    assert_eq!(of(not_sent, |call| call.sent_us()), None);
    assert!(of(not_sent, |call| call.was_started()));
    let again = |id| [not_sent(id), vec![started(id, 7)]].concat();
    assert_eq!(of(again, |call| call.sent_us()), Some(7));
    assert_eq!(of(again, |call| call.first_started_us()), Some(1));
    assert!(of(again, |call| call.is_in_progress()));
}

/// X-4: a settled result replaces the in-doubt one.
#[test]
fn the_last_result_counts() {
    let in_doubt = |id| vec![started(id, 1), result(id, true, Some(FailureCode::InDoubt))];
    assert!(of(in_doubt, |call| call.is_in_doubt()));
    let settled = |id| [in_doubt(id), vec![result(id, true, None)]].concat();
    assert_eq!(
        of(settled, |call| (call.is_in_doubt(), call.succeeded())),
        (false, true)
    );
    assert!(of(settled, |call| call.has_result_from(3) && !call.has_result_from(4)));
}

/// R-14: an approval is for the arguments of its request; a resolution without an approver is an expiry.
#[test]
fn a_resolution_is_for_the_requested_arguments() {
    let asked = |id| vec![require(id, r#"{"to":"ann"}"#)];
    assert!(of(asked, |call| call.awaits_approval() && call.requires_approval()));
    let resolution = |approved, by| {
        of(
            move |id| [asked(id), vec![resolved(id, approved, by)]].concat(),
            |call| call.resolution(),
        )
    };
    let approved = resolution(true, Some("bob"));
    assert!(matches!(approved, Some(Resolution::Approved(arguments)) if arguments.get() == r#"{"to":"ann"}"#));
    let code = |resolution| match resolution {
        Some(Resolution::Refused(code, _)) => Some(code),
        _ => None,
    };
    assert_eq!(code(resolution(false, Some("bob"))), Some(FailureCode::Rejected));
    assert_eq!(code(resolution(false, None)), Some(FailureCode::Expired));
    assert_eq!(
        code(of(|id| vec![resolved(id, true, None)], |call| call.resolution())),
        Some(FailureCode::Denied)
    );
}

/// R-17: the log records that an approval was needed, also once the approved call is allowed; a later grant replaces it.
#[test]
fn the_policy_outcome_of_an_approved_call_stays_requires_approval() {
    let approved = |id| {
        vec![
            require(id, "{}"),
            resolved(id, true, Some("bob")),
            allow(id, "{}", None),
        ]
    };
    let effect = |entries: Journal| {
        entries
            .ledger()
            .calls()
            .next()
            .unwrap()
            .policy()
            .map(|policy| policy.effect)
    };
    assert_eq!(effect(journal(approved)), Some(Effect::RequireApproval));
    let grant = GrantId::new();
    let granted = |id| {
        [
            approved(id),
            vec![allow(id, "{}", Some(DecidedBy::Grant(grant.to_string().into())))],
        ]
        .concat()
    };
    assert_eq!(effect(journal(granted)), Some(Effect::Allow));
    assert_eq!(of(granted, |call| call.grant()), Some(grant));
    let refused = |id| [granted(id), vec![allow(id, "{}", None)]].concat();
    assert_eq!(of(refused, |call| call.grant()), None, "the last decision counts");
}
