//! Calls that require approval (promise: exact approvals; R-5, R-13, R-14).

use gavel::domain::action::{Action, ActionStatus, Resolution};
use gavel::domain::agent_run::{RunStatus, StopReason};
use gavel::domain::ids::{ActionId, GrantId, RunId};
use gavel::domain::tool::{FailureCode, Idempotency};
use gavel::engine::limits::Stop;
use gavel::engine::log::Halt;
use gavel::ports::actions::{Actions, Resolve, Resolved, Settle, SettleDone};
use gavel::ports::runs::Runs;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::crash::{Death, Dying};
use crate::model::{call, words};
use crate::rig::{Begun, Outcome, Rig};
use crate::support::{TestDb, tenant};
use crate::tools::Does;

const CLERK: &str = r#"
name: clerk
description: Works, with approval.
promptConfig: { query: "${query}", systemPrompt: clerk }
toolConfig: { tools: [read, send, book] }
"#;

const BOSS: &str = r#"
name: boss
description: Leads.
promptConfig: { query: "${query}", systemPrompt: boss }
sub_agents: [clerk]
"#;

fn go() -> Value {
    json!({"query": "go"})
}

fn answer(by: &str, action: &Action, resolution: Resolution, reason: Option<&str>) -> Resolve {
    Resolve {
        approval: action.approval.unwrap(),
        action: action.id,
        root: action.root,
        resolution,
        reason: reason.map(Into::into),
        by: by.into(),
        grant: None,
        words: "answered".into(),
    }
}

impl Rig {
    /// Drives a run until it waits for an approval.
    pub(crate) async fn waits(&self, begun: Begun) {
        let driven = self.drive(&self.process(self.store.clone()), begun).await;
        assert!(
            matches!(driven, Err(Stop::Suspended(id)) if id == begun.id),
            "{driven:?}"
        );
        assert_eq!(self.outcome(begun.id).await.status(), RunStatus::AwaitingConfirmation);
    }

    async fn actions(&self, root: RunId) -> Vec<Action> {
        self.store.of_run(root).await.unwrap()
    }

    /// The actions that wait for an approval.
    pub(crate) async fn questions(&self, root: RunId) -> Vec<Action> {
        let mut actions = self.actions(root).await;
        actions.retain(|action| action.status == ActionStatus::AwaitingConfirmation);
        actions
    }

    pub(crate) async fn says(
        &self,
        by: &str,
        action: &Action,
        resolution: Resolution,
        reason: Option<&str>,
    ) -> Resolved {
        self.store
            .resolve(answer(by, action, resolution, reason))
            .await
            .unwrap()
    }

    /// A worker claims a run whose approval request was resolved.
    pub(crate) async fn taken_up(&self, id: RunId) -> Begun {
        let lease = self.store.take(id).await.unwrap().expect("the run continues");
        Begun { id, lease }
    }

    /// Drives a run to its end, in as many processes as necessary: a process whose approval has expired releases the
    /// run, and the next one claims it.
    async fn ends(&self, begun: Begun) -> Outcome {
        let mut at = Some(begun);
        while let Some(begun) = at {
            at = match self.drive(&self.process(self.store.clone()), begun).await {
                Err(Stop::LeaseLost | Stop::ApprovalGone) => self.take_over(begun).await,
                over => {
                    over.unwrap();
                    None
                }
            };
        }
        self.outcome(begun.id).await
    }

    pub(crate) async fn statuses(&self, root: RunId) -> Vec<ActionStatus> {
        self.actions(root).await.iter().map(|action| action.status).collect()
    }
}

/// R-5, R-14: a call that requires approval waits, is approved with its exact arguments, and runs once. The log names
/// the approver.
pub(crate) async fn a_call_that_requires_approval_waits_for_it_and_runs_once(db: TestDb) {
    let rig = Rig::on(db, &[CLERK]).await;
    rig.model
        .script("clerk", [call("send", json!({"to": "bob"})), words("Sent.")]);
    let begun = rig.begin("clerk", go(), None).await;
    rig.waits(begun).await;
    assert_eq!(rig.tools.calls("send"), 0, "nothing runs without approval");
    let [question] = &rig.questions(begun.id).await[..] else {
        panic!("one approval request")
    };
    assert_eq!(
        (question.tool.as_str(), question.arguments.get()),
        ("send", r#"{"to":"bob"}"#)
    );
    assert!(
        question.details.reason.contains("changes something outside gavel"),
        "{question:?}"
    );
    assert!(question.expires_at > Some(question.created_at));
    assert!(
        rig.store.take(begun.id).await.unwrap().is_none(),
        "no worker claims a waiting run"
    );

    assert_eq!(
        rig.says("user:ann", question, Resolution::ApproveOnce, None).await,
        Resolved::Done
    );
    assert_eq!(
        rig.says("user:ann", question, Resolution::ApproveOnce, None).await,
        Resolved::Again
    );
    let late = rig.says("user:eve", question, Resolution::Reject, None).await;
    assert!(
        matches!(&late, Resolved::Late(_, Some(Resolution::ApproveOnce), Some(by)) if by == "user:ann"),
        "{late:?}"
    );
    let run = rig.finish(rig.taken_up(begun.id).await).await;
    assert_eq!((run.status(), run.summary()), (RunStatus::Completed, "Sent."));
    assert_eq!(run.row.recovered_from, None, "waiting is not a crash");
    assert_eq!(rig.tools.calls("send"), 1);
    let [action] = &rig.actions(begun.id).await[..] else {
        panic!("one action")
    };
    assert_eq!(
        (action.status, action.resolved_by.as_deref()),
        (ActionStatus::Completed, Some("user:ann"))
    );
}

/// R-13: several calls of one turn can wait, and each is resolved separately, in any order. An approved call runs at
/// once. The model is asked again when all are resolved, and receives each rejection with its reason.
pub(crate) async fn several_approval_requests_of_a_turn_are_resolved_separately(db: TestDb) {
    let rig = Rig::on(db, &[CLERK]).await;
    let turn = call("send", json!({"to": "bob"}))
        .and("read", json!({}))
        .and("book", json!({"room": 1}))
        .and("send", json!({"to": "eve"}));
    rig.model.answers("clerk", move |asked| match asked.before {
        0 => turn.clone(),
        _ => {
            assert_eq!(
                asked.failures()[..],
                [Some(FailureCode::Rejected), None, None, Some(FailureCode::Rejected)]
            );
            words("One was booked.")
        }
    });
    let begun = rig.begin("clerk", go(), None).await;
    rig.waits(begun).await;
    assert_eq!((rig.tools.calls("read"), rig.questions(begun.id).await.len()), (1, 3));
    for (n, resolution) in [(2, Resolution::Reject), (1, Resolution::ApproveOnce)] {
        let question = rig.questions(begun.id).await.remove(n);
        rig.says("user:ann", &question, resolution, Some("not her")).await;
        rig.waits(rig.taken_up(begun.id).await).await;
    }
    assert_eq!(
        rig.tools.calls("book"),
        1,
        "an approved call does not wait for the others"
    );
    assert_eq!(rig.model.asked().len(), 1, "the model waits for all of them");
    let question = rig.questions(begun.id).await.remove(0);
    rig.says("user:ann", &question, Resolution::Reject, None).await;
    let run = rig.finish(rig.taken_up(begun.id).await).await;
    assert_eq!((run.status(), run.summary()), (RunStatus::Completed, "One was booked."));
    assert_eq!(rig.tools.calls("send"), 0);
    let over = [ActionStatus::Rejected, ActionStatus::Completed, ActionStatus::Rejected];
    assert_eq!(rig.statuses(begun.id).await, over);
}

/// X-15: an approval request of a called agent suspends its callers too. They all continue with its resolution.
pub(crate) async fn a_called_agent_that_waits_for_approval_suspends_its_callers(db: TestDb) {
    let rig = Rig::on(db, &[BOSS, CLERK]).await;
    rig.model
        .script("boss", [call("clerk", json!({"query": "send"})), words("All done.")]);
    rig.model
        .script("clerk", [call("send", json!({"to": "bob"})), words("Sent.")]);
    let begun = rig.begin("boss", go(), None).await;
    rig.waits(begun).await;
    assert_eq!(
        rig.runs().await,
        ["boss awaiting_confirmation", "clerk awaiting_confirmation"]
    );
    let question = rig.questions(begun.id).await.remove(0);
    assert_eq!((question.root, question.agent.as_str()), (begun.id, "clerk"));
    rig.says("user:ann", &question, Resolution::ApproveOnce, None).await;
    let run = rig.finish(rig.taken_up(begun.id).await).await;
    assert_eq!((run.status(), run.summary()), (RunStatus::Completed, "All done."));
    assert_eq!(rig.runs().await, ["boss completed", "clerk completed"]);
    assert_eq!((rig.tools.calls("send"), rig.model.asked().len()), (1, 4));
}

/// R-14: of fifty concurrent answers exactly one wins, and the other callers learn whose it was.
pub(crate) async fn of_fifty_concurrent_answers_exactly_one_wins(db: TestDb) {
    let rig = Rig::on(db, &[CLERK]).await;
    rig.model
        .script("clerk", [call("send", json!({"to": "bob"})), words("Over.")]);
    let begun = rig.begin("clerk", go(), None).await;
    rig.waits(begun).await;
    let question = rig.questions(begun.id).await.remove(0);
    let answers = (0..50).map(|n| {
        let resolution = match n % 2 {
            0 => Resolution::ApproveOnce,
            _ => Resolution::Reject,
        };
        let (rig, question) = (&rig, &question);
        async move { rig.says(&format!("user:{n}"), question, resolution, None).await }
    });
    let answers = futures_util::future::join_all(answers).await;
    let won = answers.iter().filter(|answer| **answer == Resolved::Done).count();
    assert_eq!(won, 1, "{answers:?}");
    let winner = answers.iter().position(|answer| *answer == Resolved::Done).unwrap();
    for answer in answers.iter().filter(|answer| **answer != Resolved::Done) {
        let by = format!("user:{winner}");
        assert!(
            matches!(answer, Resolved::Late(_, Some(_), Some(name)) if *name == by),
            "{answer:?}"
        );
    }
    rig.finish(rig.taken_up(begun.id).await).await;
    assert_eq!(rig.tools.calls("send"), 1 - winner % 2);
}

/// An approval request without an answer expires in time. The call does not run, and the model receives that.
pub(crate) async fn an_unanswered_approval_request_expires(db: TestDb) {
    let rig = Rig::on(db, &[CLERK]).await;
    rig.model.answers("clerk", |asked| match asked.before {
        0 => call("send", json!({"to": "bob"})),
        _ => {
            assert_eq!(asked.failures()[..], [Some(FailureCode::Expired)]);
            words("No answer came.")
        }
    });
    let begun = rig.begin("clerk", go(), None).await;
    rig.waits(begun).await;
    assert!(
        rig.store.expire(10).await.unwrap().is_empty(),
        "an approval request is valid for a day"
    );
    let question = rig.questions(begun.id).await.remove(0);
    rig.db.run("UPDATE agent_action SET expires_at = created_at").await;
    let late = rig.says("user:ann", &question, Resolution::ApproveOnce, None).await;
    assert_eq!(late, Resolved::Late(ActionStatus::Expired, None, None));
    let run = rig.finish(rig.taken_up(begun.id).await).await;
    assert_eq!((run.status(), run.summary()), (RunStatus::Completed, "No answer came."));
    assert_eq!(
        (rig.tools.calls("send"), rig.statuses(begun.id).await),
        (0, vec![ActionStatus::Expired])
    );
}

/// Promise: exact approvals. An approved call that did not start in time does not run, even if the process had already
/// read the approval. If a process dies in between, the rows show what was done.
pub(crate) async fn an_approval_that_expires_before_the_call_starts_does_not_count(db: TestDb) {
    let mut rig = Rig::on(db, &[CLERK]).await;
    let (mut expired, mut done) = (0, 0);
    for death in [Death::Before, Death::After] {
        for write in 1.. {
            rig = rig.afresh();
            let turn = call("book", json!({"room": 1})).and("book", json!({"room": 2}));
            rig.model.answers("clerk", move |asked| match asked.before {
                0 => turn.clone(),
                _ => words("Over."),
            });
            let begun = rig.begin("clerk", go(), None).await;
            rig.waits(begun).await;
            for question in rig.questions(begun.id).await {
                rig.says("user:ann", &question, Resolution::ApproveOnce, None).await;
            }
            let begun = rig.taken_up(begun.id).await;
            let dying = Dying::at(&rig.store, write, death);
            let first = rig.drive(&rig.process(dying), begun).await;
            rig.db
                .run("UPDATE agent_action SET expires_at = created_at WHERE expires_at IS NOT NULL")
                .await;
            if first.is_ok() {
                break;
            }
            let run = match rig.take_over(begun).await {
                Some(begun) => rig.ends(begun).await,
                None => rig.outcome(begun.id).await,
            };
            let status = rig.statuses(begun.id).await;
            let reported = format!("{death:?} write {write}: {:?} {status:?}", run.row);
            assert_eq!(run.status(), RunStatus::Completed, "{reported}");
            let completed = status.iter().filter(|one| **one == ActionStatus::Completed).count();
            let over = status.iter().filter(|one| **one == ActionStatus::Expired).count();
            assert_eq!(
                (rig.tools.effects().len(), completed + over),
                (completed, 2),
                "{reported}"
            );
            (expired, done) = (expired + over, done + completed);
        }
    }
    assert!(expired > 2 && done > 2, "{expired} {done}");
}

const READER: &str = r#"
name: reader
description: Reads, with approval.
promptConfig: { query: "${query}", systemPrompt: reader }
toolConfig: { tools: [read, look] }
approval: always
"#;

/// Promises: exact approvals, truthful states. A read that was put up for approval requires its approval too, and the
/// rows record that the approval was used.
pub(crate) async fn a_read_that_requires_approval_starts_only_with_it(db: TestDb) {
    let rig = Rig::on(db, &[READER]).await;
    rig.model.answers("reader", |asked| match asked.before {
        0 => call("read", json!({"n": 1})).and("look", json!({"n": 2})),
        _ => {
            assert_eq!(asked.failures()[..], [None, Some(FailureCode::Expired)]);
            words("Read.")
        }
    });
    let begun = rig.begin("reader", go(), None).await;
    rig.waits(begun).await;
    let questions = rig.questions(begun.id).await;
    for question in &questions {
        rig.says("user:ann", question, Resolution::ApproveOnce, None).await;
    }
    let late = format!(
        "UPDATE agent_action SET expires_at = created_at WHERE id = '{}'",
        questions[1].id
    );
    rig.db.run(&late).await;
    let run = rig.ends(rig.taken_up(begun.id).await).await;
    assert_eq!((run.status(), run.summary()), (RunStatus::Completed, "Read."));
    assert_eq!((rig.tools.calls("read"), rig.tools.calls("look")), (1, 0));
    let actions = rig.actions(begun.id).await;
    let reported: Vec<_> = actions
        .iter()
        .map(|action| (action.status, action.started_at.is_some()))
        .collect();
    assert_eq!(
        reported,
        [(ActionStatus::Completed, true), (ActionStatus::Expired, false)]
    );
    let entered = "SELECT kind FROM audit WHERE kind LIKE 'effect%' OR kind = 'approval_expired'";
    assert_eq!(
        rig.db.rows(entered).await.concat(),
        [Some("approval_expired".to_owned())]
    );
}

/// Promise: truthful states. A read is never in doubt, even if its process died within the call and the journal can no
/// longer be read.
pub(crate) async fn a_read_is_never_in_doubt(db: TestDb) {
    let rig = Rig::on(db, &[LEADER, MIDDLE, READER]).await;
    rig.model.script("leader", [call("reader", go())]);
    rig.model.script("reader", [call("read", json!({}))]);
    rig.tools.script("read", [Does::Never]);
    let begun = rig.begin("leader", go(), None).await;
    rig.waits(begun).await;
    let question = rig.questions(begun.id).await.remove(0);
    rig.says("user:ann", &question, Resolution::ApproveOnce, None).await;
    let begun = rig.taken_up(begun.id).await;
    let process = rig.process(rig.store.clone());
    tokio::select! {
        ended = rig.drive(&process, begun) => panic!("{ended:?}"),
        () = rig.tools.waited_for.notified() => {}
    }
    assert_eq!(rig.statuses(begun.id).await, [ActionStatus::Executing]);
    let broken = format!("UPDATE agent_run_entry SET body = '{{}}' WHERE run_id = '{}'", begun.id);
    rig.db.run(&broken).await;
    let ended = rig.take_over(begun).await.unwrap();
    rig.drive(&process, ended).await.unwrap();
    assert_eq!(rig.runs().await, ["leader failed", "reader failed"]);
    assert_eq!(rig.statuses(begun.id).await, [ActionStatus::Failed]);
    assert_eq!(
        rig.db
            .rows("SELECT kind FROM audit WHERE kind LIKE 'effect%'")
            .await
            .len(),
        0
    );
}

/// Ann approves the call and creates a grant.
async fn allowed_for_good(rig: &Rig, question: &Action) -> GrantId {
    let grant = GrantId::new();
    let always = Resolve {
        grant: Some(grant),
        ..answer("user:ann", question, Resolution::ApproveAndAlwaysAllowRecipient, None)
    };
    assert_eq!(rig.store.resolve(always).await.unwrap(), Resolved::Done);
    grant
}

const MAILER: &str = r#"
name: mailer
description: Writes, with approval.
promptConfig: { query: "${query}", systemPrompt: mailer }
toolConfig: { tools: [mail, letter] }
"#;

/// R-11, R-15: reads under a grant follow the same rules: each use is counted. No read starts under a grant that was
/// revoked while earlier calls ran.
pub(crate) async fn reads_under_a_grant_are_counted_and_stop_when_it_is_revoked(db: TestDb) {
    let rig = Rig::on(db, &[PEEKER]).await;
    let to = |n: u32| json!({"to": "bob@example.com", "n": n});
    rig.model.answers("peeker", move |asked| match asked.before {
        0 => call("mail", to(1)).and("peek", to(1)),
        1 => call("peek", to(2)),
        2 => call("mail", to(3)).and("peek", to(3)),
        _ => words("Done."),
    });
    let begun = rig.begin("peeker", go(), None).await;
    rig.waits(begun).await;
    let mut grants = Vec::new();
    for question in rig.questions(begun.id).await {
        let grant = allowed_for_good(&rig, &question).await;
        grants.push((question.tool.clone(), grant));
    }
    let (_, peek) = grants.iter().find(|(tool, _)| tool == "peek").unwrap();
    rig.tools.script("mail", [Does::Answers(json!("sent")), Does::Waits]);
    let begun = rig.taken_up(begun.id).await;
    let process = rig.process(rig.store.clone());
    let (left, ()) = tokio::join!(rig.drive(&process, begun), async {
        rig.tools.waited_for.notified().await;
        let uses = format!("SELECT uses FROM approval_grant WHERE id = '{peek}'");
        assert_eq!(rig.db.line(&uses).await, "1");
        assert!(rig.store.revoke(&tenant(), None, *peek, "ann").await.unwrap());
        rig.tools.continues.notify_one();
    });
    assert!(matches!(left, Err(Stop::ApprovalGone)), "{left:?}");
    assert_eq!((rig.tools.calls("mail"), rig.tools.calls("peek")), (2, 2));
    let begun = rig.take_over(begun).await.unwrap();
    rig.waits(begun).await;
    let question = rig.questions(begun.id).await.remove(0);
    assert_eq!(
        (question.tool.as_str(), question.arguments.get()),
        ("peek", to(3).to_string().as_str())
    );
    rig.says("user:ann", &question, Resolution::ApproveOnce, None).await;
    let run = rig.ends(rig.taken_up(begun.id).await).await;
    assert_eq!((run.status(), rig.tools.calls("peek")), (RunStatus::Completed, 3));
    let read = "SELECT COUNT(*) FROM agent_action WHERE tool = 'peek' AND status = 'completed'";
    assert_eq!(rig.db.line(read).await, "3");
}

const PEEKER: &str = r#"
name: peeker
description: Reads and writes, with approval.
promptConfig: { query: "${query}", systemPrompt: peeker }
toolConfig: { tools: [mail, peek] }
approval: always
"#;

/// A run that sends two letters, with a grant created by the approval of the first.
async fn two_letters(rig: &Rig) -> (Begun, GrantId) {
    let letter = |n: u32| json!({"to": "bob@example.com", "n": n});
    rig.model.answers("mailer", move |asked| match asked.before {
        0 => call("letter", letter(1)),
        1 => call("letter", letter(2)),
        _ => words("Two are sent."),
    });
    let begun = rig.begin("mailer", go(), None).await;
    rig.waits(begun).await;
    let question = rig.questions(begun.id).await.remove(0);
    let grant = allowed_for_good(rig, &question).await;
    (begun, grant)
}

/// R-15. Promises: at most once, exact approvals. A call that started under a grant and was interrupted by a crash is
/// sent again only while the grant is active.
pub(crate) async fn an_interrupted_call_is_not_sent_again_under_a_revoked_grant(db: TestDb) {
    let mut rig = Rig::on(db, &[MAILER]).await;
    for taken_back in [false, true] {
        rig = rig.afresh();
        let (begun, grant) = two_letters(&rig).await;

        rig.tools.script("letter", [Does::Answers(json!("sent")), Does::Never]);
        let begun = rig.taken_up(begun.id).await;
        let process = rig.process(rig.store.clone());
        tokio::select! {
            ended = rig.drive(&process, begun) => panic!("{ended:?}"),
            () = rig.tools.waited_for.notified() => {}
        }
        if taken_back {
            assert!(rig.store.revoke(&tenant(), None, grant, "ann").await.unwrap());
        }
        let run = rig.finish(rig.take_over(begun).await.unwrap()).await;
        let (status, calls) = match taken_back {
            false => (RunStatus::Completed, 3),
            true => (RunStatus::Paused, 2),
        };
        assert_eq!(
            (run.status(), rig.tools.calls("letter")),
            (status, calls),
            "{taken_back}"
        );
        assert_eq!(run.row.in_doubt.len(), usize::from(taken_back));
        if !taken_back {
            assert!(rig.store.revoke(&tenant(), None, grant, "ann").await.unwrap());
        }
    }
}

/// Promises: at most once, exact approvals. A call without an answer is sent again only while everything that allowed
/// it is still valid: the approval, the unchanged tool, and the run, which another process may have cancelled.
/// Otherwise it is in doubt.
pub(crate) async fn a_call_is_sent_again_only_while_what_allowed_it_is_still_valid(db: TestDb) {
    let mut rig = Rig::on(db, &[MAILER]).await;
    for meanwhile in ["nothing", "taken back", "another tool", "cancelled"] {
        rig = rig.afresh();
        let (begun, grant) = two_letters(&rig).await;
        rig.tools
            .script("letter", [Does::Answers(json!("sent")), Does::WaitsAndIsLost]);
        let begun = rig.taken_up(begun.id).await;
        let process = rig.process(rig.store.clone());
        let (ended, ()) = tokio::join!(rig.drive(&process, begun), async {
            rig.tools.waited_for.notified().await;
            match meanwhile {
                "taken back" => assert!(rig.store.revoke(&tenant(), None, grant, "ann").await.unwrap()),
                "another tool" => rig.tools.redefine_unnoticed("letter"),
                "cancelled" => rig.store.cancel(begun.id, "ann").await.unwrap(),
                _ => {}
            }
            rig.tools.continues.notify_one();
        });
        ended.unwrap();
        let (calls, second) = match meanwhile {
            "nothing" => (3, ActionStatus::Completed),
            _ => (2, ActionStatus::InDoubt),
        };
        assert_eq!(rig.tools.calls("letter"), calls, "{meanwhile}");
        assert_eq!(
            rig.statuses(begun.id).await,
            [ActionStatus::Completed, second],
            "{meanwhile}"
        );
        let _ = rig.store.revoke(&tenant(), None, grant, "ann").await.unwrap();
    }
}

/// R-17: a call that started and could not be sent is logged as such, not as running, while its neighbor waits.
pub(crate) async fn a_call_that_could_not_be_sent_is_logged_as_such_while_its_neighbor_waits(db: TestDb) {
    let rig = Rig::on(db, &[CLERK]).await;
    rig.model.answers("clerk", |asked| match asked.before {
        0 => call("send", json!({"to": "bob"})).and("book", json!({})),
        _ => words("Over."),
    });
    rig.tools.script("send", [Does::IsAway]);
    let begun = rig.begin("clerk", go(), None).await;
    rig.waits(begun).await;
    let questions = rig.questions(begun.id).await;
    rig.says("user:ann", &questions[0], Resolution::ApproveOnce, None).await;
    rig.waits(rig.taken_up(begun.id).await).await;
    assert_eq!(
        rig.statuses(begun.id).await,
        [ActionStatus::Failed, ActionStatus::AwaitingConfirmation]
    );
    let logged = "SELECT tool, status, error_code FROM tool_invocation_log";
    assert_eq!(rig.db.line(logged).await, "send not_sent unavailable");
}

/// R-15. Promise: exact approvals. After a grant is revoked no call starts under it, not even a later call of the turn
/// that had read it. The grant counts the calls that it allowed.
pub(crate) async fn no_call_starts_under_a_revoked_grant(db: TestDb) {
    let rig = Rig::on(db, &[MAILER]).await;
    let mail = |n: u32| json!({"to": "bob@example.com", "n": n});
    rig.model.answers("mailer", move |asked| match asked.before {
        0 => call("mail", mail(1)),
        1 => call("mail", mail(2)).and("mail", mail(3)),
        _ => {
            assert_eq!(asked.failures()[..], [None, Some(FailureCode::Rejected)]);
            words("Two are sent.")
        }
    });
    let begun = rig.begin("mailer", go(), None).await;
    rig.waits(begun).await;
    let question = rig.questions(begun.id).await.remove(0);
    let grant = allowed_for_good(&rig, &question).await;

    rig.tools.script("mail", [Does::Answers(json!("sent")), Does::Waits]);
    let begun = rig.taken_up(begun.id).await;
    let process = rig.process(rig.store.clone());
    let (left, ()) = tokio::join!(rig.drive(&process, begun), async {
        rig.tools.waited_for.notified().await;
        assert!(rig.store.revoke(&tenant(), None, grant, "ann").await.unwrap());
        rig.tools.continues.notify_one();
    });
    assert!(matches!(left, Err(Stop::ApprovalGone)), "{left:?}");
    let begun = rig.take_over(begun).await.unwrap();
    rig.waits(begun).await;
    assert_eq!(rig.tools.calls("mail"), 2);
    let question = rig.questions(begun.id).await.remove(0);
    assert_eq!(question.arguments.get(), mail(3).to_string());
    assert_eq!(rig.db.line("SELECT uses FROM approval_grant").await, "1");
    rig.says("user:ann", &question, Resolution::Reject, None).await;
    let run = rig.ends(rig.taken_up(begun.id).await).await;
    assert_eq!((run.status(), run.summary()), (RunStatus::Completed, "Two are sent."));
    assert_eq!(rig.tools.calls("mail"), 2);
}

/// Promise: exact approvals. A tool that changes while another approved call runs is not called: the approval is for
/// the tool as it was.
pub(crate) async fn an_approved_tool_that_changes_while_another_runs_is_not_called(db: TestDb) {
    let mut rig = Rig::on(db, &[CLERK]).await;
    for approved_before in [true, false] {
        rig = rig.afresh();
        rig.model.answers("clerk", |asked| match asked.before {
            0 => call("book", json!({"room": 1})).and("send", json!({"to": "bob"})),
            _ => {
                assert_eq!(asked.failures()[..], [None, Some(FailureCode::Unavailable)]);
                words("The other one has changed.")
            }
        });
        let begun = rig.begin("clerk", go(), None).await;
        rig.waits(begun).await;
        let [book, send] = <[_; 2]>::try_from(rig.questions(begun.id).await).unwrap();
        rig.says("user:ann", &book, Resolution::ApproveOnce, None).await;
        if approved_before {
            rig.says("user:ann", &send, Resolution::ApproveOnce, None).await;
        }
        rig.tools.script("book", [Does::Waits]);
        let begun = rig.taken_up(begun.id).await;
        let process = rig.process(rig.store.clone());
        let (driven, ()) = tokio::join!(rig.drive(&process, begun), async {
            rig.tools.waited_for.notified().await;
            rig.tools.redefine("send");
            if !approved_before {
                rig.says("user:ann", &send, Resolution::ApproveOnce, None).await;
            }
            rig.tools.continues.notify_one();
        });
        driven.unwrap();
        let run = rig.outcome(begun.id).await;
        assert_eq!(
            (run.status(), run.summary()),
            (RunStatus::Completed, "The other one has changed.")
        );
        assert_eq!((rig.tools.calls("book"), rig.tools.calls("send")), (1, 0));
        assert_eq!(
            rig.statuses(begun.id).await,
            [ActionStatus::Completed, ActionStatus::Failed]
        );
    }
}

/// R-15. Promise: exact approvals. A grant is for the tool as it was. A changed definition may reach other people
/// through other arguments.
pub(crate) async fn a_grant_does_not_cover_a_changed_tool(db: TestDb) {
    let rig = Rig::on(db, &[MAILER]).await;
    rig.model.answers("mailer", |asked| match asked.before {
        0 => call("mail", json!({"to": "bob@example.com", "n": 1})),
        _ => words("Sent."),
    });
    let begun = rig.begin("mailer", go(), None).await;
    rig.waits(begun).await;
    let question = rig.questions(begun.id).await.remove(0);
    let always = Resolve {
        grant: Some(GrantId::new()),
        ..answer("user:ann", &question, Resolution::ApproveAndAlwaysAllowRecipient, None)
    };
    assert_eq!(rig.store.resolve(always).await.unwrap(), Resolved::Done);
    rig.finish(rig.taken_up(begun.id).await).await;
    let run = rig.finish(rig.begin("mailer", go(), None).await).await;
    assert_eq!((run.status(), rig.tools.calls("mail")), (RunStatus::Completed, 2));
    rig.tools.redefine("mail");
    rig.waits(rig.begin("mailer", go(), None).await).await;
    assert_eq!(rig.tools.calls("mail"), 2);
}

/// R-15. Promise: exact approvals. This holds even if the server has not announced the change: it is asked just before
/// the call starts.
pub(crate) async fn a_grant_does_not_cover_a_tool_that_changed_without_notice(db: TestDb) {
    let rig = Rig::on(db, &[MAILER]).await;
    rig.model.answers("mailer", |asked| match asked.before {
        0 => call("mail", json!({"to": "bob@example.com", "n": 1})),
        _ if asked.failures()[..] == [Some(FailureCode::Unavailable)] => words("It has changed."),
        _ => words("Sent."),
    });
    let begun = rig.begin("mailer", go(), None).await;
    rig.waits(begun).await;
    let question = rig.questions(begun.id).await.remove(0);
    let always = Resolve {
        grant: Some(GrantId::new()),
        ..answer("user:ann", &question, Resolution::ApproveAndAlwaysAllowRecipient, None)
    };
    assert_eq!(rig.store.resolve(always).await.unwrap(), Resolved::Done);
    rig.finish(rig.taken_up(begun.id).await).await;
    assert_eq!(rig.tools.calls("mail"), 1);
    rig.tools.redefine_unnoticed("mail");
    let run = rig.finish(rig.begin("mailer", go(), None).await).await;
    assert_eq!(run.summary(), "It has changed.");
    // From now on the call requires an approval.
    rig.waits(rig.begin("mailer", go(), None).await).await;
    assert_eq!(rig.tools.calls("mail"), 1);
}

/// R-14. Promise: exact approvals. An approval covers what the approver was shown. If the row is changed in the
/// database, nothing is sent.
pub(crate) async fn an_approval_does_not_cover_a_row_that_was_changed_in_the_database(db: TestDb) {
    let rig = Rig::on(db, &[CLERK]).await;
    rig.model.answers("clerk", |asked| match asked.before {
        0 => call("send", json!({"to": "thief"})),
        _ => {
            assert_eq!(asked.failures()[..], [Some(FailureCode::Denied)]);
            words("It was not sent.")
        }
    });
    let begun = rig.begin("clerk", go(), None).await;
    rig.waits(begun).await;
    let question = rig.questions(begun.id).await.remove(0);
    let friend = r#"arguments = '{"to":"friend"}'"#;
    rig.db.run("CREATE TABLE was AS SELECT * FROM agent_action").await;
    for change in [
        friend,
        r#"details = '{"reason":"routine"}'"#,
        "details = 'x'",
        "details = NULL",
    ] {
        rig.db.run(&format!("UPDATE agent_action SET {change}")).await;
        for yes in [Resolution::ApproveOnce, Resolution::ApproveAndAlwaysAllowRecipient] {
            assert_eq!(
                rig.says("user:ann", &question, yes, None).await,
                Resolved::Changed,
                "{change}"
            );
        }
        rig.db
            .run("DELETE FROM agent_action; INSERT INTO agent_action SELECT * FROM was")
            .await;
    }
    assert_eq!(rig.db.line("SELECT COUNT(*) FROM approval_grant").await, "0");
    let yes = rig.says("user:ann", &question, Resolution::ApproveOnce, None).await;
    assert_eq!(yes, Resolved::Done);
    // Also if the row changes after the answer.
    rig.db.run(&format!("UPDATE agent_action SET {friend}")).await;
    let run = rig.ends(rig.taken_up(begun.id).await).await;
    assert_eq!(
        (run.status(), run.summary()),
        (RunStatus::Completed, "It was not sent.")
    );
    assert_eq!(rig.tools.calls("send"), 0);
    assert_eq!(rig.statuses(begun.id).await, [ActionStatus::Failed]);
}

/// A run does not wait for an answer that was given while it was driven, even though the request could no longer be
/// made: the tool has changed.
pub(crate) async fn an_answer_that_arrives_while_another_is_read_is_read_too(db: TestDb) {
    let rig = Rig::on(db, &[CLERK]).await;
    rig.model.answers("clerk", |asked| match asked.before {
        0 => call("send", json!({"to": "bob"})).and("book", json!({})),
        _ => {
            let gone = Some(FailureCode::Unavailable);
            assert_eq!(asked.failures()[..], [gone, gone]);
            words("They have changed.")
        }
    });
    let begun = rig.begin("clerk", go(), None).await;
    rig.waits(begun).await;
    let questions = rig.questions(begun.id).await;
    rig.tools.redefine("send");
    rig.tools.redefine("book");
    rig.says("user:ann", &questions[0], Resolution::ApproveOnce, None).await;
    let begun = rig.taken_up(begun.id).await;
    let held = Dying::at(&rig.store, 1, Death::Held);
    let process = rig.process(held.clone());
    let (ended, ()) = tokio::join!(rig.drive(&process, begun), async {
        // The process has read the first answer and is about to write it.
        held.held.notified().await;
        rig.says("user:ann", &questions[1], Resolution::ApproveOnce, None).await;
        held.continues.notify_one();
    });
    ended.unwrap();
    let run = rig.outcome(begun.id).await;
    assert_eq!(
        (run.status(), run.summary()),
        (RunStatus::Completed, "They have changed.")
    );
    assert_eq!(rig.tools.effects(), []);
}

/// A process dies before it makes an approval request, and the tool changes. The call gets a result, because no
/// approver could be asked about it.
pub(crate) async fn a_run_never_waits_for_a_request_that_was_not_made(db: TestDb) {
    let rig = Rig::on(db, &[CLERK]).await;
    rig.model.answers("clerk", |asked| match asked.before {
        0 => call("send", json!({"to": "bob"})),
        _ => {
            assert_eq!(asked.failures()[..], [Some(FailureCode::Unavailable)]);
            words("It has changed.")
        }
    });
    let begun = rig.begin("clerk", go(), None).await;
    // The task, the turn as decided, and then the approval request.
    let dying = Dying::at(&rig.store, 3, Death::Before);
    let died = rig.drive(&rig.process(dying), begun).await;
    assert!(matches!(died, Err(Stop::Record(_))), "{died:?}");
    rig.tools.redefine("send");
    let run = rig.finish(rig.take_over(begun).await.unwrap()).await;
    assert_eq!((run.status(), run.summary()), (RunStatus::Completed, "It has changed."));
    assert_eq!(rig.statuses(begun.id).await, []);
}

const LEADER: &str = r#"
name: leader
description: Leads, and writes with approval.
promptConfig: { query: "${query}", systemPrompt: leader }
toolConfig: { tools: [send] }
sub_agents: [middle, reader]
"#;

const MIDDLE: &str = r#"
name: middle
description: Calls the reader.
promptConfig: { query: "${query}", systemPrompt: middle }
sub_agents: [reader]
"#;

/// Promise: truthful states. An approval request ends with its call. Here the agent's time runs out, and its caller
/// continues.
pub(crate) async fn an_approval_request_ends_with_its_call(db: TestDb) {
    let reader = format!("{READER}runConfig: {{ deadline_seconds: 10 }}\n");
    let rig = Rig::on(db, &[LEADER, MIDDLE, reader.as_str()]).await;
    rig.model
        .script("leader", [call("reader", go()), call("send", json!({"to": "bob"}))]);
    rig.model.script(
        "reader",
        [call("read", json!({})).and("look", json!({})), words("No time.")],
    );
    rig.tools.script("read", [Does::Hangs]);
    let begun = rig.begin("leader", go(), None).await;
    rig.waits(begun).await;
    let questions = rig.questions(begun.id).await;
    rig.says("user:ann", &questions[0], Resolution::ApproveOnce, None).await;
    rig.waits(rig.taken_up(begun.id).await).await;
    assert_eq!(rig.runs().await, ["leader awaiting_confirmation", "reader paused"]);
    only_send_is_asked(&rig, &questions[1]).await;
}

/// Promise: truthful states. An approval request also ends with its run, or with a calling run, even if the journal can
/// no longer be read.
pub(crate) async fn an_approval_request_ends_with_its_run(db: TestDb) {
    let rig = Rig::on(db, &[LEADER, MIDDLE, READER]).await;
    rig.model
        .script("leader", [call("middle", go()), call("send", json!({"to": "bob"}))]);
    rig.model.script("middle", [call("reader", go())]);
    rig.model
        .script("reader", [call("read", json!({})).and("look", json!({}))]);
    let begun = rig.begin("leader", go(), None).await;
    rig.waits(begun).await;
    let questions = rig.questions(begun.id).await;
    rig.says("user:ann", &questions[0], Resolution::ApproveOnce, None).await;
    rig.db
        .run("UPDATE agent_run_entry SET body = '{}' WHERE run_id = (SELECT id FROM agent_run WHERE agent_id = 'middle')")
        .await;
    rig.waits(rig.taken_up(begun.id).await).await;
    assert_eq!(rig.tools.calls("read"), 0);
    only_send_is_asked(&rig, &questions[1]).await;
}

/// The earlier approval request has expired, and a late answer is rejected as such.
async fn only_send_is_asked(rig: &Rig, over: &Action) {
    let left = rig.questions(over.root).await;
    assert_eq!(
        left.iter().map(|action| action.tool.as_str()).collect::<Vec<_>>(),
        ["send"]
    );
    let late = rig.says("user:ann", over, Resolution::ApproveOnce, None).await;
    assert_eq!(late, Resolved::Late(ActionStatus::Expired, None, None));
    let entered = format!("SELECT kind FROM audit WHERE subject = '{}' ORDER BY number", over.id);
    let entered = rig.db.rows(&entered).await.concat();
    assert_eq!(
        entered,
        ["approval_requested", "approval_expired"].map(|kind| Some(kind.to_owned()))
    );
}

/// Promises: at most once, truthful states. A run that is cancelled before its store has confirmed that a call may be
/// sent has sent nothing. It reports that, whether or not the announcement was written.
pub(crate) async fn a_call_cancelled_before_it_could_be_sent_is_not_in_doubt(db: TestDb) {
    let freely = CLERK.replace("clerk", "freely") + "approval: never\n";
    let mut rig = Rig::on(db, &[CLERK, freely.as_str()]).await;
    for (agent, death) in [
        ("clerk", Death::Held),
        ("clerk", Death::HeldUnacknowledged),
        ("freely", Death::Held),
        ("freely", Death::HeldUnacknowledged),
    ] {
        let at = format!("{agent} {death:?}");
        rig = rig.afresh();
        rig.model.script(agent, [call("send", json!({"to": "bob"}))]);
        let mut begun = rig.begin(agent, go(), None).await;
        // The task, and the call.
        let mut write = 2;
        if agent == "clerk" {
            rig.waits(begun).await;
            let question = rig.questions(begun.id).await.remove(0);
            rig.says("user:ann", &question, Resolution::ApproveOnce, None).await;
            (begun, write) = (rig.taken_up(begun.id).await, 1);
        }
        let held = Dying::at(&rig.store, write, death);
        let process = rig.process(held.clone());
        let cancel = CancellationToken::new();
        let driven = rig.drive_until(&process, begun, cancel.clone(), Halt::default());
        let (ended, ()) = tokio::join!(driven, async {
            held.held.notified().await;
            cancel.cancel();
        });
        ended.unwrap();
        let run = rig.outcome(begun.id).await;
        assert_eq!(
            (run.status(), run.row.in_doubt.len()),
            (RunStatus::Cancelled, 0),
            "{at}"
        );
        assert_eq!(rig.tools.sent(), [], "{at}");
        let calls = format!(
            "SELECT status FROM tool_invocation_log WHERE decision_id = '{}'",
            begun.id
        );
        assert_eq!(rig.db.line(&calls).await, "not_sent", "{at}");
        let has_action = agent == "clerk" || death == Death::HeldUnacknowledged;
        let failed = has_action.then_some(ActionStatus::Failed);
        assert_eq!(
            rig.statuses(begun.id).await,
            failed.into_iter().collect::<Vec<_>>(),
            "{at}"
        );
        let entered = format!(
            "SELECT kind FROM audit WHERE decision_id = '{}' AND kind LIKE 'effect%' ORDER BY number",
            begun.id
        );
        let expected: &[&str] = match death {
            Death::HeldUnacknowledged => &["effect_intended", "effect_failed"],
            _ => &[],
        };
        let entered = rig.db.rows(&entered).await.concat();
        assert_eq!(entered.into_iter().flatten().collect::<Vec<_>>(), expected, "{at}");
    }
}

/// R-13: a run may wait for approvals any number of times. Resuming it does not count as a crash.
#[tokio::test]
async fn two_hundred_answers_are_not_two_hundred_crashes() {
    let rig = Rig::new(&[CLERK]).await;
    rig.model.answers("clerk", |asked| match asked.before {
        13 => words("All are booked."),
        turn => (1..16).fold(call("book", json!({"turn": turn, "n": 0})), |turn_of, n| {
            turn_of.and("book", json!({"turn": turn, "n": n}))
        }),
    });
    let mut begun = rig.begin("clerk", go(), None).await;
    let process = rig.process(rig.store.clone());
    while let Err(stop) = rig.drive(&process, begun).await {
        assert!(matches!(stop, Stop::Suspended(_)), "{stop:?}");
        let question = rig.questions(begun.id).await.remove(0);
        rig.says("user:ann", &question, Resolution::ApproveOnce, None).await;
        begun = rig.taken_up(begun.id).await;
    }
    let run = rig.outcome(begun.id).await;
    assert_eq!((run.status(), run.summary()), (RunStatus::Completed, "All are booked."));
    assert_eq!((begun.lease.fence, rig.tools.effects().len()), (209, 208));
}

/// Promise: exact approvals. An approval covers the tool as it was. A changed tool under the same name does not run.
#[tokio::test]
async fn an_approval_does_not_cover_a_changed_tool() {
    let rig = Rig::new(&[CLERK]).await;
    rig.model.answers("clerk", |asked| match asked.before {
        0 => call("book", json!({"room": 1})),
        _ => {
            assert_eq!(asked.failures()[..], [Some(FailureCode::Unavailable)]);
            words("It has changed.")
        }
    });
    let begun = rig.begin("clerk", go(), None).await;
    rig.waits(begun).await;
    let question = rig.questions(begun.id).await.remove(0);
    rig.tools.redefine("book");
    rig.says("user:ann", &question, Resolution::ApproveOnce, None).await;
    let run = rig.finish(rig.taken_up(begun.id).await).await;
    assert_eq!((run.status(), run.summary()), (RunStatus::Completed, "It has changed."));
    assert_eq!(
        (rig.tools.calls("book"), rig.statuses(begun.id).await),
        (0, vec![ActionStatus::Failed])
    );
}

/// Promise: exact approvals. An approved call is not sent again to a tool that has changed; it is in doubt.
pub(crate) async fn an_approved_call_is_not_sent_again_to_a_changed_tool(db: TestDb) {
    let mut rig = Rig::on(db, &[CLERK]).await;
    for changes in [false, true] {
        rig = rig.afresh();
        rig.tools.script("book", [Does::Never]);
        rig.model.answers("clerk", |asked| match asked.before {
            0 => call("book", json!({"room": 1})),
            _ => words("Over."),
        });
        let begun = rig.begin("clerk", go(), None).await;
        rig.waits(begun).await;
        let question = rig.questions(begun.id).await.remove(0);
        rig.says("user:ann", &question, Resolution::ApproveOnce, None).await;
        let begun = rig.taken_up(begun.id).await;
        let process = rig.process(rig.store.clone());
        tokio::select! {
            ended = rig.drive(&process, begun) => panic!("{ended:?}"),
            () = rig.tools.waited_for.notified() => {}
        }
        drop(process);
        if changes {
            rig.tools.redefine_unnoticed("book");
        }
        let begun = rig.take_over(begun).await.unwrap();
        rig.finish(begun).await;
        let expected = match changes {
            false => (2, [ActionStatus::Completed]),
            true => (1, [ActionStatus::InDoubt]),
        };
        let statuses = rig.statuses(begun.id).await;
        assert_eq!((rig.tools.calls("book"), &statuses[..]), (expected.0, &expected.1[..]));
    }
}

/// R-13, R-16: a server that is unavailable when approvals are resolved discards no resolution. Calls to it fail, the
/// other resolutions apply, and the run continues.
pub(crate) async fn an_unavailable_server_discards_no_resolution(db: TestDb) {
    let rig = Rig::on(db, &[&format!("{CLERK}approval: never\n")]).await;
    rig.model.answers("clerk", |asked| match asked.before {
        0 => call("book", json!({"room": 1})).and("send", json!({"to": "bob"})),
        _ => {
            let failures = [Some(FailureCode::Rejected), Some(FailureCode::Unavailable)];
            assert_eq!(asked.failures()[..], failures);
            words("It is unavailable.")
        }
    });
    let begun = rig.begin_in_thread("clerk", go()).await;
    rig.waits(begun).await;
    let questions = rig.questions(begun.id).await;
    rig.tools.withdraw("send");
    rig.says("user:ann", &questions[0], Resolution::Reject, None).await;
    rig.waits(rig.taken_up(begun.id).await).await;
    assert_eq!(
        rig.questions(begun.id).await.len(),
        1,
        "the other approval request is still open"
    );
    rig.says("user:ann", &questions[1], Resolution::ApproveOnce, None).await;
    let run = rig.finish(rig.taken_up(begun.id).await).await;
    assert_eq!(
        (run.status(), run.summary()),
        (RunStatus::Completed, "It is unavailable.")
    );
    assert_eq!(
        rig.statuses(begun.id).await,
        [ActionStatus::Rejected, ActionStatus::Failed]
    );
    let ended = "SELECT COUNT(*) FROM audit WHERE kind = 'approval_expired' AND detail LIKE '%tool_unavailable%'";
    assert_eq!(rig.db.line(ended).await, "1", "R-18");
}

/// R-7, R-11: a run of a thread is never paused, so that no resume can bypass the limits of threads. If its tools are
/// unavailable after the answer, the call fails. If a step of its flow is interrupted, the run fails, and nothing ran
/// without approval.
pub(crate) async fn a_run_of_a_thread_that_cannot_continue_fails(db: TestDb) {
    let flow = "name: flow\ndescription: One step.\nflow_type: sequential\nsteps: [short]\n";
    let clerk = format!("{CLERK}approval: never\n");
    let short = CLERK.replace("clerk", "short") + "runConfig: { max_turns: 1 }\n";
    let rig = Rig::on(db, &[&clerk, &short, flow]).await;
    rig.model
        .script("clerk", [call("book", json!({"room": 1})), words("It is unavailable.")]);
    let begun = rig.begin_in_thread("clerk", go()).await;
    rig.waits(begun).await;
    let question = rig.questions(begun.id).await.remove(0);
    rig.tools.withdraw("book");
    rig.says("user:ann", &question, Resolution::ApproveOnce, None).await;
    let run = rig.finish(rig.taken_up(begun.id).await).await;
    assert_eq!(
        (run.status(), run.summary()),
        (RunStatus::Completed, "It is unavailable.")
    );
    assert_eq!(
        (rig.tools.calls("book"), rig.statuses(begun.id).await),
        (0, vec![ActionStatus::Failed])
    );

    rig.model
        .script("short", [call("read", json!({})), words("That is how far I came.")]);
    rig.tools.bring_back("book", Idempotency::Key);
    let begun = rig.begin_in_thread("flow", go()).await;
    let run = rig.finish(begun).await;
    assert_eq!(
        (run.status(), run.row.stop_reason),
        (RunStatus::Failed, Some(StopReason::Step))
    );
    assert_eq!(rig.runs_of(run.id).await, ["flow failed", "short paused"]);
}

impl Rig {
    async fn settles(&self, action: ActionId, happened: bool) -> SettleDone {
        let rows = self
            .db
            .line(&format!("SELECT root_id FROM agent_action WHERE id = '{action}'"))
            .await;
        let settle = Settle {
            words: "said".into(),
            action,
            root: RunId::parse(&rows).unwrap(),
            happened,
            by: "user:ann".into(),
        };
        self.store.settle(settle).await.unwrap()
    }

    /// The action, and its status in the log.
    async fn reported(&self, action: ActionId) -> String {
        let sql = format!(
            "SELECT a.status, t.status FROM agent_action a JOIN tool_invocation_log t ON t.id = a.id \
             WHERE a.id = '{action}'"
        );
        self.db.line(&sql).await
    }
}

/// An in-doubt action can be settled whatever happened to its run: through the resume of a paused run, else directly.
/// Its row and the log then agree, and nothing stays in doubt for ever.
pub(crate) async fn an_in_doubt_action_can_be_settled_whatever_happened_to_its_run(db: TestDb) {
    let mut rig = Rig::on(db, &[&format!("{CLERK}approval: never\n")]).await;
    for happened in [true, false] {
        let said = if happened {
            "completed completed"
        } else {
            "failed failed"
        };
        for cancelled in [false, true] {
            rig = rig.afresh();
            rig.tools
                .script("send", [if cancelled { Does::Never } else { Does::IsLost }]);
            rig.model
                .script("clerk", [call("send", json!({"to": "bob"})), words("Over.")]);
            let begun = rig.begin("clerk", go(), None).await;
            let process = rig.process(rig.store.clone());
            let cancel = CancellationToken::new();
            let driven = rig.drive_until(&process, begun, cancel.clone(), Halt::default());
            let (ended, ()) = tokio::join!(driven, async {
                if cancelled {
                    rig.tools.waited_for.notified().await;
                    cancel.cancel();
                }
            });
            ended.unwrap();
            let run = rig.outcome(begun.id).await;
            let doubt = run.row.in_doubt[0].action_id;
            assert_eq!(rig.reported(doubt).await, "in_doubt in_doubt");
            if cancelled {
                assert_eq!(run.status(), RunStatus::Cancelled);
                assert_eq!(rig.settles(doubt, happened).await, SettleDone::Done);
            } else {
                assert_eq!(rig.settles(doubt, happened).await, SettleDone::WithRun);
                assert_eq!(rig.reported(doubt).await, "in_doubt in_doubt");
                let resumed = rig.resume(run.id, &[(doubt, happened)]).await;
                assert_eq!(resumed.status(), RunStatus::Completed);
            }
            assert_eq!(rig.reported(doubt).await, said);
            assert_eq!(rig.settles(doubt, happened).await, SettleDone::Again);
            let other = rig.settles(doubt, !happened).await;
            assert!(matches!(other, SettleDone::NotInDoubt(_)), "{other:?}");
        }
    }
}

/// Promise: truthful states. An in-doubt action cannot be settled while its run is in progress, because the end of the
/// run records what the journal says. After that, the row and the log take the person's report.
pub(crate) async fn an_in_doubt_action_can_be_settled_only_after_its_run_has_ended(db: TestDb) {
    let rig = Rig::on(db, &[CLERK]).await;
    rig.tools.script("send", [Does::LosesTheAnswer]);
    rig.model.script(
        "clerk",
        [
            call("send", json!({"to": "bob"})).and("book", json!({"room": 1})),
            words("Both are done."),
        ],
    );
    let begun = rig.begin_in_thread("clerk", go()).await;
    rig.waits(begun).await;
    let question = rig.questions(begun.id).await.remove(0);
    rig.says("user:ann", &question, Resolution::ApproveOnce, None).await;
    rig.waits(rig.taken_up(begun.id).await).await;
    let doubt = question.id;
    assert_eq!(rig.settles(doubt, true).await, SettleDone::RunInProgress);
    assert_eq!(rig.actions(begun.id).await[0].status, ActionStatus::InDoubt);
    let question = rig.questions(begun.id).await.remove(0);
    rig.says("user:ann", &question, Resolution::ApproveOnce, None).await;
    let run = rig.finish(rig.taken_up(begun.id).await).await;
    assert_eq!(
        (run.status(), run.row.stop_reason),
        (RunStatus::Failed, Some(StopReason::InDoubt))
    );
    assert_eq!(rig.reported(doubt).await, "in_doubt in_doubt");
    assert_eq!(rig.settles(doubt, true).await, SettleDone::Done);
    assert_eq!(rig.reported(doubt).await, "completed completed");
    assert_eq!(rig.settles(doubt, true).await, SettleDone::Again);
}

/// X-4: a waiting run can be cancelled, and its requested call does not run.
#[tokio::test]
async fn cancelling_a_waiting_run_cancels_its_approval_requests() {
    let rig = Rig::new(&[BOSS, CLERK]).await;
    rig.model
        .script("boss", [call("clerk", json!({"query": "send"})), words("never")]);
    rig.model
        .script("clerk", [call("send", json!({"to": "bob"})), words("never")]);
    let begun = rig.begin("boss", go(), None).await;
    rig.waits(begun).await;
    rig.store.cancel(begun.id, "ann").await.unwrap();
    let run = rig.finish(rig.taken_up(begun.id).await).await;
    assert_eq!(run.status(), RunStatus::Cancelled);
    assert_eq!(rig.runs().await, ["boss cancelled", "clerk cancelled"]);
    assert_eq!(
        (rig.tools.calls("send"), rig.statuses(begun.id).await),
        (0, vec![ActionStatus::Expired])
    );
}

/// R-14. Promise: at most once. If a process dies at any write, the approved call has its effect once, or is in doubt
/// and never repeated.
pub(crate) async fn an_approved_call_is_never_made_twice_whichever_process_dies(db: TestDb) {
    let mut rig = Rig::on(db, &[BOSS, CLERK]).await;
    let mut died = 0;
    for tool in ["book", "send"] {
        for death in [Death::Before, Death::After] {
            for write in 1.. {
                rig = rig.afresh();
                rig.model
                    .script("boss", [call("clerk", json!({"query": "do it"})), words("All done.")]);
                rig.model
                    .script("clerk", [call(tool, json!({"to": "bob"})), words("Done.")]);
                let mut begun = rig.begin("boss", go(), None).await;
                let dying = Dying::at(&rig.store, write, death);
                let first = rig.drive(&rig.process(dying.clone()), begun).await;
                if matches!(first, Err(Stop::Record(_))) {
                    died += 1;
                    if let Some(again) = rig.take_over(begun).await {
                        begun = again;
                        rig.waits(begun).await;
                    }
                }
                let question = rig.questions(begun.id).await.remove(0);
                rig.says("user:ann", &question, Resolution::ApproveOnce, None).await;
                let mut begun = rig.taken_up(begun.id).await;
                let second = rig.drive(&rig.process(dying), begun).await;
                let has_ended = second.is_ok();
                if let Err(error) = second {
                    assert!(matches!(error, Stop::Record(_)), "{error:?}");
                    died += 1;
                    if let Some(again) = rig.take_over(begun).await {
                        begun = again;
                        rig.finish(begun).await;
                    }
                }
                let run = rig.outcome(begun.id).await;
                let status = rig.statuses(begun.id).await;
                let reported = format!("{tool}, {death:?} write {write}: {:?} {status:?}", run.row);
                assert!(rig.tools.calls("send") <= 1, "{reported}");
                assert!(
                    rig.tools.effects().len() == 1 || (rig.tools.effects().is_empty() && tool == "send"),
                    "{reported}"
                );
                match status[..] {
                    [ActionStatus::Completed] => assert_eq!(run.status(), RunStatus::Completed, "{reported}"),
                    [ActionStatus::InDoubt] if tool == "send" => {
                        assert_eq!(run.status(), RunStatus::Paused, "{reported}")
                    }
                    _ => panic!("{reported}"),
                }
                if has_ended && !matches!(first, Err(Stop::Record(_))) {
                    break;
                }
            }
        }
    }
    assert!(died > 20, "{died}");
}

const ASKED: &str =
    "rules:\n- {name: seen, tools: [agent__clerk], then: require_approval, reason: the clerk is busy}\n";

/// R-10, D-4, X-15: a rule can require approval for a call of an agent. Approved, the called agent runs once; rejected,
/// it does not run, and the caller's model reads why.
pub(crate) async fn a_rule_can_require_approval_for_a_call_of_an_agent(db: TestDb) {
    let rig = Rig::on(db, &[BOSS, CLERK]).await;
    rig.rules(ASKED);
    for (resolution, expected) in [
        (Resolution::ApproveOnce, [ActionStatus::Completed]),
        (Resolution::Reject, [ActionStatus::Rejected]),
    ] {
        rig.model.script("boss", [call("clerk", go()), words("Done.")]);
        rig.model.script("clerk", [words("Filed.")]);
        let begun = rig.begin("boss", go(), None).await;
        rig.waits(begun).await;
        assert_eq!(rig.runs_of(begun.id).await.len(), 1, "nothing runs without approval");
        let [question] = &rig.questions(begun.id).await[..] else {
            panic!("one approval request")
        };
        assert_eq!(
            (&*question.server, question.tool.as_str(), question.arguments.get()),
            ("agent", "clerk", r#"{"query":"go"}"#)
        );
        assert!(
            question.details.reason.contains("the clerk is busy (rule \"seen\")"),
            "{question:?}"
        );
        assert!(!question.details.is_grantable());
        rig.says("user:ann", question, resolution, Some("not today")).await;
        let run = rig.ends(rig.taken_up(begun.id).await).await;
        assert_eq!((run.status(), run.summary()), (RunStatus::Completed, "Done."));
        assert_eq!(rig.statuses(begun.id).await, expected);
        let (_, reported) = rig.model.asked_of("boss").last().unwrap().responses()[0].clone();
        let approved = resolution.approves();
        assert_eq!(rig.runs_of(begun.id).await.len(), if approved { 2 } else { 1 });
        match reported {
            Ok(output) => assert_eq!((approved, output), (true, json!({"output": "Filed."}))),
            Err((code, message)) => {
                assert_eq!((approved, code), (false, FailureCode::Rejected));
                assert!(message.contains("not today"), "{message}");
            }
        }
    }
}

/// R-10, X-2: a rule holds for the steps of a flow as well, which no model calls.
pub(crate) async fn a_rule_can_require_approval_for_a_step_or_deny_it(db: TestDb) {
    let flow = "name: office\ndescription: An office.\nflow_type: sequential\nsteps: [clerk]\n";
    let rig = Rig::on(db, &[flow, CLERK]).await;
    rig.rules(ASKED);
    rig.model.script("clerk", [words("Filed.")]);
    let begun = rig.begin("office", go(), None).await;
    rig.waits(begun).await;
    let [question] = &rig.questions(begun.id).await[..] else {
        panic!("one approval request")
    };
    rig.says("user:ann", question, Resolution::ApproveOnce, None).await;
    let run = rig.ends(rig.taken_up(begun.id).await).await;
    assert_eq!((run.status(), run.summary()), (RunStatus::Completed, "Filed."));

    rig.rules(&ASKED.replace("require_approval", "deny"));
    let run = rig.run("office", go()).await;
    assert_eq!(run.status(), RunStatus::Failed);
    assert!(run.error().contains("the clerk is busy"), "{}", run.error());
    assert_eq!(rig.runs_of(run.id).await.len(), 1);
}
