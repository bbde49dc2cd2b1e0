//! Ops of runs that are repeated, or wait for the disk.

#![allow(clippy::unwrap_used)]

use serde_json::value::RawValue;

use super::super::audit::{Signer, Trail};
use super::super::config::StoreConfig;
use super::super::connect::Target;
use super::super::db::{Dialect, Value, explain, used};
use super::super::migrate;
use super::super::op::{Op, Ticket};
use super::super::queue::Cleanup;
use super::super::table::Writing;
use super::super::texts::Known;
use super::super::transaction::Attempt;
use std::time::Duration;

use uuid::Uuid;

use crate::domain::action::ActionStatus;
use crate::domain::agent_run::{RunStatus, StopReason};
use crate::domain::decision::Usage;
use crate::domain::ids::{
    ActionId, ConversationId, InstanceId, PlanningSessionId, ProjectId, RunId, TenantId, ThreadId, UserId,
};
use crate::domain::plan::Plan;
use crate::domain::planning_session::SessionReason;
use crate::domain::tool::FailureCode;
use crate::ports::actions::Settle;
use crate::ports::commit::{ActionOutcome, Commit, Fact, PlanChanged, Planned, RunEnd, Spent, Worked, Writer};
use crate::ports::definitions::NewVersion;
use crate::ports::planning::{MadePlan, PlanEdit, PlanNotes, SessionCancel};
use crate::ports::records::{Kept, OpenDecision};
use crate::ports::runs::{
    InSession, InThread, Lease, NewRun, Origin, Renewed, Reopen, ReopenedFor, SessionWork, Settled, StoredEntry,
};
use crate::queue::Batch;

fn queued_run() -> NewRun {
    let id = RunId::new();
    let json = || RawValue::from_string("{}".to_owned()).unwrap().into();
    NewRun {
        id,
        project: ProjectId::parse("p").unwrap(),
        agent: "a".into(),
        version: None,
        decision: OpenDecision {
            id: id.decision(),
            tenant: TenantId::parse("t").unwrap(),
            surface: "agent",
            user: UserId::parse("ann").unwrap(),
            conversation: ConversationId::parse("c").unwrap(),
            message: "".into(),
            definition_hash: "".into(),
            requested_model: "".into(),
            agent_id: None,
            time_zone: None,
            tools_subset: None,
            history_entries: 0,
            trace_id: None,
            request_id: "".into(),
            created_at: 0,
        },
        origin: Origin::Trigger,
        snapshot: Kept {
            hash: "h".into(),
            text: "{}".into(),
        },
        input: json(),
        settings: json(),
        entries: Vec::new(),
        queued: true,
        claim: None,
    }
}

/// What an op reads does not grow with the tables: it searches an index, or scans a partial index of few rows.
#[tokio::test]
async fn no_op_scans_a_table() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("t.db").display());
    let target = Target::parse(&url, None).unwrap();
    target.create().unwrap();
    let mut conn = target.writer().await.unwrap();
    migrate::migrate(&mut conn, Duration::ZERO).await.unwrap();
    let config = StoreConfig {
        runs_kept: Some(Duration::ZERO),
        ..StoreConfig::new(url, InstanceId::new())
    };
    let batch = Batch {
        writing: &Writing::new(&config),
        config: &config,
        signer: Some(&Signer::new("a key")),
        trail: Trail::default(),
        known: &Known::default(),
    };
    let run = NewRun {
        queued: false,
        origin: Origin::Thread(InThread {
            thread: ThreadId::new(),
            is_new: true,
            message: "hello".into(),
            queue: true,
        }),
        ..queued_run()
    };
    let next = NewRun {
        id: RunId::new(),
        origin: Origin::Session(InSession {
            session: PlanningSessionId::new(),
            work: SessionWork::Refine { version: 1 },
        }),
        ..run.clone()
    };
    let lease = Lease { run: run.id, fence: 1 };
    let (action, session) = (ActionId::new(), PlanningSessionId::new());
    let (plan, by): (_, std::sync::Arc<str>) = (Plan::default(), "ann".into());
    let worked = Worked {
        plan: plan.clone(),
        changed: Some(PlanChanged {
            why: "so".into(),
            changes: Vec::new(),
        }),
        ended: None,
    };
    let made = MadePlan {
        plan,
        notes: PlanNotes::default(),
        changes: Vec::new(),
        by: by.clone(),
        why: "so".into(),
    };
    let outcome = ActionOutcome {
        id: action,
        status: ActionStatus::Failed,
        error: Some((FailureCode::Timeout, "late".into())),
        words: None,
    };
    let settle = Settle {
        action,
        root: run.id,
        happened: true,
        by: by.clone(),
        words: "it did".into(),
    };
    let end = RunEnd {
        error_message: Some("stopped".into()),
        stop_reason: Some(StopReason::StepLimit),
        steps: 1,
        completed_at: Some(1),
        ..RunEnd::new(RunStatus::Paused)
    };
    let commit = |facts| {
        let commit = Commit {
            writer: Writer::Holder { lease, run: run.id },
            entries: Vec::new(),
            facts,
            cleans_up: false,
            progresses: true,
        };
        Op::Commit(commit.into())
    };
    let reopen = Reopen {
        run: run.id,
        attempt: 0,
        place: ReopenedFor::Caller {
            queued: false,
            settled: Settled {
                by: by.clone(),
                calls: [(action, true)].into(),
            },
            claim: None,
        },
        session: None,
        settings: run.settings.clone(),
        entry: "{}".into(),
        at_us: 2,
    };
    let refused = true;
    for (op, is_refused) in [
        (Op::CreateRun(Box::new(run.clone())), false),
        (Op::CreateRun(Box::new(next)), false),
        (
            commit(vec![
                Fact::Begun(action),
                Fact::Spent(Spent {
                    run: run.id,
                    steps: 1,
                    usage: Usage::default(),
                }),
            ]),
            false,
        ),
        (
            commit(vec![
                Fact::Outcome(outcome),
                Fact::Planned(session, Planned::Made(Box::new(made.clone()))),
                Fact::Planned(session, Planned::None(SessionReason::Internal, "so".into())),
                Fact::Worked(session, Box::new(worked)),
                Fact::Said("done".into()),
                Fact::Ended(end, true),
            ]),
            false,
        ),
        (Op::ReopenRun(Box::new(reopen), Uuid::now_v7()), false),
        (Op::CancelRun(run.id, by.clone()), false),
        (Op::Settle(settle), refused),
        (Op::GiveUpRuns(vec![run.id]), false),
        (Op::ExpireApprovals(vec![run.id]), false),
        (
            Op::Cleanup(Cleanup::AbandonRun(RunId::new(), Some("scope".into()))),
            false,
        ),
        (
            Op::EditPlan(Box::new(PlanEdit {
                session,
                version: 1,
                made,
                claim: None,
                at_us: 0,
            })),
            false,
        ),
        (
            Op::CancelSession(SessionCancel {
                session,
                by: by.clone(),
                why: None,
                at_us: 0,
            }),
            false,
        ),
        (Op::SweepSessions(vec![session], 0, 0), false),
        (Op::Sweep, false),
        (Op::Prune, false),
    ] {
        let named = format!("{op:?}");
        match batch.run(&mut conn, &[Ticket::silent(op)]).await {
            Attempt::Committed(_) => assert!(!is_refused, "{named}"),
            Attempt::Failed(fault) | Attempt::Uncertain(fault) => {
                assert!(is_refused, "{named}: {fault:?}");
                conn.execute("ROLLBACK", vec![]).await.unwrap();
            }
        }
    }
    // Found so far in the same statement, few in any database, or a partial index.
    let may_be_scanned = |step: &str| {
        [
            "below",
            "caller",
            "json_each",
            "CONSTANT ROW",
            "instance",
            "(subquery",
            "gavel_schema",
            "sqlite_master",
        ]
        .iter()
        .any(|few| step["SCAN ".len()..].starts_with(few))
            || [
                "decision_open",
                "tool_started",
                "agent_run_over",
                "planning_session_over",
                "planning_session_due",
                // The columns of a view.
                "pragma_table_info",
            ]
            .iter()
            .any(|index| step.contains(index))
    };
    for sql in used(Dialect::Sqlite) {
        let is_query = ["SELECT", "UPDATE", "DELETE", "WITH"]
            .iter()
            .any(|verb| sql.starts_with(verb));
        if !is_query {
            continue;
        }
        let plan = explain(&mut conn, &sql, vec![Value::from(1_i64); 20]).await;
        for step in plan.iter().filter(|step| step.starts_with("SCAN ")) {
            assert!(may_be_scanned(step), "{sql}: {plan:?}");
        }
    }
}

/// On SQLite, ops that cannot be reconstructed wait for the disk, and others do not. An op that is
/// repeated, because its commit was not acknowledged, returns the same answer.
#[tokio::test]
async fn on_sqlite_an_op_may_be_done_twice_and_waits_for_the_disk_where_it_must() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("t.db").display());
    let target = Target::parse(&url, None).unwrap();
    target.create().unwrap();
    let mut conn = target.writer().await.unwrap();
    migrate::migrate(&mut conn, Duration::ZERO).await.unwrap();
    let config = StoreConfig::new(url, InstanceId::new());
    let batch = Batch {
        writing: &Writing::new(&config),
        config: &config,
        signer: Some(&Signer::new("a key")),
        trail: Trail::default(),
        known: &Known::default(),
    };
    let run = queued_run();
    let lease = Lease { run: run.id, fence: 1 };
    let entry = StoredEntry {
        number: 1,
        at_us: 0,
        elapsed_us: 0,
        body: "{}".into(),
    };
    let version = NewVersion {
        tenant: run.decision.tenant.clone(),
        project: run.project.clone(),
        agent: "a".into(),
        hash: "h".into(),
        definition: "{}".into(),
        author: "ann".into(),
        created_at: 0,
        expected: None,
        beside: None,
    };
    let another = NewVersion {
        hash: "another".into(),
        ..version.clone()
    };
    let first = Uuid::now_v7();
    let append = Commit {
        writer: Writer::Holder { lease, run: run.id },
        entries: vec![entry],
        facts: Vec::new(),
        cleans_up: false,
        progresses: false,
    };
    for (op, answer, waits) in [
        (Op::CreateRun(Box::new(run.clone())), "Now(None)".to_owned(), true),
        (Op::TakeRun(run.id, Uuid::now_v7()), format!("{:?}", Some(lease)), false),
        (Op::Commit(append.into()), "Written".to_owned(), false),
        (Op::RenewRuns(vec![lease]), format!("{:?}", Renewed::default()), false),
        (Op::CancelRun(run.id, "ann".into()), "()".to_owned(), true),
        (Op::ReleaseRuns(vec![lease]), "()".to_owned(), false),
        (Op::Define(version.clone(), first), "Made(1)".to_owned(), true),
        // The same content from another request is not a repetition.
        (Op::Define(version.clone(), Uuid::now_v7()), "Same(1)".to_owned(), true),
        (Op::Define(another, Uuid::now_v7()), "Made(2)".to_owned(), true),
        // Also if another request made the next version before the repetition.
        (Op::Define(version, first), "Made(1)".to_owned(), true),
    ] {
        let ticket = [Ticket::silent(op)];
        for _ in 0..2 {
            match batch.run(&mut conn, &ticket).await {
                Attempt::Committed(done) => assert_eq!(format!("{done:?}"), format!("[{answer}]")),
                Attempt::Failed(fault) | Attempt::Uncertain(fault) => panic!("{fault:?}"),
            }
        }
        let level = conn.one::<i64>("PRAGMA synchronous", vec![]).await.unwrap();
        // 2 is FULL, 1 is NORMAL.
        assert_eq!(level, Some(if waits { 2 } else { 1 }), "{answer}");
    }
}
