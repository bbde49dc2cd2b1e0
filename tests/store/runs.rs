//! Runs of agents: created, written to, ended, read back.

use std::sync::Arc;
use std::time::Duration;

use gavel::adapters::store::{ContentMode, Store, StoreConfig};
use gavel::api::runs::{AgentRun, InDoubtCall};
use gavel::domain::action::Details;
use gavel::domain::agent_run::{RunStatus, StopReason};
use gavel::domain::ids::{ActionId, GrantId, ProjectId, RunId, TenantId, ThreadId, UserId};
use gavel::ports::actions;
use gavel::ports::claims::Claimed;
use gavel::ports::commit::{Commit, Committed, NewAction, Recorder as _};
use gavel::ports::records::{ListQuery, OpenCall, QueryError, RecordError};
use gavel::ports::runs::{InThread, Lease, NewRun, Origin, Parent, Reopen, Runs, Started};
use serde_json::json;

use crate::commits::{Append, FinishedRun, Writes, by_caller, claim, entries, finished, key, reopen};
use crate::support::{
    T0, TestDb, begin, called_run, closed, done, entry, eventually, intent, new_run, open_decision, queued_run, raw,
    tenant,
};

const DECISION: &str = "SELECT status, surface, decision_type, outcome_category, intent FROM decision_log";

fn project() -> ProjectId {
    ProjectId::parse("default").unwrap()
}

async fn shown(store: &Store, run: RunId) -> AgentRun {
    store.get(&tenant(), None, run).await.unwrap().unwrap()
}

fn unavailable<T: std::fmt::Debug>(result: Result<T, RecordError>) {
    assert!(matches!(result, Err(RecordError::Unavailable(_))), "{result:?}");
}

/// The action of a call that requires no approval.
fn unasked(intent: &OpenCall, grant: Option<GrantId>) -> NewAction {
    NewAction {
        id: intent.id,
        approval: None,
        sequence: intent.sequence,
        tool: (&**intent.tool.as_ref().unwrap()).into(),
        arguments: Arc::clone(&intent.arguments),
        model: "gemini-test".into(),
        policy: None,
        details: Details::default(),
        grant,
        words: "".into(),
    }
}

/// R-15: a grant counts each call that started under it once, even if the commit is repeated after a lost answer, and
/// even if the grant was revoked meanwhile. A revoked grant starts no other call, and nothing of that commit is
/// written.
pub(crate) async fn a_use_of_a_grant_is_counted_once(db: TestDb) {
    let store = db.open().await;
    let run = new_run();
    let lease = begin(&store, &run).await;
    let grant = GrantId::new();
    db.run(&format!(
        "INSERT INTO approval_grant (id, tenant, user_id, server, tool, recipients, tool_digest, action_id, created_by, \
         created_at) VALUES ('{grant}', 'default', 'ann', 'tasks', 'add_task', '{{}}', 'd', 'a', 'ann', 0)"
    ))
    .await;
    let begins = |number: u64| {
        let intent = intent(&run.decision, u32::try_from(number).unwrap());
        Append {
            actions: vec![unasked(&intent, Some(grant))],
            intents: vec![intent],
            ..entries(lease, number..=number)
        }
    };
    let (first, second) = (begins(1), begins(2));
    for revoked in [false, true] {
        if revoked {
            let taken_back = actions::Actions::revoke(&*store, &tenant(), None, grant, "ann").await;
            assert!(taken_back.unwrap());
        }
        assert_eq!(store.append(first.clone()).await.unwrap(), Committed::Written);
        assert_eq!(db.line("SELECT uses FROM approval_grant").await, "1");
    }
    assert_eq!(store.append(second).await.unwrap(), Committed::ApprovalGone);
    assert_eq!(db.line("SELECT uses FROM approval_grant").await, "1");
    let counts = "SELECT (SELECT COUNT(*) FROM agent_action), (SELECT COUNT(*) FROM agent_run_entry), \
                  (SELECT COUNT(*) FROM tool_invocation_log)";
    assert_eq!(db.line(counts).await, "1 1 1");
}

/// R-15: a grant whose row cannot be read covers no call. It is listed beside the others, and can be revoked.
pub(crate) async fn an_unreadable_grant_is_listed_and_can_be_revoked(db: TestDb) {
    let store = db.open().await;
    let (broken, whole) = (GrantId::new(), GrantId::new());
    for (grant, recipients) in [
        (broken, r#"["bob@example.com"]"#),
        (whole, r#"{"to": ["bob@example.com"]}"#),
    ] {
        db.run(&format!(
            "INSERT INTO approval_grant (id, tenant, user_id, server, tool, recipients, tool_digest, action_id, created_by, \
             created_at) VALUES ('{grant}', 'default', 'ann', 'tasks', 'add_task', '{recipients}', 'd', '{grant}', 'ann', 0)"
        ))
        .await;
    }
    let ann = UserId::parse("ann").unwrap();
    let live = actions::Actions::granted(&*store, &tenant(), &ann, "tasks", "add_task").await;
    let live = live.unwrap();
    let covered = |grant| {
        live.iter()
            .find(|live| live.grant_id == grant)
            .unwrap()
            .recipients
            .clone()
    };
    assert_eq!(
        (covered(broken), covered(whole)),
        (vec![], vec!["bob@example.com".to_owned()])
    );
    let query = ListQuery {
        page_size: 10,
        ..ListQuery::default()
    };
    let listed = actions::Actions::grants(&*store, &tenant(), &query).await;
    assert_eq!(listed.unwrap().items.len(), 2);
    let taken_back = actions::Actions::revoke(&*store, &tenant(), None, broken, "ann").await;
    assert!(taken_back.unwrap());
}

/// R-15: a grant for as many recipients as a policy allows, each of the maximum length.
pub(crate) async fn a_grant_for_many_long_addresses_is_stored(db: TestDb) {
    let store = db.open().await;
    let many: Vec<_> = (0..100)
        .map(|_| format!("{0}.{0}.{0}@example.com", uuid::Uuid::new_v4().simple()))
        .collect();
    let (grant, recipients) = (GrantId::new(), json!({ "to": many }));
    let insert = format!(
        "INSERT INTO approval_grant (id, tenant, user_id, server, tool, recipients, tool_digest, action_id, created_by, \
         created_at) VALUES ('{grant}', 'default', 'ann', 'tasks', 'add_task', '{recipients}', 'd', 'a', 'ann', 0)"
    );
    db.run(&insert).await;
    // The same grant exists once.
    let again = insert.replace(&grant.to_string(), &GrantId::new().to_string());
    db.run(&format!("{again} ON CONFLICT DO NOTHING")).await;
    let ann = UserId::parse("ann").unwrap();
    let live = actions::Actions::granted(&*store, &tenant(), &ann, "tasks", "add_task").await;
    assert_eq!(
        live.unwrap()
            .iter()
            .map(|live| live.recipients.len())
            .collect::<Vec<_>>(),
        [100]
    );
}

/// X-4: a run is `running`, with its decision, before it does anything. All data for resuming and showing it reads back
/// as written.
pub(crate) async fn a_run_reads_back_as_it_was_written(db: TestDb) {
    let store = db.open().await;
    let run = new_run();
    let lease = begin(&store, &run).await;
    assert_eq!((lease.run, lease.fence), (run.id, 1));
    assert_eq!(db.line(DECISION).await, "open agent - - -");
    let owner = db.line("SELECT owner FROM decision_log").await;
    assert_eq!(owner, run.id.to_string());

    let intent = intent(&run.decision, 1);
    let more = Append {
        intents: vec![intent.clone()],
        ..entries(lease, 1..=70)
    };
    assert_eq!(store.append(more).await.unwrap(), Committed::Written);
    assert_eq!(db.line("SELECT status FROM tool_invocation_log").await, "started");
    let page = store.journal(run.id, 68, 10).await.unwrap();
    assert_eq!(page, [entry(69), entry(70)]);
    let page = store.journal(run.id, 0, 3).await.unwrap();
    assert_eq!(page, [entry(1), entry(2), entry(3)]);
    // The page is limited by bytes and includes the entry that exceeds them, so it has at least one.
    let size = |n| entry(n).body.len() + run.id.to_string().len();
    let (one, three) = (size(1), (1..=3).map(size).sum::<usize>());
    for (bytes, pages) in [(0, 1), (one - 1, 1), (one, 2), (three - 1, 3), (three, 4)] {
        let page = store.events(run.id, 0, 10, bytes).await.unwrap();
        let page: Vec<_> = page.into_iter().map(|logged| logged.entry).collect();
        assert_eq!(page, (1..=pages).map(entry).collect::<Vec<_>>(), "{bytes}");
    }

    let stored = store.load(run.id).await.unwrap().unwrap();
    assert_eq!(
        (stored.id, stored.end.status, stored.takes),
        (run.id, RunStatus::Running, 1)
    );
    assert_eq!(
        (&stored.decision.tenant, stored.decision.user.as_str(), &stored.project),
        (&tenant(), "ann", &project())
    );
    assert_eq!((&*stored.agent, stored.version), ("reporter", Some(3)));
    assert_eq!(format!("{:?}", stored.decision), format!("{:?}", run.decision));
    assert_eq!(stored.snapshot, run.snapshot);
    assert_eq!(
        (stored.input.get(), stored.settings.get()),
        (run.input.get(), run.settings.get())
    );
    assert_eq!(
        (stored.origin, stored.attempt, stored.cancel),
        (Origin::Trigger, 0, false)
    );
    assert_eq!((stored.started_at, stored.end.steps), (Some(T0), 0));
    assert_eq!(shown(&store, run.id).await.status, RunStatus::Running);
    assert!(store.load(RunId::new()).await.unwrap().is_none());

    let in_doubt = InDoubtCall {
        action_id: ActionId::new(),
        tool: "add_task".into(),
        parameters: json!({"z": 1, "a": [2.5]}),
    };
    let end = FinishedRun {
        output: Some(raw(r#"{"z":1, "a":2}"#)),
        stop_reason: Some(StopReason::InDoubt),
        recovered_from: Some(StopReason::Crash),
        in_doubt: vec![in_doubt.clone()],
        entries: vec![entry(71)],
        ..finished(lease, &run, RunStatus::Paused, vec![done(&intent)])
    };
    assert_eq!(store.finish(end).await.unwrap(), Committed::Written);
    assert_eq!(
        serde_json::to_value(shown(&store, run.id).await).unwrap(),
        json!({
            "id": run.id, "project_id": "default", "agent_id": "reporter", "parent_run_id": null,
            "status": "paused", "summary": "It was mom.", "outcome_category": "SUCCESS:TASK_COMPLETED", "output": {"z": 1, "a": 2}, "error_message": "cut short",
            "steps": 2, "created_at": "2026-11-20T00:00:00.000001Z", "started_at": "2026-11-20T00:00:00.000001Z",
            "completed_at": "2026-11-20T00:00:01.234568Z", "duration_ms": 1234, "definition_hash": "c0ffee",
            "definition_version": 3, "attempts": [], "recovered_from": "crash",
            "stop_reason": "in_doubt", "in_doubt": [in_doubt],
            "usage": {"input_tokens": 11, "output_tokens": 7, "thought_tokens": 3, "cached_tokens": 1},
        })
    );
    let stored = store.load(run.id).await.unwrap().unwrap();
    assert_eq!(
        (stored.end.status, stored.end.steps, stored.end.in_doubt),
        (RunStatus::Paused, 2, vec![in_doubt])
    );
    assert_eq!(stored.end.output.unwrap().get(), r#"{"z":1, "a":2}"#);
    assert_eq!(stored.end.summary.as_deref(), Some("It was mom."));
    assert_eq!(stored.end.error_message.as_deref(), Some("cut short"));
    assert_eq!(stored.end.stop_reason, Some(StopReason::InDoubt));
    assert_eq!(store.journal(run.id, 70, 10).await.unwrap(), [entry(71)]);
    assert_eq!(
        db.line(DECISION).await,
        "closed agent INVOKE_TOOL SUCCESS:TASK_COMPLETED add_task"
    );
    assert_eq!(db.line("SELECT status FROM tool_invocation_log").await, "completed");
}

/// Each operation, repeated after a lost answer, returns the same and changes nothing.
pub(crate) async fn a_repeated_operation_has_one_effect(db: TestDb) {
    let store = db.open().await;
    let run = NewRun {
        claim: Some(key("scope", "body")),
        ..new_run()
    };
    let lease = begin(&store, &run).await;
    assert_eq!(begin(&store, &run).await, lease);
    let intent = intent(&run.decision, 1);
    for numbers in [1..=2, 1..=2, 2..=3] {
        let more = Append {
            intents: vec![intent.clone()],
            ..entries(lease, numbers)
        };
        assert_eq!(store.append(more).await.unwrap(), Committed::Written);
    }
    let child = called_run(lease, run.id);
    assert_eq!(begin(&store, &child).await, lease);
    assert_eq!(begin(&store, &child).await, lease);
    // The caller may have lost the id, but has the same call.
    let again = NewRun {
        origin: child.origin.clone(),
        ..new_run()
    };
    assert_eq!(store.create(again).await.unwrap(), Started::Before(child.id));

    for (run, calls) in [(&child, vec![]), (&run, vec![done(&intent)])] {
        let end = FinishedRun {
            entries: vec![entry(4)],
            ..finished(lease, run, RunStatus::Completed, calls)
        };
        assert_eq!(store.finish(end.clone()).await.unwrap(), Committed::Written);
        let rows = db.rows("SELECT * FROM agent_run ORDER BY id").await;
        assert_eq!(store.finish(end.clone()).await.unwrap(), Committed::Written);
        assert_eq!(db.rows("SELECT * FROM agent_run ORDER BY id").await, rows);
        // Another end of the same run is not a repetition.
        let other = FinishedRun {
            status: RunStatus::Cancelled,
            ..end
        };
        assert_eq!(store.finish(other).await.unwrap(), Committed::LeaseLost);
        assert_eq!(db.rows("SELECT * FROM agent_run ORDER BY id").await, rows);
    }
    assert_eq!(db.count("SELECT COUNT(*) FROM agent_run").await, 2);
    assert_eq!(db.count("SELECT COUNT(*) FROM decision_log").await, 2);
    assert_eq!(db.count("SELECT COUNT(*) FROM agent_run_entry").await, 5);
    assert_eq!(db.count("SELECT COUNT(*) FROM tool_invocation_log").await, 1);
    assert_eq!(db.count("SELECT COUNT(*) FROM agent_snapshot").await, 1);
}

/// Promise: recorded. The end of a run is its row, its journal and its decision with all calls, or nothing of these.
pub(crate) async fn a_run_ends_completely_or_not_at_all(db: TestDb) {
    let store = db.open().await;
    let (run, neighbour) = (new_run(), new_run());
    let lease = begin(&store, &run).await;
    let (announced, another) = (intent(&run.decision, 1), intent(&run.decision, 1));
    let more = Append {
        intents: vec![announced.clone()],
        ..entries(lease, 1..=1)
    };
    store.append(more).await.unwrap();
    let before = db.rows("SELECT * FROM agent_run").await;
    let beside = begin(&store, &neighbour).await;
    // A call that differs from the announced one in its place: the database refuses it, with everything in the commit.
    let end = |call| FinishedRun {
        entries: vec![entry(2)],
        ..finished(lease, &run, RunStatus::Completed, vec![done(call)])
    };
    let (refused, other) = tokio::join!(
        store.finish(end(&another)),
        store.finish(finished(beside, &neighbour, RunStatus::Completed, vec![])),
    );
    unavailable(refused);
    assert_eq!(other.unwrap(), Committed::Written, "its neighbor is unaffected");
    let rows = format!("SELECT * FROM agent_run WHERE id = '{}'", run.id);
    assert_eq!(db.rows(&rows).await, before);
    assert_eq!(store.journal(run.id, 0, 9).await.unwrap(), [entry(1)]);
    assert_eq!(store.finish(end(&announced)).await.unwrap(), Committed::Written);
    assert_eq!(shown(&store, run.id).await.status, RunStatus::Completed);
}

/// The end of a run that the unavailable store could not write is written when it is back, without a request.
pub(crate) async fn a_failed_end_of_a_run_is_written_later(db: TestDb) {
    let store = Store::open(StoreConfig {
        write_deadline: Duration::from_millis(300),
        close_deadline: Duration::from_millis(500),
        ..db.config()
    })
    .await
    .unwrap();
    let run = new_run();
    let lease = begin(&store, &run).await;
    let intent = intent(&run.decision, 1);
    let more = Append {
        intents: vec![intent.clone()],
        ..entries(lease, 1..=1)
    };
    store.append(more).await.unwrap();
    let lock = db.lock().await;
    unavailable(
        store
            .finish(finished(lease, &run, RunStatus::Completed, vec![done(&intent)]))
            .await,
    );
    lock.release().await;
    eventually("ended", async || {
        shown(&store, run.id).await.status == RunStatus::Completed
    })
    .await;
    assert_eq!(db.line("SELECT status FROM tool_invocation_log").await, "completed");
}

/// Promise: recorded. A caller with the answer "not recorded" has no run. If the run was created all the same, it ends
/// as not started, and its key is free again.
pub(crate) async fn a_run_created_without_an_answer_is_not_started(db: TestDb) {
    let store = db.open().await;
    let unacknowledged = "SELECT COUNT(*) FROM agent_run WHERE error_message LIKE 'not begun%'";
    for attempt in 0..40 {
        let lock = db.lock().await;
        let run = NewRun {
            queued: attempt % 2 == 0,
            entries: vec![entry(1)],
            claim: Some(key("scope", "body")),
            ..new_run()
        };
        // The caller stops waiting while the writer waits for the lock.
        let creating = tokio::time::timeout(Duration::from_millis(50), store.create(run));
        assert!(creating.await.is_err());
        lock.release().await;
        // Writes are made in order, so after this one the earlier one is done.
        store.close(closed(open_decision(), vec![], false)).await.unwrap();
        eventually("nothing is left of it", async || {
            db.count("SELECT COUNT(*) FROM agent_run WHERE completed_at IS NULL")
                .await
                == 0
                && db.count("SELECT COUNT(*) FROM idempotency_key").await == 0
                && db
                    .count("SELECT COUNT(*) FROM decision_log WHERE status = 'open'")
                    .await
                    == 0
        })
        .await;
        if db.count(unacknowledged).await > 1 {
            break;
        }
    }
    assert!(
        db.count(unacknowledged).await > 1,
        "the writer never had it when the caller stopped waiting"
    );
    assert_eq!(
        db.count("SELECT COUNT(*) FROM decision_log WHERE error_detail LIKE 'not begun%'")
            .await,
        db.count(unacknowledged).await
    );
}

/// The worker of a queued run writes its first entries itself.
pub(crate) async fn the_first_entries_of_a_run_are_written_if_its_creator_claims_it(db: TestDb) {
    let store = db.open().await;
    for (queued, entries) in [(false, vec![entry(1), entry(2)]), (true, vec![])] {
        let run = NewRun {
            queued,
            entries: vec![entry(1), entry(2)],
            ..new_run()
        };
        // An op may be repeated.
        for _ in 0..2 {
            store.create(run.clone()).await.unwrap();
        }
        assert_eq!(store.journal(run.id, 0, 10).await.unwrap(), entries, "{queued}");
    }
}

/// The same key and body give the same run, however often and on any process; another body is refused.
pub(crate) async fn one_key_makes_one_run(db: TestDb) {
    let stores = [db.open().await, db.open().await];
    let asked = |scope: &str, fingerprint: &str| NewRun {
        claim: Some(key(scope, fingerprint)),
        ..queued_run()
    };
    assert_eq!(stores[0].claimed(&key("scope", "body")).await.unwrap(), None);
    let mut racing = tokio::task::JoinSet::new();
    for n in 0..20 {
        let (store, run) = (Arc::clone(&stores[n % 2]), asked("scope", "body"));
        racing.spawn(async move { (run.id, store.create(run).await.unwrap()) });
    }
    let (mut made, mut replayed) = (Vec::new(), Vec::new());
    for (id, created) in racing.join_all().await {
        match created {
            Started::Now(None) => made.push(id),
            Started::Before(of) => replayed.push(of),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((made.len(), replayed.len()), (1, 19));
    assert!(replayed.iter().all(|run| *run == made[0]));
    for store in &stores {
        let claimed = store.claimed(&key("scope", "body")).await.unwrap();
        assert_eq!(claimed, Some(Claimed::Run(made[0])));
        let claimed = store.claimed(&key("scope", "other")).await.unwrap();
        assert_eq!(claimed, Some(Claimed::Mismatch));
    }
    let mismatch = stores[0].create(asked("scope", "other")).await.unwrap();
    assert_eq!(mismatch, Started::Mismatch);
    for table in ["agent_run", "decision_log", "idempotency_key"] {
        assert_eq!(db.count(&format!("SELECT COUNT(*) FROM {table}")).await, 1, "{table}");
    }
    // Expired, and its run has ended.
    stores[0].cancel(made[0], "ann").await.unwrap();
    db.run("UPDATE idempotency_key SET expires_at = created_at - 1").await;
    assert_eq!(stores[0].claimed(&key("scope", "body")).await.unwrap(), None);
    let again = stores[0].create(asked("scope", "other")).await.unwrap();
    assert_eq!(again, Started::Now(None));
    // The claims of chats are in the same table.
    stores[0].claims(claim("another", "body")).await.unwrap();
    assert_eq!(db.count("SELECT COUNT(*) FROM idempotency_key").await, 2);
}

/// Never a second run: a claim is valid for 24 h, and until its run has ended.
pub(crate) async fn a_claim_is_valid_until_its_run_has_ended(db: TestDb) {
    let store = db.open().await;
    let asked = |scope: &str| NewRun {
        claim: Some(key(scope, "body")),
        ..new_run()
    };
    let (working, waiting, over) = (
        asked("working"),
        NewRun {
            queued: true,
            ..asked("waiting")
        },
        asked("over"),
    );
    let lease = begin(&store, &working).await;
    assert_eq!(store.create(waiting.clone()).await.unwrap(), Started::Now(None));
    let end = finished(begin(&store, &over).await, &over, RunStatus::Completed, vec![]);
    assert_eq!(store.finish(end).await.unwrap(), Committed::Written);
    store.claims(claim("chat", "body")).await.unwrap();
    store.shutdown().await;
    db.run("UPDATE idempotency_key SET created_at = 1, expires_at = 2")
        .await;

    // It prunes at its start.
    let store = db.open().await;
    eventually("it has pruned", async || {
        db.count("SELECT COUNT(*) FROM idempotency_key WHERE scope IN ('chat', 'over')")
            .await
            == 0
    })
    .await;
    for (scope, run) in [("working", working.id), ("waiting", waiting.id)] {
        let claimed = store.claimed(&key(scope, "body")).await.unwrap();
        assert_eq!(claimed, Some(Claimed::Run(run)));
        assert_eq!(store.create(asked(scope)).await.unwrap(), Started::Before(run));
    }
    assert_eq!(store.claimed(&key("over", "body")).await.unwrap(), None);
    begin(&store, &asked("over")).await;

    let lease = {
        assert!(store.take(working.id).await.unwrap().is_none(), "{lease:?} is held");
        store.release(vec![lease]).await.unwrap();
        db.run("UPDATE agent_run SET lease_until = 1 WHERE lease_until IS NOT NULL")
            .await;
        store.take(working.id).await.unwrap().unwrap()
    };
    let end = finished(lease, &working, RunStatus::Completed, vec![]);
    assert_eq!(store.finish(end).await.unwrap(), Committed::Written);
    assert_eq!(
        store.claimed(&key("working", "body")).await.unwrap(),
        None,
        "the 24 h have passed, and the run has ended"
    );
    begin(&store, &asked("working")).await;
}

/// A definition in a request that created no run is not kept.
pub(crate) async fn a_request_that_creates_no_run_stores_no_definitions(db: TestDb) {
    let store = db.open().await;
    let asked = |fingerprint: &str, hash: &str| {
        let mut run = NewRun {
            claim: Some(key("scope", fingerprint)),
            ..new_run()
        };
        run.snapshot.hash = hash.into();
        run
    };
    begin(&store, &asked("body", "kept")).await;
    let refused = store.create(asked("other", "not kept")).await.unwrap();
    assert_eq!(refused, Started::Mismatch);
    assert_eq!(db.line("SELECT hash FROM agent_snapshot").await, "kept");
}

/// A page of runs is limited in bytes, including their in-doubt calls.
pub(crate) async fn a_page_of_runs_is_bounded_in_bytes(db: TestDb) {
    let store = db.open().await;
    for _ in 0..4 {
        let run = new_run();
        let lease = begin(&store, &run).await;
        let end = FinishedRun {
            in_doubt: vec![InDoubtCall {
                action_id: ActionId::new(),
                tool: "add_task".into(),
                parameters: json!("x".repeat(3 * 1024 * 1024)),
            }],
            ..finished(lease, &run, RunStatus::Paused, vec![])
        };
        store.finish(end).await.unwrap();
    }
    let page = store.list(&tenant(), &project(), &query("")).await.unwrap();
    assert!(page.items.len() < 4 && page.next_page_token.is_some());
    assert_eq!(all(&store, query("")).await.len(), 4);
}

/// The lease of a reopened run.
async fn reopened(store: &Store, run: Reopen) -> Lease {
    match store.reopen(run).await.unwrap() {
        Started::Now(Some(lease)) => lease,
        other => panic!("{other:?}"),
    }
}

/// X-6: of many requests one resumes a paused run. The same run continues, with its journal and its decision; what was
/// before is an attempt.
pub(crate) async fn a_paused_run_is_resumed_once(db: TestDb) {
    let stores = [db.open().await, db.open().await];
    let store = &stores[0];
    let paused = new_run();
    let old = begin(store, &paused).await;
    let resuming = |run: RunId, scope: &str| Reopen {
        session: None,
        place: by_caller(true, Some(key(scope, "body")), &[]),
        ..reopen(run, 0)
    };
    let refused = store.reopen(resuming(paused.id, "early")).await.unwrap();
    assert_eq!(refused, Started::NotPaused(RunStatus::Running));
    let dropped = store.reopen(resuming(RunId::new(), "late")).await.unwrap();
    assert_eq!(dropped, Started::NotFound);
    store.append(entries(old, 1..=2)).await.unwrap();
    store
        .finish(finished(old, &paused, RunStatus::Paused, vec![]))
        .await
        .unwrap();

    let mut racing = tokio::task::JoinSet::new();
    for n in 0..20 {
        let (store, run) = (Arc::clone(&stores[n % 2]), resuming(paused.id, &format!("key {n}")));
        racing.spawn(async move { store.reopen(run).await.unwrap() });
    }
    let answers = racing.join_all().await;
    let count = |expected: &Started| answers.iter().filter(|answer| *answer == expected).count();
    assert_eq!(count(&Started::Now(None)), 1, "{answers:?}");
    assert_eq!(count(&Started::NotPaused(RunStatus::Queued)), 19, "{answers:?}");
    // A key that led to nothing may be used again; the key that reopened the run still does.
    let kept = db.line("SELECT scope FROM idempotency_key").await;
    assert_eq!(
        store.reopen(resuming(paused.id, &kept)).await.unwrap(),
        Started::Before(paused.id)
    );
    assert_eq!(
        store.claimed(&key(&kept, "body")).await.unwrap(),
        Some(Claimed::Run(paused.id))
    );
    assert_eq!(db.count("SELECT COUNT(*) FROM agent_run").await, 1);
    assert_eq!(db.line(DECISION).await, "open agent - - -");

    let row = shown(store, paused.id).await;
    assert_eq!(
        (row.status, row.completed_at, row.summary),
        (RunStatus::Queued, None, None)
    );
    assert_eq!(
        serde_json::to_value(&row.attempts).unwrap(),
        json!([{
            "started_at": "2026-11-20T00:00:00.000001Z", "completed_at": "2026-11-20T00:00:01.234568Z",
            "stop_reason": null, "error_message": "cut short", "summary": "It was mom.", "steps": 2,
        }])
    );
    let stored = store.load(paused.id).await.unwrap().unwrap();
    assert_eq!((stored.attempt, stored.takes), (1, 0));
    let journal = store.journal(paused.id, 2, 9).await.unwrap();
    assert_eq!(
        journal
            .iter()
            .map(|entry| (entry.number, &*entry.body))
            .collect::<Vec<_>>(),
        [(3, r#"{"resumed":{}}"#)]
    );
    // The holder of the earlier attempt can no longer write.
    let lease = stores[1].take(paused.id).await.unwrap().unwrap();
    assert_eq!(store.append(entries(old, 4..=4)).await.unwrap(), Committed::LeaseLost);
    assert_eq!(
        stores[1].append(entries(lease, 4..=4)).await.unwrap(),
        Committed::Written
    );
    let end = finished(lease, &paused, RunStatus::Completed, vec![]);
    assert_eq!(stores[1].finish(end).await.unwrap(), Committed::Written);
    assert_eq!(
        db.line(DECISION).await,
        "closed agent RESPOND_ONLY SUCCESS:RESPONSE_GIVEN respond"
    );
}

/// The entries of a run and of those that it called are numbered together, in the order of their commits. A reader
/// continues after any number, and the end of each attempt has a number of its own.
pub(crate) async fn a_run_and_those_that_it_called_have_one_event_log(db: TestDb) {
    let store = db.open().await;
    let root = new_run();
    let lease = begin(&store, &root).await;
    let (one, other) = (called_run(lease, root.id), called_run(lease, root.id));
    let below = called_run(lease, one.id);
    for run in [&one, &other, &below] {
        begin(&store, run).await;
    }
    let append = async |run, numbers| {
        let entries = Append {
            run,
            ..entries(lease, numbers)
        };
        assert_eq!(store.append(entries).await.unwrap(), Committed::Written);
    };
    append(root.id, 1..=2).await;
    append(one.id, 1..=1).await;
    append(other.id, 1..=2).await;
    append(below.id, 1..=1).await;
    // A commit whose acknowledgement was lost is repeated.
    append(below.id, 1..=1).await;
    append(one.id, 2..=2).await;
    append(root.id, 3..=3).await;

    let log = async |run: &NewRun, after| {
        let log = store.events(run.id, after, 99, usize::MAX).await.unwrap();
        let placed = log
            .iter()
            .map(|logged| (logged.position, logged.run, logged.entry.number));
        placed.collect::<Vec<_>>()
    };
    let all = [
        (1, root.id, 1),
        (2, root.id, 2),
        (3, one.id, 1),
        (4, other.id, 1),
        (5, other.id, 2),
        (6, below.id, 1),
        (7, one.id, 2),
        (8, root.id, 3),
    ];
    assert_eq!(log(&root, 0).await, all);
    for after in 0..=8 {
        assert_eq!(log(&root, after as u64).await, all[after..]);
    }
    assert_eq!(log(&one, 0).await, [all[2], all[5], all[6]]);
    assert_eq!(log(&one, 3).await, [all[5], all[6]]);
    assert_eq!(log(&other, 4).await, [all[4]]);
    assert_eq!(log(&new_run(), 0).await, []);
    // The page ends with the entry that makes it too long.
    let held = store.events(root.id, 0, 99, 1).await.unwrap();
    assert_eq!(held.len(), 1);

    store
        .finish(finished(lease, &root, RunStatus::Paused, vec![]))
        .await
        .unwrap();
    reopened(
        &store,
        Reopen {
            session: None,
            place: by_caller(false, None, &[]),
            ..reopen(root.id, 0)
        },
    )
    .await;
    assert_eq!(log(&root, 8).await, [(10, root.id, 4)]);
}

/// X-4: a resumed run that waits for a worker is cancelled by its worker, since it has a journal to end.
pub(crate) async fn a_resumed_run_is_cancelled_by_its_worker(db: TestDb) {
    let store = db.open().await;
    let run = new_run();
    let lease = begin(&store, &run).await;
    store
        .finish(finished(lease, &run, RunStatus::Paused, vec![]))
        .await
        .unwrap();
    let queued = Reopen {
        session: None,
        place: by_caller(true, None, &[]),
        ..reopen(run.id, 0)
    };
    assert_eq!(store.reopen(queued).await.unwrap(), Started::Now(None));
    store.cancel(run.id, "ann").await.unwrap();
    assert!(store.take(run.id).await.unwrap().is_some());
    assert!(store.load(run.id).await.unwrap().unwrap().cancel);
}

/// X-4: a waiting run is cancelled at once, with its decision. A run in progress, with its called runs, gets a
/// cancellation request. An ended run stays unchanged.
pub(crate) async fn a_run_is_cancelled_in_every_state(db: TestDb) {
    let (store, other) = (db.open().await, db.open().await);
    let waiting = queued_run();
    assert_eq!(store.create(waiting.clone()).await.unwrap(), Started::Now(None));
    other.cancel(waiting.id, "ann").await.unwrap();
    let row = shown(&store, waiting.id).await;
    assert_eq!(row.status, RunStatus::Cancelled);
    assert_eq!(row.error_message.as_deref(), Some("cancelled before it began"));
    assert_eq!((row.started_at, row.duration_ms), (None, None));
    assert!(row.completed_at.is_some());
    assert_eq!(db.line(DECISION).await, "closed agent REFUSE REFUSAL:CANCELLED none");
    assert_eq!(
        db.line("SELECT error_detail FROM decision_log WHERE NOT recovered AND duration_us >= 0")
            .await,
        "cancelled before it began"
    );
    assert_eq!(store.take(waiting.id).await.unwrap(), None);

    let (run, bystander) = (new_run(), new_run());
    let (lease, beside) = (begin(&store, &run).await, begin(&store, &bystander).await);
    let (child, sibling) = (called_run(lease, run.id), called_run(lease, run.id));
    begin(&store, &child).await;
    begin(&store, &sibling).await;
    let grandchild = called_run(lease, child.id);
    begin(&store, &grandchild).await;
    assert!(store.renew(vec![lease, beside]).await.unwrap().cancelled.is_empty());
    other.cancel(sibling.id, "ann").await.unwrap();
    assert_eq!(store.renew(vec![lease, beside]).await.unwrap().cancelled, [sibling.id]);
    assert!(!store.load(run.id).await.unwrap().unwrap().cancel);
    other.cancel(run.id, "ann").await.unwrap();
    for run in [&run, &child, &sibling, &grandchild] {
        let stored = store.load(run.id).await.unwrap().unwrap();
        assert!(stored.cancel);
        assert_eq!(stored.end.status, RunStatus::Running, "its worker ends it");
    }
    let all = [run.id, child.id, sibling.id, grandchild.id];
    assert_eq!(store.renew(vec![lease, beside]).await.unwrap().cancelled, all);

    store
        .finish(finished(lease, &sibling, RunStatus::Cancelled, vec![]))
        .await
        .unwrap();
    let before = db.rows("SELECT * FROM agent_run ORDER BY id").await;
    for over in [sibling.id, waiting.id, RunId::new()] {
        other.cancel(over, "ann").await.unwrap();
    }
    assert_eq!(db.rows("SELECT * FROM agent_run ORDER BY id").await, before);
}

/// Promise: exact approvals. After a recorded cancellation no call starts, even if the process that drives the run has
/// not read it yet. A call that started before stays started, even if its commit is repeated after a lost answer. The
/// same holds for called runs at any depth.
pub(crate) async fn no_call_starts_after_a_run_is_cancelled(db: TestDb) {
    let (store, other) = (db.open().await, db.open().await);
    let run = new_run();
    let lease = begin(&store, &run).await;
    let (child, sibling) = (called_run(lease, run.id), called_run(lease, run.id));
    begin(&store, &child).await;
    begin(&store, &sibling).await;
    let grandchild = called_run(lease, child.id);
    begin(&store, &grandchild).await;
    let begins = |run: &NewRun, number: u64| Append {
        run: run.id,
        intents: vec![intent(&run.decision, u32::try_from(number).unwrap())],
        ..entries(lease, number..=number)
    };
    let before = begins(&grandchild, 1);
    assert_eq!(store.append(before.clone()).await.unwrap(), Committed::Written);
    other.cancel(child.id, "ann").await.unwrap();
    assert_eq!(
        store.append(before).await.unwrap(),
        Committed::Written,
        "it had started"
    );
    for below in [&grandchild, &child] {
        assert_eq!(store.append(begins(below, 2)).await.unwrap(), Committed::ApprovalGone);
    }
    // Entries that start no call are still written: the result of the call, and the end.
    let reported = Append {
        run: grandchild.id,
        ..entries(lease, 2..=2)
    };
    assert_eq!(store.append(reported).await.unwrap(), Committed::Written);
    for beside in [&sibling, &run] {
        assert_eq!(store.append(begins(beside, 1)).await.unwrap(), Committed::Written);
    }
    other.cancel(run.id, "ann").await.unwrap();
    for all in [&sibling, &run] {
        assert_eq!(store.append(begins(all, 2)).await.unwrap(), Committed::ApprovalGone);
    }
    let cleanup = Commit {
        cleans_up: true,
        progresses: false,
        ..begins(&run, 2).into()
    };
    assert_eq!(store.commit(cleanup).await.unwrap(), Committed::Written, "P-302");
    assert_eq!(db.count("SELECT COUNT(*) FROM tool_invocation_log").await, 4);
}

/// X-15: a called run names its caller, runs under its caller's lease, and ends with it: no run is left `running` that
/// no process could end.
pub(crate) async fn a_called_run_uses_its_callers_lease(db: TestDb) {
    let store = db.open().await;
    let run = new_run();
    let lease = begin(&store, &run).await;
    let child = called_run(lease, run.id);
    begin(&store, &child).await;
    let grandchild = called_run(lease, child.id);
    begin(&store, &grandchild).await;
    assert_eq!(shown(&store, grandchild.id).await.parent_run_id, Some(child.id));
    let Some(Parent {
        run: caller, action, ..
    }) = child.origin.parent()
    else {
        panic!("it is called")
    };
    let stored = store.load(child.id).await.unwrap().unwrap();
    assert_eq!(stored.origin, Origin::Called((*caller, *action)));
    // It cannot be claimed, although it has no lease of its own.
    assert_eq!(store.take(child.id).await.unwrap(), None);

    let intent = intent(&grandchild.decision, 1);
    let sent = intent.id;
    let more = Append {
        run: grandchild.id,
        intents: vec![intent],
        ..entries(lease, 1..=2)
    };
    assert_eq!(store.append(more).await.unwrap(), Committed::Written);
    assert_eq!(store.journal(grandchild.id, 0, 9).await.unwrap(), [entry(1), entry(2)]);
    assert!(store.journal(run.id, 0, 9).await.unwrap().is_empty());
    let end = finished(lease, &child, RunStatus::Completed, vec![]);
    assert_eq!(store.finish(end).await.unwrap(), Committed::Written);
    assert_eq!(shown(&store, grandchild.id).await.status, RunStatus::Running);

    let end = finished(lease, &run, RunStatus::Failed, vec![]);
    assert_eq!(store.finish(end).await.unwrap(), Committed::Written);
    let left = shown(&store, grandchild.id).await;
    assert_eq!(left.status, RunStatus::Failed);
    assert_eq!(
        left.error_message.as_deref(),
        Some("the run that called it ended first")
    );
    assert_eq!(shown(&store, child.id).await.status, RunStatus::Completed);
    assert_eq!(
        db.line("SELECT decision_type, outcome_category, intent FROM decision_log WHERE recovered")
            .await,
        "INVOKE_TOOL ERROR:INTERNAL add_task"
    );
    assert_eq!(db.line("SELECT status FROM tool_invocation_log").await, "in_doubt");
    let in_doubt = InDoubtCall {
        action_id: sent,
        tool: "add_task".into(),
        parameters: json!({"description": "call mom"}),
    };
    assert_eq!(left.in_doubt, [in_doubt]);
    // Nothing more happens in it.
    let more = Append {
        run: grandchild.id,
        ..entries(lease, 3..=3)
    };
    assert_eq!(store.append(more).await.unwrap(), Committed::LeaseLost);
    assert_eq!(
        store.create(called_run(lease, child.id)).await.unwrap(),
        Started::LeaseLost
    );
}

/// A dead process's open decision is closed by the next process, but that of its run waits for the worker that
/// continues it.
pub(crate) async fn the_decisions_of_runs_survive_their_process(db: TestDb) {
    let dead = db.open().await;
    let (run, chat) = (new_run(), open_decision());
    let lease = begin(&dead, &run).await;
    let more = Append {
        intents: vec![intent(&run.decision, 1)],
        ..entries(lease, 1..=1)
    };
    dead.append(more).await.unwrap();
    dead.open(chat.clone(), vec![]).await.unwrap();
    drop(dead);
    eventually("its tasks have ended", async || {
        db.try_run("UPDATE instance SET lease_until = 0").await.is_ok()
    })
    .await;
    let next = db.open().await;
    assert_eq!(
        db.rows("SELECT surface, status FROM decision_log ORDER BY surface")
            .await,
        [["agent", "open"], ["chat", "closed"]].map(|row| row.map(|cell| Some(cell.to_owned())))
    );
    assert_eq!(db.line("SELECT status FROM tool_invocation_log").await, "started");
    drop(next);
}

/// `records.content` is about the log. A run's journal, input and output are working state, without which it could not
/// be resumed.
pub(crate) async fn without_content_the_log_keeps_no_text_and_the_run_keeps_all(db: TestDb) {
    let store = db.open_with(ContentMode::None).await;
    let run = new_run();
    let lease = begin(&store, &run).await;
    store.append(entries(lease, 1..=1)).await.unwrap();
    let stored = store.load(run.id).await.unwrap().unwrap();
    assert_eq!(&*stored.decision.message, "");
    assert_eq!(stored.input.get(), run.input.get());
    assert_eq!(store.journal(run.id, 0, 9).await.unwrap(), [entry(1)]);
    store
        .finish(finished(lease, &run, RunStatus::Completed, vec![]))
        .await
        .unwrap();
    assert_eq!(db.line("SELECT message, response FROM decision_log").await, "- -");
    assert_eq!(shown(&store, run.id).await.summary.as_deref(), Some("It was mom."));
}

/// X-4. Promise: truthful states. A contradictory row of a run cannot be written by any writer.
pub(crate) async fn the_table_of_runs_refuses_contradictory_rows(db: TestDb) {
    let store = db.open().await;
    let (run, over, waiting) = (new_run(), new_run(), queued_run());
    begin(&store, &run).await;
    let lease = begin(&store, &over).await;
    store
        .finish(finished(lease, &over, RunStatus::Completed, vec![]))
        .await
        .unwrap();
    store.create(waiting.clone()).await.unwrap();
    for (id, lie) in [
        (run.id, "status = 'done'"),
        (run.id, "status = 'completed'"),
        (run.id, "completed_at = 1"),
        (run.id, "lease_until = NULL"),
        (run.id, "started_at = NULL"),
        (run.id, "root_id = 'x'"),
        (run.id, "parent_run_id = 'x'"),
        (run.id, "fence = -1"),
        (over.id, "error_message = 'oh'"),
        (over.id, "stop_reason = 'crash'"),
        (over.id, "completed_at = NULL"),
        (over.id, "lease_until = 1"),
        (over.id, "started_at = NULL"),
        (waiting.id, "holder = 'x'"),
    ] {
        let reported = db
            .try_run(&format!("UPDATE agent_run SET {lie} WHERE id = '{id}'"))
            .await;
        assert!(reported.is_err(), "{lie}");
    }
    db.run(&format!("UPDATE agent_run SET fence = 2 WHERE id = '{}'", run.id))
        .await;
}

/// The parameters of lists.
fn query(filter: &str) -> ListQuery {
    ListQuery {
        page_size: 100,
        filter: (!filter.is_empty()).then(|| filter.to_owned()),
        ..ListQuery::default()
    }
}

async fn all(store: &Store, mut query: ListQuery) -> Vec<AgentRun> {
    let mut runs = Vec::new();
    loop {
        let page = store.list(&tenant(), &project(), &query).await.unwrap();
        assert!(page.items.len() <= query.page_size as usize);
        runs.extend(page.items);
        query.page_token = page.next_page_token;
        if query.page_token.is_none() {
            return runs;
        }
    }
}

/// Pages of 500 runs join to the complete list, in order, for every filter. Called runs are listed on request.
pub(crate) async fn pages_of_runs_join_to_the_complete_list(db: TestDb) {
    let store = db.open().await;
    let mut making = tokio::task::JoinSet::new();
    for n in 0..500_i64 {
        let mut run = new_run();
        // Many with the same time.
        run.decision.created_at = T0 + n / 7;
        run.agent = format!("agent-{}", n % 3).into();
        run.decision.user = UserId::parse(if n % 5 == 0 { "ben" } else { "ann" }).unwrap();
        let store = Arc::clone(&store);
        if making.len() == 40 {
            making.join_next().await.unwrap().unwrap();
        }
        making.spawn(async move {
            let lease = begin(&store, &run).await;
            match n % 10 {
                0 => {
                    begin(&store, &called_run(lease, run.id)).await;
                }
                1 => {
                    let end = FinishedRun {
                        stop_reason: Some(StopReason::StepLimit),
                        ..finished(lease, &run, RunStatus::Paused, vec![])
                    };
                    store.finish(end).await.unwrap();
                }
                _ => {
                    let end = finished(lease, &run, RunStatus::Completed, vec![]);
                    store.finish(end).await.unwrap();
                }
            }
        });
    }
    making.join_all().await;

    let place = |run: &AgentRun| (run.created_at, run.id);
    let newest = all(&store, query("")).await;
    assert_eq!(newest.len(), 500);
    assert!(newest.is_sorted_by(|a, b| place(a) > place(b)));
    assert!(newest.iter().all(|run| run.parent_run_id.is_none()));
    let mut oldest = all(
        &store,
        ListQuery {
            order_by: Some("created_at".into()),
            page_size: 33,
            ..query("")
        },
    )
    .await;
    oldest.reverse();
    assert_eq!(
        oldest.iter().map(place).collect::<Vec<_>>(),
        newest.iter().map(place).collect::<Vec<_>>()
    );

    let expected = |holds: &dyn Fn(&&AgentRun) -> bool| newest.iter().filter(holds).map(place).collect::<Vec<_>>();
    let users: Vec<_> = all(&store, query(r#"user_id = "ben""#))
        .await
        .iter()
        .map(place)
        .collect();
    assert_eq!(users.len(), 100);
    for (filter, rows) in [
        (r#"agent_id = "agent-1""#, expected(&|run| run.agent_id == "agent-1")),
        (r#"agent_id = "agent-*""#, expected(&|_| true)),
        (
            r#"status = "running""#,
            expected(&|run| run.status == RunStatus::Running),
        ),
        (
            r#"status != "completed""#,
            expected(&|run| run.status != RunStatus::Completed),
        ),
        (
            r#"status = "paused" AND agent_id = "agent-0" AND definition_hash = "c0ffee""#,
            expected(&|run| run.status == RunStatus::Paused && run.agent_id == "agent-0"),
        ),
        (
            r#"stop_reason = "step_limit""#,
            expected(&|run| run.stop_reason.is_some()),
        ),
        (
            r#"created_at >= "2026-11-20T00:00:00.000040Z""#,
            expected(&|run| run.created_at.to_string().as_str() >= "2026-11-20T00:00:00.000040Z"),
        ),
        (r#"definition_hash = "other""#, vec![]),
        (r#"user_id = "ben" AND status = "running""#, {
            let running = expected(&|run| run.status == RunStatus::Running);
            running.into_iter().filter(|place| users.contains(place)).collect()
        }),
    ] {
        let asked = ListQuery {
            page_size: 19,
            ..query(filter)
        };
        let found: Vec<_> = all(&store, asked).await.iter().map(place).collect();
        assert_eq!(found, rows, "{filter}");
    }
    let as_ben = ListQuery {
        user: Some(UserId::parse("ben").unwrap()),
        ..query("")
    };
    assert_eq!(all(&store, as_ben).await.iter().map(place).collect::<Vec<_>>(), users);

    let caller = newest.iter().find(|run| run.status == RunStatus::Running).unwrap();
    let called = all(&store, query(&format!(r#"parent_run_id = "{}""#, caller.id))).await;
    assert_eq!(called.len(), 1);
    assert_eq!(called[0].parent_run_id, Some(caller.id));
    assert_eq!(all(&store, query(r#"parent_run_id = "*""#)).await.len(), 50);

    for invalid in [r#"state = "running""#, r#"status = "done""#] {
        let reported = store.list(&tenant(), &project(), &query(invalid)).await.unwrap_err();
        assert!(
            matches!(reported, QueryError::Invalid { field: "filter", .. }),
            "{reported}"
        );
    }
}

/// Runs of another tenant, project or user are not found, and a token does not change that.
pub(crate) async fn no_user_sees_another_users_runs(db: TestDb) {
    let store = db.open().await;
    let other = TenantId::parse("other").unwrap();
    let elsewhere = ProjectId::parse("elsewhere").unwrap();
    let (mine, mut theirs, mut bens, mut apart) = (new_run(), new_run(), new_run(), new_run());
    theirs.decision.tenant = other.clone();
    bens.decision.user = UserId::parse("ben").unwrap();
    apart.project = elsewhere.clone();
    for run in [&mine, &theirs, &bens, &apart] {
        begin(&store, run).await;
    }
    let ann = mine.decision.user.clone();
    for (tenant, user, run, there) in [
        (&tenant(), None, &mine, true),
        (&tenant(), Some(&ann), &mine, true),
        (&tenant(), None, &bens, true),
        (&tenant(), Some(&ann), &bens, false),
        (&tenant(), None, &theirs, false),
        (&other, None, &theirs, true),
        (&other, None, &mine, false),
    ] {
        let found = store.get(tenant, user, run.id).await.unwrap();
        assert_eq!(found.is_some(), there, "{tenant} {user:?}");
    }
    let listed = async |tenant: &TenantId, project: &ProjectId| {
        let page = store.list(tenant, project, &query("")).await.unwrap();
        page.items.iter().map(|run| run.id).collect::<Vec<_>>()
    };
    assert_eq!(listed(&tenant(), &project()).await, [bens.id, mine.id]);
    assert_eq!(listed(&other, &project()).await, [theirs.id]);
    assert_eq!(listed(&tenant(), &elsewhere).await, [apart.id]);
    assert!(listed(&other, &elsewhere).await.is_empty());

    let one = ListQuery {
        page_size: 1,
        ..query("")
    };
    let page = store.list(&tenant(), &project(), &one).await.unwrap();
    let next = ListQuery {
        page_token: page.next_page_token,
        ..one
    };
    let reported = store.list(&tenant(), &elsewhere, &next).await.unwrap_err();
    assert!(
        matches!(
            reported,
            QueryError::Invalid {
                field: "page_token",
                ..
            }
        ),
        "{reported}"
    );
}

/// `runs_kept`: runs that ended longer ago are deleted, with their called runs and journals. The others stay, and so
/// does a run that was reopened since.
pub(crate) async fn runs_are_deleted_after_their_retention_time(db: TestDb) {
    let store = db.open().await;
    let snapshot = |run: &mut NewRun, hash: &str| run.snapshot.hash = hash.into();
    let mut kept = Vec::new();
    // Many that ended long ago, each with a call.
    for _ in 0..70 {
        let mut run = new_run();
        snapshot(&mut run, "old");
        let lease = begin(&store, &run).await;
        let child = called_run(lease, run.id);
        begin(&store, &child).await;
        let more = Append {
            run: child.id,
            ..entries(lease, 1..=2)
        };
        store.append(more).await.unwrap();
        store.append(entries(lease, 1..=2)).await.unwrap();
        store
            .finish(finished(lease, &run, RunStatus::Failed, vec![]))
            .await
            .unwrap();
    }
    // One in progress, one that waits.
    let running = new_run();
    let lease = begin(&store, &running).await;
    store.append(entries(lease, 1..=1)).await.unwrap();
    let waiting = queued_run();
    store.create(waiting.clone()).await.unwrap();
    kept.extend([running.id, waiting.id]);
    // Paused ones that were resumed: one is in progress, one ended just as long ago, and one just now.
    for over in [None, Some(T0 + 1_234_567), Some(i64::MAX / 4)] {
        let mut paused = new_run();
        snapshot(&mut paused, "paused");
        let lease = begin(&store, &paused).await;
        store
            .finish(finished(lease, &paused, RunStatus::Paused, vec![]))
            .await
            .unwrap();
        let lease = reopened(&store, reopen(paused.id, 0)).await;
        if let Some(completed_at) = over {
            let end = finished(lease, &paused, RunStatus::Completed, vec![]);
            store.finish(FinishedRun { completed_at, ..end }).await.unwrap();
        }
        if over != Some(T0 + 1_234_567) {
            kept.push(paused.id);
        }
    }
    // One with an in-doubt call that is not settled.
    let unsettled = new_run();
    let lease = begin(&store, &unsettled).await;
    let effect = intent(&unsettled.decision, 1);
    let in_doubt = effect.id;
    let begins = Append {
        actions: vec![unasked(&effect, None)],
        intents: vec![effect],
        ..entries(lease, 1..=1)
    };
    assert_eq!(store.append(begins).await.unwrap(), Committed::Written);
    store
        .finish(finished(lease, &unsettled, RunStatus::Failed, vec![]))
        .await
        .unwrap();
    let doubt = format!("SELECT status FROM agent_action WHERE id = '{in_doubt}'");
    assert_eq!(db.line(&doubt).await, "in_doubt");
    kept.push(unsettled.id);
    // One that ended just now.
    let recent = new_run();
    let lease = begin(&store, &recent).await;
    store
        .finish(FinishedRun {
            completed_at: i64::MAX / 4,
            ..finished(lease, &recent, RunStatus::Completed, vec![])
        })
        .await
        .unwrap();
    kept.push(recent.id);
    store.shutdown().await;
    db.run(&format!(
        "UPDATE agent_run SET completed_at = 1 WHERE completed_at = {}",
        T0 + 1_234_567
    ))
    .await;

    // Without a retention time all are kept; an expired key that the same round of pruning deletes shows that the round
    // has run.
    let expired = "INSERT INTO idempotency_key (scope, fingerprint, decision_id, created_at, expires_at) \
                   VALUES ('old', 'body', 'd', 0, 1)";
    db.run(expired).await;
    let store = db.open().await;
    eventually("it has pruned", async || {
        db.count("SELECT COUNT(*) FROM idempotency_key").await == 0
    })
    .await;
    assert_eq!(db.count("SELECT COUNT(*) FROM agent_run").await, 70 * 2 + 3 + 2 + 2);
    store.shutdown().await;

    let store = Store::open(StoreConfig {
        runs_kept: Some(Duration::from_secs(24 * 3600)),
        ..db.config()
    })
    .await
    .unwrap();
    let left = async || {
        let rows = db.rows("SELECT id FROM agent_run ORDER BY id").await;
        rows.into_iter().map(|row| row[0].clone().unwrap()).collect::<Vec<_>>()
    };
    let mut expected: Vec<_> = kept.iter().map(ToString::to_string).collect();
    expected.sort_unstable();
    eventually("old runs are deleted", async || left().await.len() <= expected.len()).await;
    assert_eq!(left().await, expected);
    assert_eq!(db.count("SELECT COUNT(*) FROM agent_run_entry").await, 4);
    assert_eq!(
        db.rows("SELECT hash FROM agent_snapshot ORDER BY hash").await,
        [["5ead"], ["paused"]].map(|row| row.map(|cell| Some(cell.to_owned())))
    );
    // The decision log is not working state: it stays.
    assert_eq!(
        db.count("SELECT COUNT(*) FROM decision_log WHERE surface = 'agent'")
            .await,
        147
    );
    drop(store);
}

/// R-4: the messages of a thread are answered in the order of their arrival, even if the clocks of the receiving
/// processes differ. The model receives everything before its own message.
pub(crate) async fn waiting_messages_of_a_thread_run_in_order_whatever_the_clocks_say(db: TestDb) {
    let (one, two) = (db.open().await, db.open().await);
    let thread = ThreadId::new();
    let says = async |store: &Store, clock: i64, is_new| {
        let run = new_run();
        let run = NewRun {
            decision: gavel::ports::records::OpenDecision {
                created_at: T0 + clock,
                ..run.decision
            },
            origin: Origin::Thread(InThread {
                thread,
                is_new,
                message: "a word of ann".into(),
                queue: true,
            }),
            ..run
        };
        let Started::Now(lease) = store.create(run.clone()).await.unwrap() else {
            panic!("it is created")
        };
        (run, lease)
    };
    let (first, lease) = says(&one, 0, true).await;
    let mut lease = lease.unwrap();
    let mut going = first;
    let mut waiting = Vec::new();
    for (store, clock) in [
        (&one, 9_000_000),
        (&two, 1_000_000),
        (&two, 1_000_001),
        (&one, 9_000_100),
    ] {
        let (run, lease) = says(store, clock, false).await;
        assert_eq!(lease, None, "it waits its turn");
        waiting.push(run);
    }
    for next in waiting {
        let end = finished(lease, &going, RunStatus::Completed, vec![]);
        one.finish(end).await.unwrap();
        assert_eq!(
            actions::Actions::next_after(&*one, going.id).await.unwrap(),
            Some(next.id)
        );
        lease = one.take(next.id).await.unwrap().expect("it is its turn");
        going = next;
    }
}

/// The messages of a thread are kept as long as their runs, and the thread as long as it has any.
pub(crate) async fn threads_are_deleted_with_their_runs(db: TestDb) {
    let store = db.open().await;
    let said = async |thread: ThreadId, is_new| {
        let run = NewRun {
            origin: Origin::Thread(InThread {
                thread,
                is_new,
                message: "a word of ann".into(),
                queue: false,
            }),
            ..new_run()
        };
        let lease = begin(&store, &run).await;
        let end = finished(lease, &run, RunStatus::Completed, vec![]);
        let words = Some("a word of the agent".into());
        store.finish(FinishedRun { words, ..end }).await.unwrap();
        run.id
    };
    // More ended ones than are deleted at once, and one that continues.
    for _ in 0..40 {
        said(ThreadId::new(), true).await;
    }
    db.run("UPDATE thread SET updated_at = 1").await;
    let lives = ThreadId::new();
    said(lives, true).await;
    db.run("UPDATE agent_run SET completed_at = 1").await;
    let recent = said(lives, false).await;
    db.run(&format!(
        "UPDATE agent_run SET completed_at = {} WHERE id = '{recent}'",
        i64::MAX / 4
    ))
    .await;
    assert_eq!(db.count("SELECT COUNT(*) FROM thread_message").await, 84);
    store.shutdown().await;

    let store = Store::open(StoreConfig {
        runs_kept: Some(Duration::from_secs(24 * 3600)),
        ..db.config()
    })
    .await
    .unwrap();
    eventually("old runs are deleted", async || {
        db.count("SELECT COUNT(*) FROM thread").await <= 1 && db.count("SELECT COUNT(*) FROM agent_run").await <= 1
    })
    .await;
    let thread = gavel::ports::actions::Actions::thread(&*store, &tenant(), None, lives, None, 10)
        .await
        .unwrap()
        .unwrap();
    let lines: Vec<_> = thread.messages.iter().map(|line| (line.number, line.run_id)).collect();
    assert_eq!((thread.message_count, lines), (4, vec![(3, recent), (4, recent)]));
    assert_eq!(db.count("SELECT COUNT(*) FROM thread_message").await, 2);
}

/// `runs_kept`: the definitions of a run that is just being created are not deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_and_definitions_in_use_are_not_deleted() {
    let db = TestDb::postgres().await;
    let store = db.open().await;
    let gone = new_run();
    let lease = begin(&store, &gone).await;
    store
        .finish(finished(lease, &gone, RunStatus::Failed, vec![]))
        .await
        .unwrap();
    db.run("UPDATE agent_run SET completed_at = 1").await;
    let next = queued_run();
    // It has found the snapshot, and waits with its decision, because another has that id.
    let lock = db
        .hold(&format!(
            "INSERT INTO decision_log (id, tenant, surface, user_id, conversation_id, definition_hash, requested_model, \
             history_entries, request_id, created_at, owner, status) \
             VALUES ('{}', '', '', '', '', '', '', 0, '', 0, '', 'open')",
            next.id
        ))
        .await;
    let creating = tokio::spawn({
        let (store, next) = (Arc::clone(&store), next.clone());
        async move { store.create(next).await.unwrap() }
    });
    db.stuck(1).await;
    let pruning = Store::open(StoreConfig {
        runs_kept: Some(Duration::from_secs(24 * 3600)),
        ..db.config()
    })
    .await
    .unwrap();
    eventually("unused rows are deleted", async || {
        store.get(&tenant(), None, gone.id).await.unwrap().is_none()
    })
    .await;
    lock.release().await;
    assert_eq!(creating.await.unwrap(), Started::Now(None));
    let stored = store.load(next.id).await.unwrap();
    assert_eq!(stored.map(|run| run.snapshot), Some(next.snapshot));
    drop(pruning);
}
