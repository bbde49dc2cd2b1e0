//! Ops of runs that are repeated, or wait for the disk.

use serde_json::value::RawValue;

use super::super::super::audit::{Signer, Trail};
use super::super::super::config::ContentMode;
use super::super::super::connect::Target;
use super::super::super::migrate;
use super::super::super::op::{Op, Ticket};
use super::super::super::rows::Writing;
use super::super::super::statements::Statements;
use super::super::super::transaction::Attempt;
use std::time::Duration;

use uuid::Uuid;

use super::*;
use crate::domain::budget::SessionLimits;
use crate::domain::ids::{ConversationId, InstanceId, ProjectId, RunId, TenantId, UserId};
use crate::ports::commit::{Commit, Writer};
use crate::ports::definitions::NewVersion;
use crate::ports::records::OpenDecision;
use crate::ports::runs::{Lease, NewRun, Origin, Renewed, Snapshot, StoredEntry};

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
            request_id: "".into(),
            created_at: 0,
        },
        origin: Origin::Trigger,
        snapshot: Snapshot {
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

/// On SQLite, ops that cannot be reconstructed wait for the disk, and others do not. An op that is repeated, because
/// its commit was not acknowledged, returns the same answer.
#[tokio::test]
async fn on_sqlite_an_op_may_be_done_twice_and_waits_for_the_disk_where_it_must() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("t.db").display());
    let target = Target::parse(&url, None).unwrap();
    target.create().unwrap();
    let mut conn = target.writer().await.unwrap();
    migrate::migrate(&mut conn, Duration::ZERO).await.unwrap();
    let batch = Batch {
        statements: &Statements::new(conn.dialect()),
        writing: &Writing::new(InstanceId::new(), None, ContentMode::Full),
        lease: Duration::from_secs(10),
        run_lease: Duration::from_secs(10),
        runs_kept: None,
        sessions: SessionLimits::default(),
        signer: Some(&Signer::new("a key")),
        trail: Trail::default(),
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
    let op = |op| Op::Run(Box::new(op));
    for (op, answer, waits) in [
        (
            op(RunOp::Create(Box::new(run.clone()))),
            "Run(Created(New(None)))".to_owned(),
            true,
        ),
        (
            op(RunOp::Take(run.id, Uuid::now_v7())),
            format!("Run(Taken(Some({lease:?})))"),
            false,
        ),
        (Op::Commit(append), "Committed(Written)".to_owned(), false),
        (
            op(RunOp::Renew(vec![lease])),
            format!("Run(Renewed({:?}))", Renewed::default()),
            false,
        ),
        (op(RunOp::Cancel(run.id, "ann".into())), "Run(Written)".to_owned(), true),
        (op(RunOp::Release(vec![lease])), "Run(Written)".to_owned(), false),
        (
            op(RunOp::Define(version.clone(), first)),
            "Run(Put(Made(1)))".to_owned(),
            true,
        ),
        // The same content from another request is not a repetition.
        (
            op(RunOp::Define(version.clone(), Uuid::now_v7())),
            "Run(Put(Same(1)))".to_owned(),
            true,
        ),
        (
            op(RunOp::Define(another, Uuid::now_v7())),
            "Run(Put(Made(2)))".to_owned(),
            true,
        ),
        // Also if another request made the next version before the repetition.
        (op(RunOp::Define(version, first)), "Run(Put(Made(1)))".to_owned(), true),
    ] {
        let ticket = [Ticket::silent(op)];
        for _ in 0..2 {
            match batch.run(&mut conn, &ticket).await {
                Attempt::Committed(done) => assert_eq!(format!("{done:?}"), format!("[{answer}]")),
                Attempt::Failed(fault) | Attempt::Uncertain(fault) => panic!("{fault:?}"),
            }
        }
        let level = conn.first(&"PRAGMA synchronous".into(), vec![]).await.unwrap().unwrap();
        // 2 is FULL, 1 is NORMAL.
        assert_eq!(level.int(0).unwrap(), if waits { 2 } else { 1 }, "{answer}");
    }
}
