//! Runs that start to wait for an approval.

use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gavel::adapters::store::{Finding, Store};
use gavel::domain::action::{ActionStatus, Resolution};
use gavel::domain::agent_run::RunStatus;
use gavel::domain::ids::{ActionId, ApprovalId, GrantId};
use gavel::domain::tool::FailureCode;
use gavel::ports::actions::{Actions, Resolve, Resolved, Settle};
use gavel::ports::commit::{ActionOutcome, Committed, NewAction, Recorder};
use gavel::ports::records::OpenCall;
use gavel::ports::runs::{Lease, NewRun, Runs};
use metrics_exporter_prometheus::PrometheusBuilder;

use crate::audit::{asked, verify, whole};
use crate::commits::{Append, Writes, entries, finished, suspend};
use crate::settling::in_doubt;
use crate::support::{T0, TestDb, begin, intent, new_run, tool};

/// A run that waits for the approval of this one call.
pub(crate) async fn suspended(store: &Store, run: &NewRun, lease: Lease) -> Resolve {
    let (action, approval) = (ActionId::new(), ApprovalId::new());
    let suspend = suspend(lease, run.id, vec![asked(action, approval)]);
    assert_eq!(store.commit(suspend).await.unwrap(), Committed::Written);
    Resolve {
        approval,
        action,
        root: run.id,
        resolution: Resolution::ApproveOnce,
        reason: Some("fine by me".into()),
        by: "ann".into(),
        grant: None,
        words: "yes".into(),
    }
}

/// X-4: if a run is cancelled on one process just before it starts to wait on another, it ends and does not wait for an
/// answer.
pub(crate) async fn a_cancellation_is_not_lost_when_the_run_starts_to_wait(db: TestDb) {
    let store = db.open().await;
    let run = new_run();
    let lease = begin(&store, &run).await;
    store.cancel(run.id, "ann").await.unwrap();
    suspended(&store, &run, lease).await;
    assert_eq!(db.line("SELECT status FROM agent_run").await, "running");
    assert!(store.take(run.id).await.unwrap().is_some(), "a worker claims it");
    let other = new_run();
    let lease = begin(&store, &other).await;
    suspended(&store, &other, lease).await;
    assert!(
        store.take(other.id).await.unwrap().is_none(),
        "a run that is not cancelled waits"
    );
}

/// R-14, R-17: the same answer again returns the stored one, whatever its reason. An approved action that could not
/// start in time reports that, and keeps its approver and the reason.
pub(crate) async fn a_resolution_never_changes(db: TestDb) {
    let store = db.open().await;
    let run = new_run();
    let lease = begin(&store, &run).await;
    let yes = suspended(&store, &run, lease).await;
    assert_eq!(store.resolve(yes.clone()).await.unwrap(), Resolved::Done);
    for reason in [Some("fine by me".into()), None, Some("as I said".into())] {
        let again = Resolve { reason, ..yes.clone() };
        assert_eq!(store.resolve(again).await.unwrap(), Resolved::Again);
    }
    let other = Resolve {
        by: "bob".into(),
        ..yes.clone()
    };
    assert!(matches!(store.resolve(other).await.unwrap(), Resolved::Late(..)));
    db.run("UPDATE agent_action SET expires_at = created_at").await;
    let lease = store
        .take(run.id)
        .await
        .unwrap()
        .expect("its approval request was resolved");
    assert_eq!(begins(&store, lease, &yes).await, Committed::ApprovalGone);
    let row = "SELECT status, resolution, resolved_by, reason FROM agent_action";
    assert_eq!(db.line(row).await, "expired approve_once ann fine by me");
    let why = "SELECT COUNT(*) FROM audit WHERE kind = 'approval_expired' AND detail LIKE '%start_timed_out%'";
    assert_eq!(db.line(why).await, "1");
}

/// The metrics of a process that uses this database, once it has read what waits for a person.
fn measured(db: &TestDb) -> String {
    let (config, recorder) = (db.config(), PrometheusBuilder::new().build_recorder());
    // On its own thread: other tests of this process measure other databases.
    let measured = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        metrics::with_local_recorder(&recorder, || {
            runtime.unwrap().block_on(async {
                let store = Store::open(config).await.unwrap();
                let is_read = || !recorder.handle().render().contains("gavel_actions_in_doubt NaN");
                while !is_read() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                store.shutdown().await;
                recorder.handle().render()
            })
        })
    });
    measured.join().unwrap()
}

/// The value of a line.
fn value(metrics: &str, name: &str) -> f64 {
    let mut lines = metrics.lines().filter_map(|line| line.strip_prefix(name));
    lines.find_map(|rest| rest.trim().parse().ok()).unwrap()
}

/// Of all tenants, so that an alert needs no label for them.
pub(crate) async fn metrics_say_how_many_actions_wait_for_a_person_and_since_when(db: TestDb) {
    let store = db.open().await;
    let none = measured(&db);
    for name in [
        "gavel_approvals_waiting ",
        "gavel_approvals_oldest_seconds ",
        "gavel_actions_in_doubt ",
        "gavel_actions_in_doubt_oldest_seconds ",
    ] {
        assert!(value(&none, name).abs() < f64::EPSILON, "{none}");
    }
    for _ in 0..2 {
        let run = new_run();
        let lease = begin(&store, &run).await;
        suspended(&store, &run, lease).await;
    }
    let run = new_run();
    let lease = begin(&store, &run).await;
    in_doubt(&store, lease, &run, 1).await;
    let ago = |seconds| SystemTime::now().duration_since(UNIX_EPOCH).unwrap() - Duration::from_secs(seconds);
    db.run(&format!(
        "UPDATE agent_action SET created_at = {} WHERE status = 'awaiting_confirmation'; \
         UPDATE agent_action SET created_at = 0, completed_at = {} WHERE status = 'in_doubt'",
        ago(3600).as_micros(),
        ago(7200).as_micros()
    ))
    .await;
    let found = measured(&db);
    for (name, at_least, below) in [
        ("gavel_approvals_waiting ", 2.0, 2.1),
        ("gavel_approvals_oldest_seconds ", 3600.0, 3900.0),
        ("gavel_actions_in_doubt ", 1.0, 1.1),
        ("gavel_actions_in_doubt_oldest_seconds ", 7200.0, 7500.0),
    ] {
        let value = value(&found, name);
        assert!((at_least..below).contains(&value), "{name}{value}");
    }
}

/// R-14: an answer at the last moment counts like any other.
pub(crate) async fn an_action_approved_in_time_has_time_to_start(db: TestDb) {
    let store = db.open().await;
    let run = new_run();
    let lease = begin(&store, &run).await;
    let yes = suspended(&store, &run, lease).await;
    let soon = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_millis(500);
    db.run(&format!("UPDATE agent_action SET expires_at = {}", soon.as_micros()))
        .await;
    assert_eq!(store.resolve(yes.clone()).await.unwrap(), Resolved::Done);
    tokio::time::sleep(Duration::from_millis(600)).await;
    let lease = store
        .take(run.id)
        .await
        .unwrap()
        .expect("its approval request was resolved");
    assert_eq!(begins(&store, lease, &yes).await, Committed::Written);
}

/// R-15, R-18: only a grant that a person created counts; the verification reports any other.
pub(crate) async fn a_forged_grant_is_found(db: TestDb) {
    let store = db.open().await;
    let run = new_run();
    let lease = begin(&store, &run).await;
    let yes = suspended(&store, &run, lease).await;
    let always = always(yes);
    let id = always.grant.unwrap().to_string();
    assert_eq!(store.resolve(always).await.unwrap(), Resolved::Done);
    whole(&db).await;
    for forged in [
        r#"recipients = '{"to":["eve@example.com"]}'"#,
        "user_id = 'eve'",
        "tool = 'wipe'",
        "tool_digest = 'other'",
        "id = 'forged'",
        "id = 'forged', created_at = 0",
    ] {
        db.run("CREATE TABLE grant_was AS SELECT * FROM approval_grant").await;
        db.run(&format!("UPDATE approval_grant SET {forged}")).await;
        let grant_id = if forged.starts_with("id") {
            "forged".to_owned()
        } else {
            id.clone()
        };
        assert_eq!(
            verify(&db, Vec::new()).await,
            [Finding::GrantUnrecorded { grant_id }],
            "{forged}"
        );
        db.run("DELETE FROM approval_grant; INSERT INTO approval_grant SELECT * FROM grant_was; DROP TABLE grant_was")
            .await;
    }
    whole(&db).await;
    // Another call than the granted one starts under a temporarily altered grant, which is restored afterwards.
    let run = new_run();
    let lease = begin(&store, &run).await;
    let sent = OpenCall {
        tool: Some(tool("wipe")),
        created_at: T0,
        ..intent(&run.decision, 1)
    };
    let action = NewAction {
        approval: None,
        grant: GrantId::parse(&id),
        tool: (&*tool("wipe")).into(),
        ..asked(sent.id, ApprovalId::new())
    };
    let append = Append {
        intents: vec![sent.clone()],
        actions: vec![action],
        ..entries(lease, 1..=1)
    };
    assert_eq!(store.append(append).await.unwrap(), Committed::Written);
    let found = verify(&db, Vec::new()).await;
    assert!(
        matches!(&found[..], [Finding::Unapproved { action_id, .. }] if *action_id == sent.id.to_string()),
        "{found:?}"
    );
}

fn always(yes: Resolve) -> Resolve {
    Resolve {
        resolution: Resolution::ApproveAndAlwaysAllowRecipient,
        grant: Some(GrantId::new()),
        ..yes
    }
}

/// R-15: if two people create the same grant at once, for two runs and in two processes, both succeed, and there is one
/// grant.
pub(crate) async fn the_same_grant_created_twice_at_once_is_one(db: TestDb) {
    let stores = [db.open().await, db.open().await];
    for _ in 0..10 {
        db.run("UPDATE approval_grant SET revoked_at = created_at, revoked_by = 'ann'")
            .await;
        let mut answers = Vec::new();
        for store in &stores {
            let run = new_run();
            let lease = begin(store, &run).await;
            answers.push(always(suspended(store, &run, lease).await));
        }
        let [one, other] = [0, 1].map(|n| stores[n].resolve(answers[n].clone()));
        let (one, other) = tokio::join!(one, other);
        assert_eq!((one.unwrap(), other.unwrap()), (Resolved::Done, Resolved::Done));
        let live = "SELECT COUNT(*) FROM approval_grant WHERE revoked_at IS NULL";
        assert_eq!(db.line(live).await, "1");
    }
    let used = "SELECT COUNT(*) FROM agent_action a JOIN approval_grant g ON g.id = a.grant_id";
    assert_eq!(db.line(used).await, "20");
    let given = "SELECT COUNT(*) FROM audit WHERE kind = 'grant_created'";
    assert_eq!(db.line(given).await, "10");
}

/// An operation that can be tried on an action.
#[derive(Clone, Copy, Debug)]
enum Try {
    Resolve(Resolution),
    Begin,
    End(ActionStatus),
    Expire,
    Settle(bool),
    EndRun,
}

const TRIES: [Try; 10] = [
    Try::Resolve(Resolution::ApproveOnce),
    Try::Resolve(Resolution::Reject),
    Try::Begin,
    Try::End(ActionStatus::Completed),
    Try::End(ActionStatus::Failed),
    Try::End(ActionStatus::InDoubt),
    Try::Expire,
    Try::EndRun,
    Try::Settle(true),
    Try::Settle(false),
];

/// R-states: any operation on an action in any state, with its run in progress or ended, causes only legal transitions.
pub(crate) async fn any_operation_causes_only_legal_transitions(db: TestDb) {
    let store = db.open().await;
    let mut seen = std::collections::BTreeSet::new();
    for from in ActionStatus::ALL
        .iter()
        .copied()
        .filter(|from| *from != ActionStatus::Planned)
    {
        let run = new_run();
        let lease = begin(&store, &run).await;
        let yes = suspended(&store, &run, lease).await;
        assert_eq!(store.resolve(yes.clone()).await.unwrap(), Resolved::Done);
        let lease = store.take(run.id).await.unwrap().unwrap();
        let resolution = match from {
            ActionStatus::AwaitingConfirmation | ActionStatus::Expired => "NULL",
            ActionStatus::Rejected => "'reject'",
            _ => "'approve_once'",
        };
        let code = match from {
            ActionStatus::Failed | ActionStatus::InDoubt => "'tool_error'",
            _ => "NULL",
        };
        for tried in TRIES {
            db.run(&format!(
                "UPDATE agent_action SET status = '{}', resolution = {resolution}, error_code = {code}, \
                 resolved_by = CASE WHEN {resolution} IS NULL THEN NULL ELSE 'eve' END, \
                 resolved_at = CASE WHEN {resolution} IS NULL THEN NULL ELSE created_at END, \
                 expires_at = created_at + 3600000000, settled_by = NULL, settled_at = NULL WHERE id = '{}'",
                from.as_str(),
                yes.action
            ))
            .await;
            let over = "UPDATE agent_action SET expires_at = created_at";
            // An operation may be refused; only its effect counts.
            match tried {
                Try::Resolve(resolution) => drop(
                    store
                        .resolve(Resolve {
                            resolution,
                            ..yes.clone()
                        })
                        .await,
                ),
                Try::Begin => {
                    begins(&store, lease, &yes).await;
                }
                Try::End(status) => {
                    let failed = (status != ActionStatus::Completed).then(|| (FailureCode::ToolError, "no".into()));
                    let ended = Append {
                        outcomes: vec![ActionOutcome {
                            id: yes.action,
                            status,
                            error: failed,
                            words: None,
                        }],
                        ..entries(lease, 2..=2)
                    };
                    drop(store.append(ended).await);
                }
                Try::Expire => {
                    db.run(over).await;
                    drop(store.expire(10).await);
                    begins(&store, lease, &yes).await;
                }
                Try::EndRun => drop(
                    store
                        .finish(finished(lease, &run, RunStatus::Completed, Vec::new()))
                        .await,
                ),
                Try::Settle(happened) => {
                    let settle = Settle {
                        words: "said".into(),
                        action: yes.action,
                        root: run.id,
                        happened,
                        by: "ann".into(),
                    };
                    drop(store.settle(settle).await);
                }
            }
            let sql = format!("SELECT status FROM agent_action WHERE id = '{}'", yes.action);
            let to = ActionStatus::parse(&db.line(&sql).await).unwrap();
            assert!(from == to || may(from, to), "{tried:?}: {from:?} → {to:?}");
            if from != to {
                seen.insert((from.as_str(), to.as_str()));
            }
        }
    }
    let legal = |from: ActionStatus| ActionStatus::ALL.iter().filter(move |to| may(from, **to));
    let all = ActionStatus::ALL.iter().filter(|from| **from != ActionStatus::Planned);
    let all: std::collections::BTreeSet<_> = all
        .flat_map(|from| legal(*from).map(|to| (from.as_str(), to.as_str())))
        .collect();
    assert_eq!(seen, all, "and each of them does");
}

/// Whether a transition is legal, by itself or by a person's settlement: a settlement is final if no run can be resumed
/// with another.
fn may(from: ActionStatus, to: ActionStatus) -> bool {
    from.may_become(to) || (from == ActionStatus::InDoubt && from.may_be_settled_as(to))
}

async fn begins(store: &Store, lease: Lease, yes: &Resolve) -> Committed {
    let begins = Append {
        asked: vec![yes.action],
        ..entries(lease, 1..=1)
    };
    store.append(begins).await.unwrap()
}
