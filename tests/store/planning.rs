//! Planning sessions: begun, refined, edited, cancelled and ended, each by one conditional change.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use gavel::adapters::store::{ContentMode, Store, StoreConfig};
use gavel::api::planning::{Reason, RepositoryRead, SessionUsage, Version, VersionKind};
use gavel::domain::agent_run::RunStatus;
use gavel::domain::budget::{Exceeded, Scope, SessionLimits};
use gavel::domain::ids::{PlanningSessionId, RunId, TenantId, UserId};
use gavel::domain::plan::{Draft, DraftTask, Plan, difference};
use gavel::domain::planning_session::{SessionReason, SessionStatus};
use gavel::ports::commit::{Commit, Committed, Fact, Planned, Recorder};
use gavel::ports::planning::{MadePlan, Moved, PlanEdit, PlanNotes, PlanningSessions, SessionCancel, StoredSession};
use gavel::ports::records::{ListQuery, QueryError};
use gavel::ports::runs::{InSession, Lease, NewRun, Origin, Runs, SessionWork, Started};

use crate::commits::{finished, key};
use crate::executing;
use crate::support::{T0, TestDb, begin, called_run, eventually, new_run, open_decision, queued_run, tenant};

/// The deadline of every session: an hour after its start.
pub(crate) const DEADLINE: i64 = T0 + 3_600_000_000;
/// The end of every run of a session.
pub(crate) const END: i64 = T0 + 1_234_567;

pub(crate) fn ann() -> UserId {
    UserId::parse("ann").unwrap()
}

/// A run that works for a session and that its creator claims at once.
pub(crate) fn works(session: PlanningSessionId, work: SessionWork) -> NewRun {
    NewRun {
        origin: Origin::Session(InSession { session, work }),
        ..new_run()
    }
}

/// The run that a session begins with.
pub(crate) fn starts(session: PlanningSessionId) -> NewRun {
    let work = SessionWork::Start {
        prompt: "accept ISO weeks".into(),
        repo_url: "https://github.com/acme/dates".into(),
        deadline_us: DEADLINE,
    };
    works(session, work)
}

pub(crate) fn refines(session: PlanningSessionId, version: u32) -> NewRun {
    works(session, SessionWork::Refine { version })
}

/// The next version of a plan: these tasks, of which those with a title of the current version are kept.
pub(crate) fn plan(session: PlanningSessionId, current: Option<&Plan>, titles: &[&str]) -> MadePlan {
    let kept = |title: &str| {
        let tasks = &current?.tasks;
        tasks.iter().find(|task| task.title == title).map(|task| task.id)
    };
    let tasks = titles.iter().map(|title| DraftTask {
        id: kept(title),
        title: (*title).to_owned(),
        goal: format!("{title} is done"),
        done_when: "the tests pass".to_owned(),
        tools: vec!["executeScript".to_owned()],
    });
    let draft = Draft {
        tasks: tasks.collect(),
        ..Draft::default()
    };
    let plan = Plan::of(draft, session, current, &["executeScript".to_owned()]).unwrap();
    MadePlan {
        changes: difference(current, &plan),
        plan,
        notes: PlanNotes {
            summary: "In short.".to_owned(),
            assumptions: vec!["there are tests".to_owned()],
            risks: Vec::new(),
            read: Some(RepositoryRead {
                commit: Some("3f1c9ab".to_owned()),
                ..RepositoryRead::default()
            }),
        },
        by: "user ann".into(),
        why: titles.join(" and ").into(),
    }
}

pub(crate) fn made(plan: &MadePlan) -> Planned {
    Planned::Made(Box::new(plan.clone()))
}

/// The end of a run of a session, and what it leads to.
fn ends(session: PlanningSessionId, run: &NewRun, lease: Lease, planned: Planned) -> Commit {
    let status = match planned {
        Planned::Made(_) => RunStatus::Completed,
        Planned::None(..) => RunStatus::Failed,
    };
    let mut commit = Commit::from(finished(lease, run, status, vec![]));
    commit.facts.push(Fact::Planned(session, planned));
    commit
}

pub(crate) async fn finish(store: &Store, session: PlanningSessionId, run: &NewRun, lease: Lease, planned: Planned) {
    let committed = store.commit(ends(session, run, lease, planned)).await.unwrap();
    assert_eq!(committed, Committed::Written);
}

/// A new session with this plan, which waits for its confirmation.
pub(crate) async fn proposed(store: &Store, titles: &[&str]) -> (PlanningSessionId, MadePlan) {
    let session = PlanningSessionId::new();
    let run = starts(session);
    let lease = begin(store, &run).await;
    let first = plan(session, None, titles);
    finish(store, session, &run, lease, made(&first)).await;
    (session, first)
}

/// Why a session ended, or was not refined.
pub(crate) fn why(code: SessionReason, detail: &str) -> Reason {
    Reason {
        code,
        detail: detail.to_owned(),
    }
}

pub(crate) async fn shown(store: &Store, session: PlanningSessionId) -> StoredSession {
    store.session(&tenant(), None, session).await.unwrap().unwrap()
}

pub(crate) async fn versions(store: &Store, session: PlanningSessionId) -> Vec<Version> {
    store.versions(session, 0, 99).await.unwrap()
}

pub(crate) fn edit(session: PlanningSessionId, version: u32, made: &MadePlan) -> PlanEdit {
    PlanEdit {
        session,
        version,
        made: made.clone(),
        claim: None,
        at_us: END + 5,
    }
}

pub(crate) fn cancel(session: PlanningSessionId) -> SessionCancel {
    SessionCancel {
        session,
        by: "grace".into(),
        why: Some("no longer wanted".into()),
        at_us: END + 7,
    }
}

pub(crate) async fn cancelled(store: &Store, cancel: SessionCancel) -> Moved {
    PlanningSessions::cancel(store, cancel).await.unwrap()
}

async fn open(db: &TestDb) -> i64 {
    db.count("SELECT COUNT(*) FROM planning_session WHERE completed_at IS NULL")
        .await
}

pub(crate) async fn run_status(store: &Store, run: RunId) -> RunStatus {
    store.run_state(run).await.unwrap().unwrap().end.status
}

/// P-102, P-103: a session begins in one commit with its run, the run's decision and the claim of the request. The same
/// request begins it once.
pub(crate) async fn a_session_begins_in_one_commit_with_its_run(db: TestDb) {
    let store = db.open().await;
    let session = PlanningSessionId::new();
    let run = NewRun {
        claim: Some(key("POST /v1/sessions k", "body")),
        ..starts(session)
    };
    let lease = begin(&store, &run).await;
    let begun = shown(&store, session).await;
    let expected = StoredSession {
        id: session,
        user: ann(),
        status: SessionStatus::Planning,
        reason: None,
        prompt: "accept ISO weeks".into(),
        repo_url: "https://github.com/acme/dates".into(),
        deadline_us: DEADLINE,
        version: 0,
        plan: Plan::default(),
        notes: PlanNotes::default(),
        run: run.id,
        refinement_failed: None,
        usage: SessionUsage::default(),
        created_us: T0,
        updated_us: T0,
        started_us: None,
        completed_us: None,
        is_at_work: true,
        cleanup: None,
    };
    assert_eq!(begun, expected);
    let state = store.run_state(run.id).await.unwrap().unwrap();
    assert_eq!(state.origin, Origin::Session(session));
    assert_eq!(
        store.load(run.id).await.unwrap().unwrap().origin,
        Origin::Session(session)
    );
    assert_eq!(store.session_of(run.id).await.unwrap(), Some(session));
    // A run that it calls works for its caller.
    let child = called_run(lease, run.id);
    begin(&store, &child).await;
    assert_eq!(store.session_of(child.id).await.unwrap(), None);

    let again = NewRun {
        claim: run.claim.clone(),
        ..starts(PlanningSessionId::new())
    };
    assert_eq!(store.create(again).await.unwrap(), Started::Before(run.id));
    assert_eq!(db.count("SELECT COUNT(*) FROM planning_session").await, 1);
    // Only its own user sees it.
    let grace = UserId::parse("grace").unwrap();
    assert_eq!(store.session(&tenant(), Some(&grace), session).await.unwrap(), None);
    assert!(store.session(&tenant(), Some(&ann()), session).await.unwrap().is_some());
}

/// A store that allows this many sessions.
pub(crate) async fn open_for(db: &TestDb, of_user: u32, of_all: u32) -> Arc<Store> {
    let config = StoreConfig {
        sessions: SessionLimits::new(of_all, of_user),
        ..db.config()
    };
    Store::open(config).await.unwrap()
}

/// A run that starts a session of this user, with a key of its own.
fn starts_of(user: &str) -> NewRun {
    let session = PlanningSessionId::new();
    let mut run = starts(session);
    run.decision.user = UserId::parse(user).unwrap();
    run.claim = Some(key(&session.to_string(), "body"));
    run
}

/// A limit of sessions that would be exceeded.
fn too_many(unit: &'static str, scope: Scope, limit: u64) -> Started {
    Started::TooManySessions(Exceeded { scope, limit, unit })
}

/// Sessions that wait for a person take no place of those at work, and have limits of their own. A refinement and an
/// execution take a place. No tenant has all of them.
pub(crate) async fn sessions_that_wait_for_confirmation_take_no_place_of_those_at_work(db: TestDb) {
    const AT_WORK: &str = "planning sessions at work";
    const WAITING: &str = "planning sessions that wait for confirmation";
    let store = open_for(&db, 2, 4).await;
    let mut waiting = Vec::new();
    let start = async |run: NewRun| store.create(run).await.unwrap();
    // Two at work, three for a tenant, four in all; and ten times as many that wait.
    while waiting.len() < 20 {
        let session = PlanningSessionId::new();
        let run = starts(session);
        let Started::Now(Some(lease)) = start(run.clone()).await else {
            panic!("{} wait, and none is at work", waiting.len())
        };
        finish(
            &store,
            session,
            &run,
            lease,
            made(&plan(session, None, &["write tests"])),
        )
        .await;
        waiting.push(session);
    }
    assert_eq!(
        start(starts(PlanningSessionId::new())).await,
        too_many(WAITING, Scope::User, 20)
    );
    assert!(matches!(start(refines(waiting[0], 1)).await, Started::Now(_)));
    assert!(matches!(
        start(executing::executes(waiting[1], 1)).await,
        Started::Now(_)
    ));
    for run in [refines(waiting[2], 1), executing::executes(waiting[2], 1)] {
        assert_eq!(start(run).await, too_many(AT_WORK, Scope::User, 2));
    }
    let others = |user: &str, tenant: &str| {
        let mut run = starts(PlanningSessionId::new());
        run.decision.user = UserId::parse(user).unwrap();
        run.decision.tenant = TenantId::parse(tenant).unwrap();
        run
    };
    let own = tenant();
    assert!(matches!(start(others("bob", own.as_str())).await, Started::Now(_)));
    let refused = start(others("cy", own.as_str())).await;
    assert_eq!(refused, too_many(AT_WORK, Scope::Tenant, 3));
    assert!(matches!(start(others("dee", "another")).await, Started::Now(_)));
    let refused = start(others("eve", "a-third")).await;
    assert_eq!(refused, too_many(AT_WORK, Scope::Process, 4));
}

/// A plan that no person confirms in time ends its session, and a change of the plan renews the time.
pub(crate) async fn a_plan_that_no_person_confirms_ends_its_session(db: TestDb) {
    let store = db.open().await;
    let (session, _) = proposed(&store, &["write tests"]).await;
    let (planning, run) = (PlanningSessionId::new(), RunId::new());
    begin(
        &store,
        &NewRun {
            id: run,
            ..starts(planning)
        },
    )
    .await;
    assert_eq!(store.sweep(DEADLINE - 1, END - 1, 9).await.unwrap(), 0);
    assert_eq!(store.sweep(DEADLINE - 1, END, 9).await.unwrap(), 1);
    let ended = shown(&store, session).await;
    let code = ended.reason.map(|reason| reason.code);
    assert_eq!(
        (ended.status, code, ended.completed_us),
        (
            SessionStatus::DeadlineExceeded,
            Some(SessionReason::Unconfirmed),
            Some(DEADLINE - 1)
        )
    );
    assert_eq!(shown(&store, planning).await.status, SessionStatus::Planning);
}

/// Starts at once, in two processes, begin as many sessions as the limits allow and no more. Nothing of the others is
/// kept, and their keys can be used again. A start whose acknowledgement was lost has its place.
pub(crate) async fn starts_at_once_do_not_exceed_the_limits(db: TestDb) {
    let stores = [open_for(&db, 3, 5).await, open_for(&db, 3, 5).await];
    let at_once = async |runs: &[NewRun]| {
        let creates = runs.iter().zip(stores.iter().cycle());
        let creates = join_all(creates.map(|(run, store)| store.create(run.clone()))).await;
        let mut refused = Vec::new();
        for (run, created) in runs.iter().zip(creates) {
            match created.unwrap() {
                Started::Now(Some(_)) => {}
                Started::TooManySessions(limit) => refused.push((run, limit)),
                other => panic!("{other:?}"),
            }
        }
        for (run, _) in &refused {
            assert!(stores[0].run_state(run.id).await.unwrap().is_none());
            let decision = format!("SELECT COUNT(*) FROM decision_log WHERE id = '{}'", run.id);
            assert_eq!(db.count(&decision).await, 0);
            assert_eq!(stores[0].claimed(run.claim.as_ref().unwrap()).await.unwrap(), None);
        }
        refused.into_iter().map(|(_, limit)| limit).collect::<Vec<_>>()
    };
    let of_ann: Vec<_> = (0..10).map(|_| starts_of("ann")).collect();
    let refused = |scope, limit| Exceeded {
        scope,
        limit,
        unit: "planning sessions at work",
    };
    assert_eq!(at_once(&of_ann).await, [refused(Scope::User, 3); 7]);
    assert_eq!(open(&db).await, 3);
    let of_others: Vec<_> = (0..10).map(|n| starts_of(&format!("user-{n}"))).collect();
    assert_eq!(at_once(&of_others).await, [refused(Scope::Tenant, 4); 9]);
    assert_eq!(open(&db).await, 4);
    // A start that is repeated needs no second place, and one of the others has the place of a session that ended.
    let mut begun = None;
    for run in &of_ann {
        if stores[0].run_state(run.id).await.unwrap().is_some() {
            begin(&stores[1], run).await;
            begun = run.origin.session().map(|place| place.session);
        }
    }
    assert_eq!(open(&db).await, 4);
    assert_eq!(cancelled(&stores[0], cancel(begun.unwrap())).await, Moved::Yes);
    // One has begun before, and one begins now.
    let (mut count, refused_now) = (0, refused(Scope::Tenant, 4));
    for run in &of_others {
        let created = stores[0].create(run.clone()).await.unwrap();
        count += usize::from(created == Started::TooManySessions(refused_now));
    }
    assert_eq!((count, open(&db).await), (8, 4));
}

/// P-103, P-202: each version is kept whole, with who asked for it, how it came about, why, and what changed. The
/// model calls and tokens of all runs are counted.
pub(crate) async fn every_version_of_a_plan_is_kept_whole(db: TestDb) {
    let store = db.open().await;
    let (session, first) = proposed(&store, &["write tests", "parse weeks"]).await;
    let proposal = shown(&store, session).await.run;
    let refinement = refines(session, 1);
    let lease = begin(&store, &refinement).await;
    let going = shown(&store, session).await;
    assert_eq!(
        (going.status, going.version, going.run),
        (SessionStatus::Planning, 1, refinement.id)
    );
    let second = plan(session, Some(&first.plan), &["parse weeks", "document it"]);
    finish(&store, session, &refinement, lease, made(&second)).await;
    let third = plan(session, Some(&second.plan), &["document it"]);
    assert_eq!(store.edit(edit(session, 2, &third)).await.unwrap(), Moved::Yes);

    let now = shown(&store, session).await;
    assert_eq!((now.status, now.version), (SessionStatus::AwaitingConfirmation, 3));
    assert_eq!((now.updated_us, now.completed_us), (END + 5, None));
    assert_eq!((now.plan.last, &now.notes), (3, &third.notes));
    assert_eq!(now.plan.to_json(), third.plan.to_json());
    assert_eq!(
        (now.usage.input_tokens, now.usage.cached_tokens, now.usage.model_calls),
        (22, 2, 4)
    );
    let history = versions(&store, session).await;
    let kinds = [
        (VersionKind::Proposed, proposal, END),
        (VersionKind::Refined, refinement.id, END),
        (VersionKind::Edited, refinement.id, END + 5),
    ];
    assert_eq!(history.len(), 3);
    for (((version, made), (kind, run, at_us)), number) in
        history.iter().zip([&first, &second, &third]).zip(kinds).zip(1..)
    {
        assert_eq!((version.version, version.kind, version.run_id), (number, kind, run));
        assert_eq!(
            (version.at.0, &*version.by, &*version.why),
            (at_us, &*made.by, &*made.why)
        );
        assert_eq!((&version.changes, &version.plan), (&made.changes, &made.plan.tasks));
        assert_eq!(version.plan_hash.len(), 64);
    }
    assert_ne!(history[0].plan_hash, history[1].plan_hash);
    assert_eq!(store.versions(session, 1, 1).await.unwrap(), history[1..2]);
}

/// P-202, P-103: of two refinements of the same version one begins, and nothing of the other is kept: its key can be
/// used again.
pub(crate) async fn of_two_refinements_at_once_one_begins(db: TestDb) {
    let store = db.open().await;
    for round in 0..8 {
        let (session, _) = proposed(&store, &["write tests"]).await;
        let runs = [0, 1].map(|n| NewRun {
            claim: Some(key(&format!("refine {round} {n}"), "body")),
            ..refines(session, 1)
        });
        let [one, two] = &runs;
        let (first, second) = tokio::join!(store.create(one.clone()), store.create(two.clone()));
        let (winner, loser, refused) = match (first.unwrap(), second.unwrap()) {
            (Started::Now(Some(_)), refused) => (one, two, refused),
            (refused, Started::Now(Some(_))) => (two, one, refused),
            other => panic!("{other:?}"),
        };
        assert_eq!(refused, Started::SessionMoved(SessionStatus::Planning, 1));
        assert_eq!(shown(&store, session).await.run, winner.id);
        assert!(store.run_state(loser.id).await.unwrap().is_none());
        let decision = format!("SELECT COUNT(*) FROM decision_log WHERE id = '{}'", loser.id);
        assert_eq!(db.count(&decision).await, 0);
        let claim = loser.claim.clone().unwrap();
        assert_eq!(store.claimed(&claim).await.unwrap(), None);
    }
}

/// P-202, P-205: a refinement of another version, of another user's session, or after the deadline does not begin.
pub(crate) async fn a_refinement_begins_only_in_time_and_for_the_current_version(db: TestDb) {
    let store = db.open().await;
    let (session, first) = proposed(&store, &["write tests"]).await;
    let moved = async |run: NewRun| store.create(run).await.unwrap();
    let waits = SessionStatus::AwaitingConfirmation;
    assert_eq!(moved(refines(session, 2)).await, Started::SessionMoved(waits, 1));
    assert_eq!(moved(refines(PlanningSessionId::new(), 1)).await, Started::NotFound);
    let mut theirs = refines(session, 1);
    theirs.decision.user = UserId::parse("grace").unwrap();
    assert_eq!(moved(theirs).await, Started::NotFound);
    let mut late = refines(session, 1);
    late.decision.created_at = DEADLINE;
    let passed = Started::SessionMoved(SessionStatus::DeadlineExceeded, 1);
    assert_eq!(moved(late).await, passed);
    let late = PlanEdit {
        at_us: DEADLINE,
        ..edit(session, 1, &first)
    };
    let passed = Moved::No(SessionStatus::DeadlineExceeded, 1);
    assert_eq!(store.edit(late).await.unwrap(), passed);
    assert_eq!(db.count("SELECT COUNT(*) FROM agent_run").await, 1);
    assert_eq!(shown(&store, session).await.status, waits);
}

/// P-102, P-202: a refinement that makes no plan leaves the earlier one, and says why. A first plan that is not made,
/// and a deadline, end the session.
pub(crate) async fn a_failed_refinement_leaves_the_earlier_plan(db: TestDb) {
    let store = db.open().await;
    let none = |reason| Planned::None(reason, "it was not possible".into());
    for reason in SessionReason::ALL.iter().copied() {
        let (session, first) = proposed(&store, &["write tests"]).await;
        let before = shown(&store, session).await;
        let run = refines(session, 1);
        let lease = begin(&store, &run).await;
        finish(&store, session, &run, lease, none(reason)).await;
        let after = shown(&store, session).await;
        let why = Some(why(reason, "it was not possible"));
        let kept = (after.version, &after.plan, &after.notes);
        assert_eq!(kept, (1, &before.plan, &first.notes));
        assert_eq!(versions(&store, session).await.len(), 1);
        let expected = SessionStatus::without_plan(reason, true);
        assert_eq!(after.status, expected, "{reason:?}");
        assert_eq!(after.completed_us.is_some(), expected.has_ended());
        match expected.has_ended() {
            true => assert_eq!((after.reason, after.refinement_failed), (why, None)),
            false => {
                assert_eq!((after.reason, after.refinement_failed), (None, why));
                // The next one says nothing of it.
                begin(&store, &refines(session, 1)).await;
                assert_eq!(shown(&store, session).await.refinement_failed, None);
            }
        }

        let session = PlanningSessionId::new();
        let run = starts(session);
        let lease = begin(&store, &run).await;
        finish(&store, session, &run, lease, none(reason)).await;
        let after = shown(&store, session).await;
        assert_eq!(after.status, SessionStatus::without_plan(reason, false), "{reason:?}");
        assert_eq!((after.version, after.completed_us), (0, Some(END)));
        assert_eq!(after.reason, Some(self::why(reason, "it was not possible")));
    }
}

/// P-102: cancelling ends the session with who and why, cancels its run, and enters it in the audit log. A plan that
/// the run makes afterwards changes nothing, and its end is still recorded.
pub(crate) async fn a_plan_made_after_its_session_was_cancelled_changes_nothing(db: TestDb) {
    let store = db.open().await;
    let session = PlanningSessionId::new();
    let run = starts(session);
    let lease = begin(&store, &run).await;
    assert_eq!(cancelled(&store, cancel(session)).await, Moved::Yes);
    let ended = shown(&store, session).await;
    let detail = "cancelled by grace: no longer wanted";
    assert_eq!(ended.status, SessionStatus::Cancelled);
    assert_eq!(ended.reason, Some(why(SessionReason::Cancelled, detail)));
    assert_eq!(ended.completed_us, Some(END + 7));
    assert!(store.is_cancelled(run.id).await.unwrap());
    let entry = format!(
        "SELECT actor, tenant, decision_id FROM audit WHERE kind = 'session_cancelled' AND subject = '{session}'"
    );
    assert_eq!(db.line(&entry).await, format!("grace default {}", run.id));

    finish(
        &store,
        session,
        &run,
        lease,
        made(&plan(session, None, &["write tests"])),
    )
    .await;
    assert_eq!(run_status(&store, run.id).await, RunStatus::Completed);
    let after = shown(&store, session).await;
    // Its tokens are counted.
    assert_eq!(after.usage.input_tokens, 11);
    assert_eq!(
        StoredSession {
            usage: ended.usage,
            is_at_work: ended.is_at_work,
            ..after
        },
        ended
    );
    assert_eq!(versions(&store, session).await, []);

    // Nothing is ended twice.
    let later = SessionCancel {
        at_us: END + 8,
        ..cancel(session)
    };
    assert_eq!(cancelled(&store, later).await, Moved::No(SessionStatus::Cancelled, 0));
    assert_eq!(
        cancelled(&store, cancel(PlanningSessionId::new())).await,
        Moved::NotFound
    );
    assert_eq!(store.sweep(DEADLINE, 0, 9).await.unwrap(), 0);
    assert_eq!(
        StoredSession {
            usage: ended.usage,
            is_at_work: ended.is_at_work,
            ..shown(&store, session).await
        },
        ended
    );

    // A queued run never begins; a session that waits has no run to cancel.
    let session = PlanningSessionId::new();
    let waiting = NewRun {
        origin: starts(session).origin,
        ..queued_run()
    };
    store.create(waiting.clone()).await.unwrap();
    let (other, _) = proposed(&store, &["write tests"]).await;
    for session in [session, other] {
        assert_eq!(cancelled(&store, cancel(session)).await, Moved::Yes);
    }
    assert_eq!(run_status(&store, waiting.id).await, RunStatus::Cancelled);
    let moved = store.create(refines(other, 1)).await.unwrap();
    assert_eq!(moved, Started::SessionMoved(SessionStatus::Cancelled, 1));
}

/// P-102, P-306: the deadline ends every session, also one that waits for confirmation. A session whose run ended
/// without moving it on waits again if it has a plan; otherwise it ends.
pub(crate) async fn a_sweep_ends_what_is_due_and_moves_on_what_was_left(db: TestDb) {
    let store = db.open().await;
    let (waits, _) = proposed(&store, &["write tests"]).await;
    let plans = PlanningSessionId::new();
    begin(&store, &starts(plans)).await;
    let (refined, first) = proposed(&store, &["write tests"]).await;
    let refinement = refines(refined, 1);
    let lease = begin(&store, &refinement).await;
    let end = finished(lease, &refinement, RunStatus::Failed, vec![]);
    store.commit(end.into()).await.unwrap();
    let given_up = PlanningSessionId::new();
    let run = starts(given_up);
    let lease = begin(&store, &run).await;
    store
        .commit(finished(lease, &run, RunStatus::Failed, vec![]).into())
        .await
        .unwrap();
    let stopped = PlanningSessionId::new();
    let run = NewRun {
        queued: true,
        ..starts(stopped)
    };
    store.create(run.clone()).await.unwrap();
    Runs::cancel(&*store, run.id, "grace").await.unwrap();
    assert_eq!(open(&db).await, 5);

    // Before the deadline only those whose runs have ended; no more than asked for.
    assert_eq!(store.sweep(DEADLINE - 1, 0, 2).await.unwrap(), 2);
    assert_eq!(store.sweep(DEADLINE - 1, 0, 9).await.unwrap(), 1);
    assert_eq!(store.sweep(DEADLINE - 1, 0, 9).await.unwrap(), 0);
    let after = shown(&store, refined).await;
    assert_eq!((after.status, after.version), (SessionStatus::AwaitingConfirmation, 1));
    assert_eq!(after.refinement_failed, Some(why(SessionReason::Internal, "cut short")));
    assert_eq!(after.plan, first.plan);
    let after = shown(&store, given_up).await;
    assert_eq!(
        (after.status, after.completed_us),
        (SessionStatus::Failed, Some(DEADLINE - 1))
    );
    assert_eq!(after.reason, Some(why(SessionReason::Internal, "cut short")));
    let after = shown(&store, stopped).await;
    assert_eq!(after.status, SessionStatus::Cancelled);
    assert_eq!(after.reason.unwrap().code, SessionReason::Cancelled);
    assert_eq!(open(&db).await, 3);

    assert_eq!(store.sweep(DEADLINE, 0, 2).await.unwrap(), 2);
    assert_eq!(store.sweep(DEADLINE, 0, 9).await.unwrap(), 1);
    for session in [waits, plans, refined] {
        let after = shown(&store, session).await;
        assert_eq!(after.status, SessionStatus::DeadlineExceeded);
        assert_eq!(after.completed_us, Some(DEADLINE));
        assert_eq!(after.reason.unwrap().code, SessionReason::Deadline);
    }
    assert_eq!(open(&db).await, 0);
}

/// P-203: an edit is checked against the version that the person saw, and the same request edits once.
pub(crate) async fn an_edit_is_of_the_current_version_and_counts_once(db: TestDb) {
    let store = db.open().await;
    let (session, first) = proposed(&store, &["write tests"]).await;
    let next = plan(session, Some(&first.plan), &["write tests", "parse weeks"]);
    let claimed = |scope: &str, body: &str, version| PlanEdit {
        claim: Some(key(scope, body)),
        ..edit(session, version, &next)
    };
    let waits = SessionStatus::AwaitingConfirmation;
    assert_eq!(store.edit(claimed("a", "body", 2)).await.unwrap(), Moved::No(waits, 1));
    // The key of a refused edit can be used again.
    assert_eq!(store.edit(claimed("a", "other", 1)).await.unwrap(), Moved::Yes);
    let later = PlanEdit {
        at_us: END + 6,
        ..claimed("a", "other", 1)
    };
    assert_eq!(store.edit(later.clone()).await.unwrap(), Moved::Yes);
    let other = PlanEdit {
        claim: Some(key("a", "body")),
        ..later
    };
    assert_eq!(store.edit(other).await.unwrap(), Moved::Mismatch);
    assert_eq!(versions(&store, session).await.len(), 2);
    assert_eq!(store.edit(edit(session, 1, &first)).await.unwrap(), Moved::No(waits, 2));
    let gone = edit(PlanningSessionId::new(), 1, &first);
    assert_eq!(store.edit(gone).await.unwrap(), Moved::NotFound);
    // Not while a refinement is in progress.
    begin(&store, &refines(session, 2)).await;
    let refused = Moved::No(SessionStatus::Planning, 2);
    assert_eq!(store.edit(edit(session, 2, &first)).await.unwrap(), refused);
}

/// P-103: an operation whose acknowledgement was lost is repeated, and has one effect.
pub(crate) async fn a_repeated_operation_on_a_session_has_one_effect(db: TestDb) {
    let store = db.open().await;
    let session = PlanningSessionId::new();
    let run = starts(session);
    let lease = begin(&store, &run).await;
    assert_eq!(begin(&store, &run).await, lease);
    let first = plan(session, None, &["write tests"]);
    for _ in 0..2 {
        finish(&store, session, &run, lease, made(&first)).await;
    }
    assert_eq!(shown(&store, session).await.version, 1);
    let refinement = refines(session, 1);
    let lease = begin(&store, &refinement).await;
    assert_eq!(begin(&store, &refinement).await, lease);
    for _ in 0..2 {
        let none = Planned::None(SessionReason::PlanInvalid, "no tasks".into());
        finish(&store, session, &refinement, lease, none).await;
    }
    // Also after the session has moved on.
    let next = refines(session, 1);
    begin(&store, &next).await;
    assert_eq!(
        store.create(refinement.clone()).await.unwrap(),
        Started::Now(Some(lease))
    );
    assert_eq!(shown(&store, session).await.run, next.id);
    let none = Planned::None(SessionReason::PlanInvalid, "no tasks".into());
    finish(&store, session, &refinement, lease, none).await;
    assert_eq!(shown(&store, session).await.status, SessionStatus::Planning);

    let (session, first) = proposed(&store, &["write tests"]).await;
    let second = plan(session, Some(&first.plan), &["parse weeks"]);
    for _ in 0..2 {
        assert_eq!(store.edit(edit(session, 1, &second)).await.unwrap(), Moved::Yes);
    }
    for _ in 0..2 {
        assert_eq!(cancelled(&store, cancel(session)).await, Moved::Yes);
    }
    assert_eq!(versions(&store, session).await.len(), 2);
    let entries = format!("SELECT COUNT(*) FROM audit WHERE subject = '{session}'");
    assert_eq!(db.count(&entries).await, 1);
}

/// P-103: writers that change the same sessions at once all succeed, and each session ends in one state.
pub(crate) async fn many_changes_at_once_all_succeed(db: TestDb) {
    let store = db.open().await;
    let mut sessions = Vec::new();
    for _ in 0..24 {
        let session = PlanningSessionId::new();
        let run = starts(session);
        let lease = begin(&store, &run).await;
        sessions.push((session, run, lease));
    }
    let ends = sessions.iter().map(async |(session, run, lease)| {
        let first = plan(*session, None, &["write tests"]);
        finish(&store, *session, run, *lease, made(&first)).await;
    });
    let cancels = sessions.iter().rev().map(async |(session, ..)| {
        assert_eq!(cancelled(&store, cancel(*session)).await, Moved::Yes);
    });
    let edits = sessions.iter().map(async |(session, ..)| {
        let second = plan(*session, None, &["parse weeks"]);
        store.edit(edit(*session, 1, &second)).await.unwrap();
    });
    let sweeps = (0..4).map(async |_| assert_eq!(store.sweep(DEADLINE - 1, 0, 99).await.unwrap(), 0));
    tokio::join!(join_all(ends), join_all(cancels), join_all(edits), join_all(sweeps));
    for (session, run, _) in &sessions {
        let after = shown(&store, *session).await;
        assert_eq!(after.status, SessionStatus::Cancelled);
        assert_eq!(versions(&store, *session).await.len(), after.version as usize);
        assert_eq!(run_status(&store, run.id).await, RunStatus::Completed);
    }
}

/// P-101: sessions are listed newest first, page by page, by each field; a user sees only their own.
pub(crate) async fn sessions_are_listed_by_their_fields(db: TestDb) {
    let store = db.open().await;
    let mut all = Vec::new();
    for n in 0_i64..7 {
        let session = PlanningSessionId::new();
        let work = SessionWork::Start {
            prompt: "p".into(),
            repo_url: format!("https://github.com/acme/{}", if n < 4 { "dates" } else { "times" }).into(),
            deadline_us: DEADLINE + n,
        };
        let mut run = works(session, work);
        run.decision.created_at = T0 + n;
        run.decision.user = UserId::parse(if n % 2 == 0 { "ann" } else { "grace" }).unwrap();
        begin(&store, &run).await;
        all.push(session);
    }
    assert_eq!(cancelled(&store, cancel(all[2])).await, Moved::Yes);
    let query = |filter: &str| ListQuery {
        page_size: 2,
        page_token: None,
        filter: Some(filter.to_owned()),
        order_by: None,
        user: None,
    };
    let listed = async |mut query: ListQuery| {
        let mut found = Vec::new();
        loop {
            let page = PlanningSessions::list(&*store, &tenant(), &query).await.unwrap();
            assert!(page.items.len() <= 2);
            found.extend(page.items.iter().map(|session| session.id));
            query.page_token = page.next_page_token;
            if query.page_token.is_none() {
                return found;
            }
        }
    };
    let of = |places: &[usize]| places.iter().map(|place| all[*place]).collect::<Vec<_>>();
    for (filter, expected) in [
        ("", &[6, 5, 4, 3, 2, 1, 0][..]),
        (r#"status = "PLANNING""#, &[6, 5, 4, 3, 1, 0]),
        (r#"status = "CANCELLED""#, &[2]),
        (r#"status != "PLANNING""#, &[2]),
        (r#"user_id = "grace""#, &[5, 3, 1]),
        (r#"repo_url = "https://github.com/acme/times""#, &[6, 5, 4]),
        (r#"repo_url = "https://github.com/*" AND user_id = "grace""#, &[5, 3, 1]),
        (r#"created_at > "2026-11-20T00:00:00.000005Z""#, &[6, 5]),
        (r#"deadline <= "2026-11-20T01:00:00.000002Z""#, &[1, 0]),
    ] {
        assert_eq!(listed(query(filter)).await, of(expected), "{filter}");
    }
    let oldest_first = ListQuery {
        order_by: Some("created_at".to_owned()),
        user: Some(ann()),
        ..query("")
    };
    assert_eq!(listed(oldest_first).await, of(&[0, 2, 4, 6]));
    let error = PlanningSessions::list(&*store, &tenant(), &query(r#"prompt = "p""#)).await;
    let QueryError::Invalid { detail, .. } = error.unwrap_err() else {
        panic!("it is no error of the query");
    };
    let fields = "status, user_id, repo_url, created_at, deadline";
    assert!(detail.contains(fields), "{detail}");
}

/// P-103: with `runs_kept`, a session that ended that long ago is deleted with its versions and then its runs. One that
/// has not ended is kept, with all its runs, however old they are.
pub(crate) async fn sessions_are_deleted_after_their_retention_time(db: TestDb) {
    let store = db.open().await;
    let (waits, first) = proposed(&store, &["write tests"]).await;
    let refinement = refines(waits, 1);
    let lease = begin(&store, &refinement).await;
    let second = plan(waits, Some(&first.plan), &["parse weeks"]);
    finish(&store, waits, &refinement, lease, made(&second)).await;
    let (recent, _) = proposed(&store, &["write tests"]).await;
    assert_eq!(cancelled(&store, cancel(recent)).await, Moved::Yes);
    db.run(&format!(
        "UPDATE planning_session SET completed_at = {} WHERE id = '{recent}'",
        i64::MAX / 4
    ))
    .await;
    for _ in 0..40 {
        let (old, _) = proposed(&store, &["write tests"]).await;
        assert_eq!(cancelled(&store, cancel(old)).await, Moved::Yes);
    }
    store.shutdown().await;
    db.run("UPDATE agent_run SET completed_at = 1").await;
    db.run(&format!(
        "UPDATE planning_session SET completed_at = 1 WHERE completed_at = {}",
        END + 7
    ))
    .await;
    let store = Store::open(StoreConfig {
        runs_kept: Some(Duration::from_secs(24 * 3600)),
        ..db.config()
    })
    .await
    .unwrap();
    eventually("old sessions and their runs are deleted", async || {
        db.count("SELECT COUNT(*) FROM agent_run").await <= 3
    })
    .await;
    assert_eq!(db.count("SELECT COUNT(*) FROM agent_run").await, 3);
    assert_eq!(db.count("SELECT COUNT(*) FROM planning_session").await, 2);
    assert_eq!(db.count("SELECT COUNT(*) FROM planning_change").await, 3);
    assert_eq!(versions(&store, waits).await.len(), 2);
    assert_eq!(shown(&store, waits).await.plan, second.plan);
    assert_eq!(shown(&store, recent).await.status, SessionStatus::Cancelled);
}

/// P-103, R-17: prompts and plans are working state. Without content the log keeps no text, and a session keeps all.
pub(crate) async fn without_content_the_session_keeps_all(db: TestDb) {
    let store = db.open_with(ContentMode::None).await;
    let (session, first) = proposed(&store, &["write tests"]).await;
    assert_eq!(cancelled(&store, cancel(session)).await, Moved::Yes);
    let after = shown(&store, session).await;
    assert_eq!((&*after.prompt, &after.plan), ("accept ISO weeks", &first.plan));
    assert_eq!(versions(&store, session).await[0].why, *first.why);
    let entry = format!("SELECT detail FROM audit WHERE subject = '{session}'");
    assert!(!db.line(&entry).await.contains("no longer wanted"));
    let message = format!("SELECT message FROM decision_log WHERE id = '{}'", after.run);
    assert_eq!(db.line(&message).await, "-");
    assert!(!open_decision().message.is_empty());
}

/// P-102: the database itself refuses rows that contradict themselves.
pub(crate) async fn the_table_of_sessions_refuses_contradictory_rows(db: TestDb) {
    let store = db.open().await;
    let (session, _) = proposed(&store, &["write tests"]).await;
    for contradiction in [
        "status = 'DONE'",
        "completed_at = 1",
        "status = 'COMPLETED'",
        "status = 'FAILED', completed_at = 1",
        "status = 'COMPLETED', completed_at = 1, status_code = 'internal', status_detail = 'x'",
        "status_code = 'internal', status_detail = 'x'",
        "version = -1",
        "version = 0",
        "plan = NULL",
        "notes = NULL",
        "version = 0, plan = NULL, notes = NULL",
        "refinement_code = 'internal'",
        "status = 'EXECUTING'",
        "status = 'COMPLETED', completed_at = 1",
        "cleanup = '{}'",
    ] {
        let update = format!("UPDATE planning_session SET {contradiction} WHERE id = '{session}'");
        assert!(db.try_run(&update).await.is_err(), "{contradiction}");
    }
    for contradiction in [
        "version = 0",
        "version = 2",
        "kind = 'thought'",
        "run_id = NULL",
        "plan = NULL",
    ] {
        let update = format!("UPDATE planning_change SET {contradiction} WHERE session_id = '{session}'");
        assert!(db.try_run(&update).await.is_err(), "{contradiction}");
    }
}
