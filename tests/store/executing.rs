//! Executions of confirmed plans: begun once, worked through commit by commit, and ended.

use futures_util::future::join_all;
use gavel::adapters::store::Store;
use gavel::api::planning::{Cleanup, VersionKind};
use gavel::domain::agent_run::RunStatus;
use gavel::domain::budget::{Exceeded, Scope};
use gavel::domain::ids::{PlanningSessionId, UserId};
use gavel::domain::plan::{Plan, TaskReason, TaskStatus};
use gavel::domain::planning_session::{SessionReason, SessionStatus};
use gavel::ports::commit::{Commit, Committed, Fact, PlanChanged, Planned, Recorder, SessionEnd, Worked};
use gavel::ports::planning::{MadePlan, Moved, PlanningSessions, StoredSession};
use gavel::ports::runs::{Lease, NewRun, Reopen, Runs, SessionWork, Started};

use crate::audit::whole;
use crate::commits::{Append, entries, finished, key, reopen};
use crate::planning::{
    DEADLINE, END, cancel, cancelled, edit, finish, made, open_for, plan, proposed, refines, run_status, shown, starts,
    versions, why, works,
};
use crate::support::{T0, TestDb, begin, called_run, eventually};

/// A run that works through this version, confirmed by ann.
pub(crate) fn executes(session: PlanningSessionId, version: u32) -> NewRun {
    let by = "ann".into();
    works(session, SessionWork::Execute { version, by })
}

/// A session whose plan is worked through.
pub(crate) struct Executing {
    pub(crate) session: PlanningSessionId,
    pub(crate) first: MadePlan,
    pub(crate) run: NewRun,
    pub(crate) lease: Lease,
}

pub(crate) async fn executing(store: &Store) -> Executing {
    let (session, first) = proposed(store, &["write tests", "parse weeks"]).await;
    let run = executes(session, 1);
    let lease = begin(store, &run).await;
    Executing {
        session,
        first,
        run,
        lease,
    }
}

impl Executing {
    /// A commit of the outermost run with one entry of this number.
    fn commit(&self, number: u64, worked: Worked) -> Commit {
        let mut commit = Commit::from(entries(self.lease, number..=number));
        commit.facts.push(Fact::Worked(self.session, Box::new(worked)));
        commit
    }

    /// The end of the run, and of the work.
    fn end(&self, ended: SessionEnd) -> Commit {
        let status = match ended.status {
            SessionStatus::Completed => RunStatus::Completed,
            _ => RunStatus::Failed,
        };
        let mut commit = Commit::from(finished(self.lease, &self.run, status, vec![]));
        let worked = Worked {
            ended: Some(ended),
            ..so_far(&self.first.plan, TaskStatus::Completed)
        };
        commit.facts.push(Fact::Worked(self.session, Box::new(worked)));
        commit
    }
}

/// The plan with its first task in this status.
fn so_far(plan: &Plan, status: TaskStatus) -> Worked {
    let mut plan = plan.clone();
    plan.tasks[0].status = status;
    Worked {
        plan,
        changed: None,
        ended: None,
    }
}

/// A change that a reflection makes.
fn changed(session: PlanningSessionId, before: &Plan, titles: &[&str]) -> Worked {
    let next = plan(session, Some(before), titles);
    let (why, changes) = (next.why, next.changes);
    Worked {
        plan: next.plan,
        changed: Some(PlanChanged { why, changes }),
        ended: None,
    }
}

fn failed() -> SessionEnd {
    SessionEnd {
        status: SessionStatus::Failed,
        reason: Some((SessionReason::TaskFailed, "t1 failed".into())),
        cleanup: Some(cleanup()),
    }
}

fn cleanup() -> Cleanup {
    Cleanup {
        removed: vec!["c1".to_owned()],
        left: vec!["c2".to_owned()],
    }
}

async fn write(store: &Store, commit: Commit) {
    assert_eq!(store.commit(commit).await.unwrap(), Committed::Written);
}

/// P-205, P-301: a person's confirmation of the current version begins the execution in one commit with its run, and the
/// audit log says who confirmed which plan. Nothing else can be confirmed, and nothing is changed by hand afterwards.
pub(crate) async fn an_execution_begins_with_a_confirmation_of_the_current_version(db: TestDb) {
    let store = db.open().await;
    let (session, first) = proposed(&store, &["write tests"]).await;
    let refinement = refines(session, 1);
    let lease = begin(&store, &refinement).await;
    let early = store.create(executes(session, 1)).await.unwrap();
    assert_eq!(early, Started::SessionMoved(SessionStatus::Planning, 1));
    let second = plan(session, Some(&first.plan), &["parse weeks"]);
    finish(&store, session, &refinement, lease, made(&second)).await;

    let waits = SessionStatus::AwaitingConfirmation;
    let outdated = NewRun {
        claim: Some(key("execute", "body")),
        ..executes(session, 1)
    };
    assert_eq!(
        store.create(outdated.clone()).await.unwrap(),
        Started::SessionMoved(waits, 2)
    );
    assert_eq!(store.claimed(&outdated.claim.unwrap()).await.unwrap(), None);
    let mut theirs = executes(session, 2);
    theirs.decision.user = UserId::parse("grace").unwrap();
    assert_eq!(store.create(theirs).await.unwrap(), Started::NotFound);
    let mut late = executes(session, 2);
    late.decision.created_at = DEADLINE;
    let passed = Started::SessionMoved(SessionStatus::DeadlineExceeded, 2);
    assert_eq!(store.create(late).await.unwrap(), passed);
    let untouched = shown(&store, session).await;
    assert_eq!((untouched.status, untouched.started_us), (waits, None));

    let mut run = executes(session, 2);
    run.decision.created_at = END + 9;
    begin(&store, &run).await;
    let after = shown(&store, session).await;
    let expected = StoredSession {
        status: SessionStatus::Executing,
        run: run.id,
        started_us: Some(END + 9),
        updated_us: END + 9,
        is_at_work: true,
        ..untouched
    };
    assert_eq!(after, expected);
    let entry = format!(
        "SELECT actor, tenant, decision_id, detail FROM audit WHERE kind = 'plan_confirmed' AND subject = '{session}'"
    );
    let entry = db.line(&entry).await;
    assert!(entry.starts_with(&format!("ann default {} ", run.id)), "{entry}");
    let hash = &versions(&store, session).await[1].plan_hash;
    for detail in [r#""version":2"#.to_owned(), format!(r#""plan_sha256":"{hash}""#)] {
        assert!(entry.contains(&detail), "{entry}");
    }
    whole(&db).await;

    let moved = Started::SessionMoved(SessionStatus::Executing, 2);
    for run in [executes(session, 2), refines(session, 2)] {
        assert_eq!(store.create(run).await.unwrap(), moved);
    }
    let refused = Moved::No(SessionStatus::Executing, 2);
    assert_eq!(store.edit(edit(session, 2, &second)).await.unwrap(), refused);
}

/// P-301: of two executions at once, in two processes, one begins, and nothing of the other is kept.
pub(crate) async fn of_two_executions_at_once_one_begins(db: TestDb) {
    let stores = [db.open().await, db.open().await];
    for _ in 0..8 {
        let (session, _) = proposed(&stores[0], &["write tests"]).await;
        let [one, two] = [0, 1].map(|_| executes(session, 1));
        let (first, second) = tokio::join!(stores[0].create(one.clone()), stores[1].create(two.clone()));
        let (winner, loser, refused) = match (first.unwrap(), second.unwrap()) {
            (Started::Now(Some(_)), refused) => (one, two, refused),
            (refused, Started::Now(Some(_))) => (two, one, refused),
            other => panic!("{other:?}"),
        };
        assert_eq!(refused, Started::SessionMoved(SessionStatus::Executing, 1));
        assert_eq!(shown(&stores[0], session).await.run, winner.id);
        assert!(stores[0].run_state(loser.id).await.unwrap().is_none());
        let entries = format!("SELECT COUNT(*) FROM audit WHERE subject = '{session}'");
        assert_eq!(db.count(&entries).await, 1);
    }
}

/// P-301: an execution whose acknowledgement was lost is begun again, and has one run and one audit entry. That is so
/// after its end, too.
pub(crate) async fn a_repeated_execution_begins_once(db: TestDb) {
    let store = db.open().await;
    let work = executing(&store).await;
    assert_eq!(begin(&store, &work.run).await, work.lease);
    write(&store, work.end(failed())).await;
    assert_eq!(begin(&store, &work.run).await, work.lease);
    let after = shown(&store, work.session).await;
    assert_eq!((after.status, after.run), (SessionStatus::Failed, work.run.id));
    let entries = format!(
        "SELECT COUNT(*) FROM audit WHERE kind = 'plan_confirmed' AND subject = '{}'",
        work.session
    );
    assert_eq!(db.count(&entries).await, 1);
}

/// P-302, P-304: each commit of the work writes the plan with it, also one of a task's run. A change by a reflection is a
/// new version, with the reflection's text.
pub(crate) async fn the_plan_is_written_as_it_is_worked_through(db: TestDb) {
    let store = db.open().await;
    let work = executing(&store).await;
    let begun = so_far(&work.first.plan, TaskStatus::InProgress);
    write(&store, work.commit(1, begun.clone())).await;
    let after = shown(&store, work.session).await;
    assert_eq!((after.version, &after.plan), (1, &begun.plan));
    assert_eq!(after.updated_us, T0 + 1);
    assert_eq!(versions(&store, work.session).await.len(), 1);

    let task = called_run(work.lease, work.run.id);
    begin(&store, &task).await;
    let mut next = changed(work.session, &begun.plan, &["write tests", "document it"]);
    next.plan.tasks[0].status = TaskStatus::InProgress;
    let mut of_task = Commit::from(Append {
        run: task.id,
        ..entries(work.lease, 1..=1)
    });
    of_task.facts.push(Fact::Worked(work.session, Box::new(next.clone())));
    write(&store, of_task).await;
    let after = shown(&store, work.session).await;
    assert_eq!((after.version, &after.plan), (2, &next.plan));
    assert_eq!(after.notes, work.first.notes);
    let history = versions(&store, work.session).await;
    let (last, why) = (&history[1], next.changed.unwrap());
    assert_eq!((last.version, last.kind), (2, VersionKind::Changed));
    assert_eq!((&*last.by, last.run_id), ("agent", work.run.id));
    assert_eq!(
        (&*last.why, &last.changes, &last.plan),
        (&*why.why, &why.changes, &next.plan.tasks)
    );
    assert_ne!(last.plan_hash, history[0].plan_hash);
    // The version that was confirmed remains as it was.
    assert_eq!(history[0].plan, work.first.plan.tasks);
}

/// P-304: a commit whose acknowledgement was lost is repeated, and makes one version.
pub(crate) async fn a_repeated_commit_makes_one_version(db: TestDb) {
    let store = db.open().await;
    let work = executing(&store).await;
    let second = changed(work.session, &work.first.plan, &["write tests", "document it"]);
    for _ in 0..3 {
        write(&store, work.commit(1, second.clone())).await;
    }
    assert_eq!(shown(&store, work.session).await.version, 2);
    let third = changed(work.session, &second.plan, &["write tests"]);
    for _ in 0..2 {
        write(&store, work.commit(2, third.clone())).await;
    }
    // Back to the plan of an earlier version: that is a change as well.
    let fourth = Worked {
        plan: second.plan.clone(),
        ..third.clone()
    };
    for _ in 0..2 {
        write(&store, work.commit(3, fourth.clone())).await;
    }
    let after = shown(&store, work.session).await;
    assert_eq!((after.version, &after.plan), (4, &second.plan));
    assert_eq!(versions(&store, work.session).await.len(), 4);
}

/// P-302: a run that does not work for the session, and a process that lost its lease, change nothing of the plan.
pub(crate) async fn only_the_run_of_a_session_changes_its_plan(db: TestDb) {
    let (store, other) = (db.open().await, db.open().await);
    let work = executing(&store).await;
    let before = shown(&store, work.session).await;
    let theirs = executing(&store).await;
    let next = changed(work.session, &work.first.plan, &["write tests"]);
    let mut foreign = theirs.commit(1, next.clone());
    foreign.facts = vec![Fact::Worked(work.session, Box::new(next.clone()))];
    write(&store, foreign).await;
    let mut end = theirs.end(failed());
    let Some(Fact::Worked(session, _)) = end.facts.last_mut() else {
        panic!("it ends the work")
    };
    *session = work.session;
    write(&store, end).await;
    assert_eq!(shown(&store, work.session).await, before);
    assert_eq!(versions(&store, work.session).await.len(), 1);

    db.run(&format!(
        "UPDATE agent_run SET lease_until = 0 WHERE id = '{}'",
        work.run.id
    ))
    .await;
    assert!(other.take(work.run.id).await.unwrap().is_some());
    for commit in [work.commit(1, next), work.end(failed())] {
        assert_eq!(store.commit(commit).await.unwrap(), Committed::LeaseLost);
    }
    assert_eq!(shown(&store, work.session).await, before);
    // A run that plans has no confirmed plan.
    let (planned, first) = proposed(&store, &["write tests"]).await;
    let run = refines(planned, 1);
    let lease = begin(&store, &run).await;
    let plans = Executing {
        session: planned,
        first: first.clone(),
        run,
        lease,
    };
    write(&store, plans.commit(1, so_far(&first.plan, TaskStatus::InProgress))).await;
    assert_eq!(shown(&store, planned).await.plan, first.plan);
}

/// P-306: the end of the run ends the session with its status, its reason and what the cleanup did.
pub(crate) async fn the_end_of_the_work_ends_the_session(db: TestDb) {
    let store = db.open().await;
    let completed = SessionEnd {
        status: SessionStatus::Completed,
        reason: None,
        cleanup: None,
    };
    let late = SessionEnd {
        status: SessionStatus::DeadlineExceeded,
        reason: Some((SessionReason::Deadline, "it passed".into())),
        ..failed()
    };
    for ended in [completed, failed(), late] {
        let work = executing(&store).await;
        for _ in 0..2 {
            write(&store, work.end(ended.clone())).await;
        }
        let after = shown(&store, work.session).await;
        let expected = ended.reason.map(|(code, detail)| why(code, &detail));
        assert_eq!((after.status, &after.reason), (ended.status, &expected));
        assert_eq!((after.completed_us, after.cleanup), (Some(END), ended.cleanup));
        let code = after.reason.as_ref().map_or("-", |reason| reason.code.as_str());
        let entry = format!("gavel {} {code}", after.status.as_str());
        assert_eq!(ends(&db, work.session).await, entry);
        assert_eq!(after.plan.tasks[0].status, TaskStatus::Completed);
        assert_eq!((after.version, after.started_us), (1, Some(T0)));
        let later = cancelled(&store, cancel(work.session)).await;
        assert_eq!(later, Moved::No(ended.status, 1));
        assert_eq!(store.sweep(DEADLINE, 0, 9).await.unwrap(), 0);
    }
}

/// P-102, P-306: a session that was cancelled, or whose deadline passed, keeps that end. The plan as its run left it and
/// the cleanup are still recorded, and so is a version.
pub(crate) async fn a_session_that_was_ended_meanwhile_keeps_its_end(db: TestDb) {
    let store = db.open().await;
    for by_person in [true, false] {
        let work = executing(&store).await;
        if by_person {
            assert_eq!(cancelled(&store, cancel(work.session)).await, Moved::Yes);
            assert!(store.is_cancelled(work.run.id).await.unwrap());
        } else {
            assert_eq!(store.sweep(DEADLINE, 0, 9).await.unwrap(), 1);
        }
        let ended = shown(&store, work.session).await;
        let expected = match by_person {
            true => SessionStatus::Cancelled,
            false => SessionStatus::DeadlineExceeded,
        };
        assert_eq!(ended.status, expected);
        assert_eq!(run_status(&store, work.run.id).await, RunStatus::Running);

        let second = changed(work.session, &work.first.plan, &["write tests"]);
        write(&store, work.commit(1, second.clone())).await;
        assert_eq!(shown(&store, work.session).await.plan, second.plan);
        write(&store, work.end(failed())).await;
        let after = shown(&store, work.session).await;
        assert_eq!(after.plan.tasks[0].status, TaskStatus::Completed);
        let expected = StoredSession {
            plan: after.plan.clone(),
            version: 2,
            cleanup: Some(cleanup()),
            usage: after.usage,
            // Its result is final from now on.
            is_at_work: false,
            ..ended
        };
        assert_eq!(after, expected);
        assert_eq!(versions(&store, work.session).await.len(), 2);
    }
}

/// P-306: past its deadline a session ends, whether a process works on it or not. One whose execution ended without
/// ending it has failed, or was cancelled.
pub(crate) async fn a_sweep_ends_sessions_whose_execution_is_lost(db: TestDb) {
    let store = db.open().await;
    let works = executing(&store).await;
    let lost = executing(&store).await;
    let end = finished(lost.lease, &lost.run, RunStatus::Failed, vec![]);
    write(&store, end.into()).await;
    let silent = executing(&store).await;
    write(
        &store,
        silent.commit(1, so_far(&silent.first.plan, TaskStatus::InProgress)),
    )
    .await;
    let end = finished(silent.lease, &silent.run, RunStatus::Completed, vec![]);
    write(&store, end.into()).await;
    let queued = async || {
        let (session, _) = proposed(&store, &["write tests"]).await;
        let run = NewRun {
            queued: true,
            ..executes(session, 1)
        };
        assert_eq!(store.create(run.clone()).await.unwrap(), Started::Now(None));
        (session, run.id)
    };
    let (stopped, run) = queued().await;
    Runs::cancel(&*store, run, "grace").await.unwrap();
    let (deleted, run) = queued().await;
    db.run(&format!("DELETE FROM agent_run WHERE id = '{run}'")).await;
    let (waits, _) = queued().await;

    assert_eq!(store.sweep(DEADLINE - 1, 0, 9).await.unwrap(), 4);
    assert_eq!(store.sweep(DEADLINE - 1, 0, 9).await.unwrap(), 0);
    for (session, status, reason, detail) in [
        (
            lost.session,
            SessionStatus::Failed,
            SessionReason::Internal,
            "cut short",
        ),
        (
            silent.session,
            SessionStatus::Failed,
            SessionReason::Internal,
            "its run ended without a result",
        ),
        (
            stopped,
            SessionStatus::Cancelled,
            SessionReason::Cancelled,
            "its run was cancelled",
        ),
        (
            deleted,
            SessionStatus::Failed,
            SessionReason::Internal,
            "its run ended without a result",
        ),
    ] {
        let after = shown(&store, session).await;
        assert_eq!((after.status, after.version), (status, 1));
        assert_eq!(after.reason, Some(why(reason, detail)));
        assert_eq!(after.completed_us, Some(DEADLINE - 1));
        assert_eq!(
            ends(&db, session).await,
            format!("gavel {} {}", status.as_str(), reason.as_str())
        );
    }
    // A task that was at work ends with its session.
    let task = &shown(&store, silent.session).await.plan.tasks[0];
    let code = task.status_reason.as_ref().map(|reason| reason.code);
    assert_eq!((task.status, code), (TaskStatus::Failed, Some(TaskReason::Internal)));
    assert_eq!(store.sweep(DEADLINE, 0, 9).await.unwrap(), 2);
    for session in [works.session, waits] {
        let after = shown(&store, session).await;
        assert_eq!(after.status, SessionStatus::DeadlineExceeded);
        assert_eq!(after.reason.unwrap().code, SessionReason::Deadline);
        assert_eq!(ends(&db, session).await, "gavel DEADLINE_EXCEEDED deadline");
    }
    whole(&db).await;
}

/// The entry of a session's end in the audit log: its actor, status and reason. There is one.
async fn ends(db: &TestDb, session: PlanningSessionId) -> String {
    let entries = format!("FROM audit WHERE kind = 'session_ended' AND subject = '{session}'");
    assert_eq!(db.count(&format!("SELECT COUNT(*) {entries}")).await, 1);
    let entry = db.line(&format!("SELECT actor, detail {entries}")).await;
    let (actor, detail) = entry.split_once(' ').unwrap();
    let detail: serde_json::Value = serde_json::from_str(detail).unwrap();
    let text = |field: &str| detail[field].as_str().unwrap_or("-").to_owned();
    format!("{actor} {} {}", text("status"), text("code"))
}

/// P-205: no plan, or another plan, from the run of an execution turns its session back.
pub(crate) async fn a_confirmed_plan_never_waits_for_its_confirmation_again(db: TestDb) {
    let store = db.open().await;
    let reasons = SessionReason::ALL.iter().copied();
    let none = reasons.map(|reason| Planned::None(reason, "it was not possible".into()));
    for planned in none.collect::<Vec<_>>() {
        let work = executing(&store).await;
        let before = shown(&store, work.session).await;
        finish(&store, work.session, &work.run, work.lease, planned).await;
        let after = shown(&store, work.session).await;
        let usage = after.usage;
        assert_eq!(
            after,
            StoredSession {
                usage,
                is_at_work: false,
                ..before
            }
        );
        assert_eq!(store.sweep(DEADLINE - 1, 0, 9).await.unwrap(), 1);
        assert_eq!(shown(&store, work.session).await.status, SessionStatus::Failed);
    }
    let work = executing(&store).await;
    finish(&store, work.session, &work.run, work.lease, made(&work.first)).await;
    assert_eq!(shown(&store, work.session).await.status, SessionStatus::Executing);
    assert_eq!(versions(&store, work.session).await.len(), 1);
}

/// P-301: the outermost run counts the tokens of its tasks, and the session counts the outermost runs.
pub(crate) async fn a_session_counts_the_tokens_of_a_task_once(db: TestDb) {
    let store = db.open().await;
    let work = executing(&store).await;
    let task = called_run(work.lease, work.run.id);
    begin(&store, &task).await;
    assert_eq!(store.session_of(task.id).await.unwrap(), None);
    write(&store, finished(work.lease, &task, RunStatus::Completed, vec![]).into()).await;
    // Those of the proposal.
    assert_eq!(shown(&store, work.session).await.usage.input_tokens, 11);
    write(&store, work.end(failed())).await;
    assert_eq!(shown(&store, work.session).await.usage.input_tokens, 22);
}

/// P-103, P-301: processes that begin, work through, cancel and sweep the same sessions at once all succeed, and none
/// waits for another in a circle.
pub(crate) async fn many_changes_of_executions_at_once_do_not_deadlock(db: TestDb) {
    let (store, other) = (db.open().await, db.open().await);
    let mut all = Vec::new();
    for _ in 0..16 {
        all.push(executing(&store).await);
    }
    let works = all.iter().map(async |work| {
        for number in 1..=4 {
            let status = if number % 2 == 0 {
                TaskStatus::Pending
            } else {
                TaskStatus::InProgress
            };
            write(&store, work.commit(number, so_far(&work.first.plan, status))).await;
        }
        write(&store, work.end(failed())).await;
    });
    let cancels = all.iter().rev().map(async |work| {
        let moved = cancelled(&other, cancel(work.session)).await;
        assert!(
            matches!(moved, Moved::Yes | Moved::No(SessionStatus::Failed, 1)),
            "{moved:?}"
        );
    });
    let runs = all
        .iter()
        .map(async |work| Runs::cancel(&*other, work.run.id, "grace").await.unwrap());
    let refinements = (0..16).map(async |_| {
        let session = PlanningSessionId::new();
        let run = starts(session);
        let lease = begin(&other, &run).await;
        let first = plan(session, None, &["write tests"]);
        tokio::join!(finish(&other, session, &run, lease, made(&first)), async {
            let _created = store.create(executes(session, 1)).await.unwrap();
            cancelled(&store, cancel(session)).await
        });
    });
    let sweeps = (0..8).map(async |_| other.sweep(DEADLINE - 1, 0, 99).await.unwrap());
    tokio::join!(
        join_all(works),
        join_all(cancels),
        join_all(runs),
        join_all(refinements),
        join_all(sweeps)
    );
    for work in &all {
        let after = shown(&store, work.session).await;
        assert!(after.status.has_ended());
        assert_eq!(after.cleanup, Some(cleanup()));
        assert!(run_status(&store, work.run.id).await.has_ended());
    }
    store.shutdown().await;
    other.shutdown().await;
    assert_eq!(deadlocks(&db).await, 0);
}

/// How many deadlocks the database has resolved. Its counts arrive when its connections are closed.
async fn deadlocks(db: &TestDb) -> i64 {
    if db.is_sqlite() {
        return 0;
    }
    let connections = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() \
                       AND backend_type = 'client backend' AND pid <> pg_backend_pid()";
    eventually("the connections are closed", async || db.count(connections).await == 0).await;
    db.count("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        .await
}

/// A session that continues after its processes were lost takes a place, as at its start.
pub(crate) async fn a_session_that_is_resumed_takes_a_place(db: TestDb) {
    let store = open_for(&db, 1, 4).await;
    let lost = executing(&store).await;
    write(&store, lost.end(failed())).await;
    db.run("UPDATE agent_run SET stop_reason = 'process_lost' WHERE status = 'failed'")
        .await;
    let other = PlanningSessionId::new();
    begin(&store, &starts(other)).await;
    let resuming = Reopen {
        session: Some(lost.session),
        ..reopen(lost.run.id, 0)
    };
    let refused = Started::TooManySessions(Exceeded {
        scope: Scope::User,
        limit: 1,
        unit: "planning sessions at work",
    });
    assert_eq!(store.reopen(resuming.clone()).await.unwrap(), refused);
    assert_eq!(shown(&store, lost.session).await.status, SessionStatus::Failed);

    assert_eq!(cancelled(&store, cancel(other)).await, Moved::Yes);
    assert!(matches!(store.reopen(resuming).await.unwrap(), Started::Now(Some(_))));
    assert_eq!(shown(&store, lost.session).await.status, SessionStatus::Executing);
}
