//! A run with a deadline: an absolute time, which does not stop while the run waits.

use std::time::Duration;

use gavel::domain::action::{ActionStatus, Resolution};
use gavel::domain::agent_run::{RunStatus, StopReason};
use gavel::domain::time::rfc3339;
use gavel::domain::tool::FailureCode;
use gavel::ports::actions::Actions;
use gavel::ports::clock::Clock;
use serde_json::{Value, json};

use crate::model::{call, hangs, words};
use crate::rig::{Begun, Outcome, Rig, seconds};
use crate::support::TestDb;
use crate::tools::Does;

const WORKER: &str = r#"
name: worker
description: Works.
promptConfig: { query: "${query}", systemPrompt: worker }
toolConfig: { tools: [read, send] }
approval: never
runConfig: { deadline_seconds: 600 }
"#;

const CLERK: &str = r#"
name: clerk
description: Works, with approval.
promptConfig: { query: "${query}", systemPrompt: clerk }
toolConfig: { tools: [send] }
"#;

const BOSS: &str = r#"
name: boss
description: Leads.
promptConfig: { query: "${query}", systemPrompt: boss }
sub_agents: [worker, clerk]
"#;

const OFFICE: &str = r#"
name: office
description: An office.
flow_type: sequential
steps: [worker, clerk]
"#;

/// The deadline of the runs here is this far ahead when they begin.
const AHEAD: Duration = Duration::from_secs(60);

fn go() -> Value {
    json!({"query": "go"})
}

async fn rig(db: TestDb) -> Rig {
    Rig::on(db, &[WORKER, CLERK, BOSS, OFFICE]).await
}

/// The run is paused by its deadline, `until_us`, and says so; its own clock has time left.
fn is_past_deadline(run: &Outcome, until_us: i64) {
    assert_eq!(
        (run.status(), run.row.stop_reason),
        (RunStatus::Paused, Some(StopReason::Deadline)),
        "{run:?}"
    );
    let said = format!("Its deadline, {}, passed before it was finished.", rfc3339(until_us));
    assert_eq!(run.error(), said);
}

impl Rig {
    fn deadline_us(&self) -> i64 {
        self.clock.now_us() + i64::try_from(AHEAD.as_micros()).unwrap()
    }

    /// The approval requests of a run expire, and a worker claims it, this long after its process left it.
    async fn continues_after(&self, begun: Begun, passed: Duration) -> Begun {
        self.clock.advance(passed);
        self.db
            .run("UPDATE agent_action SET expires_at = created_at WHERE status = 'awaiting_confirmation'")
            .await;
        assert_eq!(self.store.expire(10).await.unwrap(), [begun.id]);
        self.taken_up(begun.id).await
    }
}

/// The model is asked no longer than until the deadline. It gets no last call for a summary: nothing begins afterwards.
pub(crate) async fn a_model_call_ends_at_the_deadline_and_no_other_follows(db: TestDb) {
    let rig = rig(db).await;
    let script = [
        call("read", json!({})).saying("I begin.").after(seconds(40)),
        hangs().saying("I was about"),
    ];
    rig.model.script("worker", script);
    let until_us = rig.deadline_us();
    let run = rig.finish(rig.begin_until("worker", go(), until_us).await).await;
    is_past_deadline(&run, until_us);
    assert_eq!(run.summary(), "I begin.\n\nI was about");
    let asked = rig.model.asked();
    assert_eq!((asked.len(), asked[1].time), (2, seconds(20)));
    assert_eq!(rig.clock.passed(), AHEAD);
}

/// A tool is called no longer than until the deadline, and not at all after it.
pub(crate) async fn a_tool_call_ends_at_the_deadline_and_no_other_follows(db: TestDb) {
    let rig = rig(db).await;
    rig.model.script(
        "worker",
        [call("read", json!({})).and("send", json!({})).after(seconds(50))],
    );
    rig.tools.script("read", [Does::Hangs]);
    let until_us = rig.deadline_us();
    let run = rig.finish(rig.begin_until("worker", go(), until_us).await).await;
    is_past_deadline(&run, until_us);
    let sent: Vec<_> = rig.tools.sent();
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert_eq!((sent[0].tool.as_str(), sent[0].timeout), ("read", seconds(10)));
    let codes: Vec<_> = run.journal.iter().flat_map(|entry| entry.calls()).collect();
    let codes = codes
        .iter()
        .map(|call| run.results_of(call.id)[0].outcome.as_ref().unwrap_err().code);
    assert_eq!(
        codes.collect::<Vec<_>>(),
        [FailureCode::Timeout, FailureCode::LimitReached]
    );
    assert_eq!(rig.model.asked().len(), 1);
}

/// The deadline does not stop while an approval is waited for. The approval request expires with it, which wakes the
/// run; the run ends at once, and the call has not run.
pub(crate) async fn an_approval_request_expires_with_the_deadline_of_its_run(db: TestDb) {
    let rig = rig(db).await;
    rig.model
        .script("clerk", [call("send", json!({"to": "bob"})).after(seconds(10))]);
    let until_us = rig.deadline_us();
    let begun = rig.begin_until("clerk", go(), until_us).await;
    rig.waits(begun).await;
    let question = rig.questions(begun.id).await.remove(0);
    let valid_us = question.expires_at.unwrap() - question.created_at;
    // The rest of the time until the deadline.
    assert!((50_000_000..50_100_000).contains(&valid_us), "{valid_us}");
    let run = rig.finish(rig.continues_after(begun, seconds(50)).await).await;
    is_past_deadline(&run, until_us);
    assert_eq!(rig.statuses(begun.id).await, [ActionStatus::Expired]);
    let result = run.results_of(question.id)[0];
    assert_eq!(result.outcome.as_ref().unwrap_err().code, FailureCode::Expired);
    assert_eq!((rig.model.asked().len(), rig.tools.calls("send")), (1, 0));
}

/// An approval that is given in time does not start a call after the deadline.
pub(crate) async fn an_approved_call_does_not_start_after_the_deadline(db: TestDb) {
    let rig = rig(db).await;
    rig.model.script("clerk", [call("send", json!({"to": "bob"}))]);
    let until_us = rig.deadline_us();
    let begun = rig.begin_until("clerk", go(), until_us).await;
    rig.waits(begun).await;
    let question = rig.questions(begun.id).await.remove(0);
    rig.says("user:ann", &question, Resolution::ApproveOnce, None).await;
    rig.clock.advance(AHEAD);
    let run = rig.finish(rig.taken_up(begun.id).await).await;
    is_past_deadline(&run, until_us);
    assert_eq!(rig.statuses(begun.id).await, [ActionStatus::Failed]);
    assert_eq!((rig.model.asked().len(), rig.tools.calls("send")), (1, 0));
}

/// A child run has the deadline of its parent, and a parent reads of it what any user reads.
pub(crate) async fn a_child_run_has_the_deadline_of_its_parent(db: TestDb) {
    let rig = rig(db).await;
    rig.model.script("boss", [call("worker", go()).after(seconds(20))]);
    rig.model.script("worker", [hangs()]);
    let until_us = rig.deadline_us();
    let run = rig.finish(rig.begin_until("boss", go(), until_us).await).await;
    is_past_deadline(&run, until_us);
    let child = rig.outcome(run.called()[0]).await;
    is_past_deadline(&child, until_us);
    assert_eq!(rig.model.asked_of("worker")[0].time, seconds(40));
    assert_eq!(rig.model.asked_of("boss").len(), 1);

    // A child run that waits is woken by the deadline with its parent.
    rig.model.script("boss", [call("clerk", go())]);
    rig.model.script("clerk", [call("send", json!({"to": "bob"}))]);
    let until_us = rig.deadline_us();
    let begun = rig.begin_until("boss", go(), until_us).await;
    rig.waits(begun).await;
    let run = rig.finish(rig.continues_after(begun, AHEAD).await).await;
    is_past_deadline(&run, until_us);
    is_past_deadline(&rig.outcome(run.called()[0]).await, until_us);
    assert_eq!(rig.tools.calls("send"), 0);
}

/// A flow ends at the deadline like at its own time limit: in a step, while a step waits for an approval, and while the
/// approval of a step itself is waited for, also if the clock of the next process is a little behind.
pub(crate) async fn a_flow_is_paused_by_its_deadline_and_does_not_fail(db: TestDb) {
    let rig = rig(db).await;
    rig.model
        .script("worker", [words("Read."), words("Read."), words("Read.")]);
    rig.model.script("clerk", [hangs().saying("I file")]);
    let until_us = rig.deadline_us();
    let run = rig.finish(rig.begin_until("office", go(), until_us).await).await;
    is_past_deadline(&run, until_us);
    assert_eq!(run.summary(), "I file");

    rig.model.script("clerk", [call("send", json!({"to": "bob"}))]);
    let until_us = rig.deadline_us();
    let begun = rig.begin_until("office", json!({"query": "again"}), until_us).await;
    rig.waits(begun).await;
    let run = rig.finish(rig.continues_after(begun, AHEAD - seconds(1)).await).await;
    is_past_deadline(&run, until_us);

    rig.rules("rules:\n- {name: seen, tools: [agent__clerk], then: require_approval, reason: the clerk is busy}\n");
    let until_us = rig.deadline_us();
    let begun = rig.begin_until("office", go(), until_us).await;
    rig.waits(begun).await;
    let run = rig.finish(rig.continues_after(begun, AHEAD - seconds(1)).await).await;
    is_past_deadline(&run, until_us);
    assert_eq!(run.summary(), "Read.");
    assert_eq!((run.called().len(), rig.tools.calls("send")), (1, 0));
}

/// A run that is resumed before its deadline keeps it, and so does one that another process continues.
pub(crate) async fn a_resumed_run_keeps_its_deadline(db: TestDb) {
    let rig = rig(db).await;
    rig.model.script("worker", [hangs(), words("So far."), hangs()]);
    let until_us = rig.clock.now_us() + 700_000_000;
    let run = rig.finish(rig.begin_until("worker", go(), until_us).await).await;
    assert_eq!(run.row.stop_reason, Some(StopReason::TimeLimit));
    // 600 s have passed, and another 40 before the run is resumed; its own clock begins again.
    rig.clock.advance(seconds(40));
    let run = rig.resume(run.id, &[]).await;
    is_past_deadline(&run, until_us);
    assert_eq!(rig.model.asked().last().unwrap().time, seconds(60));
    assert_eq!(run.summary(), "So far.");
}

/// A run that no process worked on until its deadline begins nothing.
pub(crate) async fn a_run_that_starts_after_its_deadline_begins_nothing(db: TestDb) {
    let rig = rig(db).await;
    for agent in ["worker", "office"] {
        let until_us = rig.deadline_us();
        let begun = rig.begin_until(agent, go(), until_us).await;
        rig.clock.advance(AHEAD);
        let run = rig.finish(begun).await;
        is_past_deadline(&run, until_us);
        assert_eq!((rig.model.asked().len(), run.called().len()), (0, 0));
    }
}
