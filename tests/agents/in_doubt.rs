//! Calls whose outcome is unknown (promise: at most once).

use std::time::Duration;

use gavel::domain::agent_run::{RunStatus, StopReason};
use gavel::domain::ids::ActionId;
use gavel::domain::tool::{FailureCode, Idempotency};
use gavel::ports::clock::Clock as _;
use serde_json::{Value, json};

use crate::model::{call, words};
use crate::rig::{Begun, Outcome, Rig};
use crate::support::TestDb;
use crate::tools::Does;

/// May use every tool without approval.
pub(crate) const CLERK: &str = r#"
name: clerk
description: Works.
promptConfig: { query: "${query}", systemPrompt: clerk }
toolConfig: { tools: [read, send, book, put] }
approval: never
"#;

/// Delegates to the clerk.
pub(crate) const BOSS: &str = r#"
name: boss
description: Leads.
promptConfig: { query: "${query}", systemPrompt: boss }
sub_agents: [clerk]
"#;

pub(crate) fn go() -> Value {
    json!({"query": "go"})
}

/// Promise: at most once. The outcome that a person reports becomes the call's result, and the call is not sent again.
pub(crate) async fn a_call_that_a_person_reports_as_happened_is_not_repeated(db: TestDb) {
    let mut rig = Rig::on(db, &[CLERK]).await;
    for happened in [true, false] {
        rig = rig.afresh();
        let lost = if happened { Does::LosesTheAnswer } else { Does::IsLost };
        rig.tools.script("send", [lost]);
        rig.model
            .answers("clerk", |asked| match (asked.before, asked.failures().as_slice()) {
                (0, _) => call("send", json!({"to": "bob"})).and("read", json!({})),
                (_, [Some(FailureCode::ToolError), ..]) => call("send", json!({"to": "bob"})),
                _ => words("Sent once."),
            });
        let run = rig.run("clerk", go()).await;
        assert_eq!(
            (run.status(), run.row.stop_reason),
            (RunStatus::Paused, Some(StopReason::InDoubt))
        );
        assert_eq!(
            rig.model.asked().len(),
            1,
            "the run waits until a person has settled the call"
        );
        let [in_doubt] = &run.row.in_doubt[..] else {
            panic!("{:?}", run.row.in_doubt)
        };
        assert_eq!(
            (in_doubt.tool.as_str(), &in_doubt.parameters),
            ("send", &json!({"to": "bob"}))
        );
        let id = in_doubt.action_id;
        let state = format!("SELECT tool, status FROM tool_invocation_log WHERE id = '{id}'");
        assert_eq!(rig.db.line(&state).await, "send in_doubt");

        let resumed = rig.resume(run.id, &[(in_doubt.action_id, happened)]).await;
        assert_eq!(
            (resumed.status(), resumed.summary()),
            (RunStatus::Completed, "Sent once.")
        );
        assert_eq!(rig.tools.effects().len(), 1);
        assert_eq!(rig.tools.calls("send"), if happened { 1 } else { 2 });
        assert_eq!(resumed.row.in_doubt.len(), 0);
        // In doubt, and then as the person reported.
        assert_eq!(resumed.results_of(in_doubt.action_id).len(), 2);
        let reported = if happened { "send completed" } else { "send failed" };
        assert_eq!(rig.db.line(&state).await, reported);
    }
}

/// A call to a tool that takes a key is repeated under that key, and the tool's data shows what happened.
#[tokio::test]
async fn a_call_whose_answer_was_lost_is_repeated_if_the_tool_takes_a_key() {
    let rig = Rig::new(&[CLERK]).await;
    rig.tools.script("book", [Does::LosesTheAnswer]);
    rig.model.script("clerk", [call("book", json!({})), words("Booked.")]);
    let run = rig.run("clerk", go()).await;
    assert_eq!(run.status(), RunStatus::Completed);
    let sent = rig.tools.sent();
    assert_eq!((sent.len(), rig.tools.effects().len()), (2, 1));
    assert_eq!(sent[0].key, sent[1].key);
}

/// Drives a run until a tool hangs and the start of its call is recorded, then kills its process.
async fn dies_calling(rig: &Rig, agent: &str) -> Begun {
    let begun = rig.begin(agent, go(), None).await;
    let process = rig.process(rig.store.clone());
    tokio::select! {
        ended = rig.drive(&process, begun) => panic!("{ended:?}"),
        () = async {
            rig.tools.waited_for.notified().await;
            rig.until_a_call_is_recorded(begun.id).await;
        } => {}
    }
    begun
}

/// As `dies_calling`; then another process claims the run.
async fn dies_while_it_calls(rig: &Rig, agent: &str) -> Begun {
    let begun = dies_calling(rig, agent).await;
    rig.take_over(begun).await.unwrap()
}

async fn after_a_death_in(tool: &str, then: impl FnOnce(&Rig)) -> (Rig, Outcome) {
    let rig = Rig::new(&[CLERK]).await;
    rig.tools.script(tool, [Does::Never]);
    rig.model.script("clerk", [call(tool, json!({})), words("Done.")]);
    let begun = dies_while_it_calls(&rig, "clerk").await;
    then(&rig);
    let run = rig.finish(begun).await;
    (rig, run)
}

/// Promise: at most once. An interrupted call is repeated under its key, and only the tool's data settles its outcome.
/// An unavailable server or an error says nothing about the first call.
#[tokio::test]
async fn after_a_crash_only_the_tools_data_settles_an_interrupted_call() {
    let (rig, run) = after_a_death_in("book", |_| {}).await;
    assert_eq!((run.status(), rig.tools.effects().len()), (RunStatus::Completed, 1));
    assert_eq!(run.row.recovered_from, Some(StopReason::Crash));

    // What is still not known is asked again.
    for does in [Does::IsAway, Does::IsLost] {
        let (rig, run) = after_a_death_in("book", |rig| rig.tools.script("book", [does.clone()])).await;
        assert_eq!(run.status(), RunStatus::Completed, "{does:?}");
        assert_eq!(rig.tools.effects().len(), 1, "{does:?}");
    }
    for does in [Does::IsAway, Does::Fails("already booked"), Does::IsLost] {
        let always = [does.clone(), does.clone(), does.clone()];
        let (rig, run) = after_a_death_in("book", |rig| rig.tools.script("book", always)).await;
        assert_eq!(
            (run.status(), run.row.stop_reason),
            (RunStatus::Paused, Some(StopReason::InDoubt)),
            "{does:?}"
        );
        assert_eq!(run.row.in_doubt.len(), 1, "{does:?}");
        assert_eq!(rig.tools.effects().len(), 1, "{does:?}");
    }
}

/// Promise: at most once. A server forgets keys after a time, and the repeated call would then be a second one. A
/// further attempt states when the first one was made.
#[tokio::test]
async fn after_a_crash_a_call_is_not_repeated_under_a_key_that_may_have_expired() {
    for (hours, calls) in [(23, 2), (25, 1)] {
        let later = Duration::from_secs(hours * 3600);
        let rig = Rig::new(&[CLERK]).await;
        rig.tools.script("book", [Does::Never]);
        rig.model.script("clerk", [call("book", json!({})), words("Done.")]);
        let begun = dies_calling(&rig, "clerk").await;
        let first = rig.clock.now_us();
        rig.clock.advance(later);
        let begun = rig.take_over(begun).await.unwrap();
        let run = rig.finish(begun).await;
        assert_eq!(rig.tools.effects().len(), 1, "{hours}");
        let sent = rig.tools.sent();
        assert_eq!((sent.len(), sent[0].first_attempt_us), (calls, None), "{hours}");
        if let Some(again) = sent.get(1) {
            assert_eq!(again.first_attempt_us, Some(first));
        } else {
            assert_eq!(
                (run.status(), run.row.stop_reason),
                (RunStatus::Paused, Some(StopReason::InDoubt))
            );
        }
    }
}

/// Promise: at most once. A read is repeated, and a failing read is never in doubt.
#[tokio::test]
async fn after_a_crash_a_read_is_repeated() {
    let (rig, run) = after_a_death_in("read", |_| {}).await;
    assert_eq!((run.status(), rig.tools.calls("read")), (RunStatus::Completed, 2));
    let (rig, run) = after_a_death_in("read", |rig| rig.tools.script("read", [Does::Fails("gone")])).await;
    assert_eq!(run.status(), RunStatus::Completed);
    assert_eq!(rig.model.asked()[1].failures(), [Some(FailureCode::ToolError)]);
}

/// A tool that has changed is not called under an old key.
#[tokio::test]
async fn after_a_crash_a_changed_tool_is_not_called_again() {
    let (rig, run) = after_a_death_in("book", |rig| rig.tools.redefine("book")).await;
    assert_eq!(
        (run.status(), run.row.stop_reason),
        (RunStatus::Paused, Some(StopReason::InDoubt))
    );
    assert_eq!(rig.tools.calls("book"), 1);
}

/// R-11. Promises: at most once, exact approvals. The operator's rules are checked again before an interrupted call is
/// repeated. A call that they now deny, or that now requires an approval it does not have, is in doubt. A read is
/// reported as not made.
#[tokio::test]
async fn after_a_crash_a_call_that_the_rules_no_longer_allow_is_not_repeated() {
    let rules = |tool: &str, effect: &str| {
        format!("rules:\n  - {{ name: closed, tools: [{tool}], then: {effect}, reason: the office is closed }}\n")
    };
    for (effect, calls) in [("allow", 2), ("require_approval", 1), ("deny", 1)] {
        let (rig, run) = after_a_death_in("book", |rig| rig.rules(&rules("book", effect))).await;
        let expected = match calls {
            2 => (RunStatus::Completed, None),
            _ => (RunStatus::Paused, Some(StopReason::InDoubt)),
        };
        assert_eq!((run.status(), run.row.stop_reason), expected, "{effect}");
        assert_eq!(
            (rig.tools.calls("book"), rig.tools.effects().len()),
            (calls, 1),
            "{effect}"
        );
        assert_eq!(run.row.in_doubt.len(), 2 - calls, "{effect}");
    }
    let (rig, run) = after_a_death_in("read", |rig| rig.rules(&rules("read", "deny"))).await;
    assert_eq!((run.status(), rig.tools.calls("read")), (RunStatus::Completed, 1));
    assert_eq!(rig.model.asked()[1].failures(), [Some(FailureCode::Unavailable)]);
}

/// X-15. Promise: at most once. A sub-agent that cannot continue is interrupted, and its in-doubt call stops the
/// calling run.
#[tokio::test]
async fn an_in_doubt_call_of_a_sub_agent_that_cannot_continue_stops_its_caller() {
    let rig = Rig::new(&[BOSS, CLERK]).await;
    rig.tools.script("send", [Does::Never]);
    rig.model.script(
        "boss",
        [
            call("clerk", json!({"query": "send"})),
            call("clerk", json!({"query": "send"})),
        ],
    );
    rig.model.script("clerk", [call("send", json!({})), words("Sent.")]);
    let begun = dies_while_it_calls(&rig, "boss").await;
    rig.tools.withdraw("send");
    let run = rig.finish(begun).await;
    assert_eq!(
        (run.status(), run.row.stop_reason),
        (RunStatus::Paused, Some(StopReason::InDoubt))
    );
    let child = rig.outcome(run.called()[0]).await;
    assert_eq!((child.status(), child.row.in_doubt.len()), (RunStatus::Paused, 1));
    assert_eq!((rig.model.asked_of("boss").len(), rig.tools.calls("send")), (1, 1));
}

/// A run that died within a call, and whose tools are unavailable to the next worker, pauses until a person settles the
/// call. A resume while they are still unavailable pauses it again, and nothing is lost.
#[tokio::test]
async fn a_run_paused_because_its_tools_were_unavailable_can_be_resumed_when_they_return() {
    let rig = Rig::new(&[CLERK]).await;
    rig.tools.script("send", [Does::Never]);
    rig.model.script("clerk", [call("send", json!({})), words("Sent.")]);
    let begun = dies_while_it_calls(&rig, "clerk").await;
    rig.tools.withdraw("send");
    let run = rig.finish(begun).await;
    assert_eq!(
        (run.status(), run.row.stop_reason),
        (RunStatus::Paused, Some(StopReason::InDoubt))
    );
    assert!(run.error().contains("send"), "{}", run.error());
    let in_doubt = run.row.in_doubt[0].action_id;
    let again = rig.resume(run.id, &[(in_doubt, true)]).await;
    assert_eq!((again.status(), again.row.in_doubt.len()), (RunStatus::Paused, 1));
    rig.tools.bring_back("send", Idempotency::None);
    let done = rig.resume(again.id, &[(in_doubt, true)]).await;
    assert_eq!((done.status(), done.summary()), (RunStatus::Completed, "Sent."));
    assert_eq!(rig.tools.calls("send"), 1);
}

/// What the clerk sends after its first letter; the second letter is lost in one of the two ways.
fn sends_two(rig: &Rig) {
    rig.model
        .answers("clerk", |asked| match (asked.before, asked.failures().as_slice()) {
            (0, _) => call("send", json!({"n": 1})),
            (1, _) | (_, [Some(FailureCode::ToolError)]) => call("send", json!({"n": 2})),
            _ => words("Both are sent."),
        });
}

/// The ids of the in-doubt calls, each a call of `send`.
fn in_doubt(run: &Outcome, count: usize) -> Vec<ActionId> {
    assert_eq!(
        (run.status(), run.row.stop_reason),
        (RunStatus::Paused, Some(StopReason::InDoubt)),
        "{run:?}"
    );
    let calls = &run.row.in_doubt;
    assert!(
        calls.len() == count && calls.iter().all(|call| call.tool == "send"),
        "{calls:?}"
    );
    calls.iter().map(|call| call.action_id).collect()
}

const HEAD: &str = r#"
name: head
description: Calls the boss.
promptConfig: { query: "${query}", systemPrompt: head }
sub_agents: [boss]
"#;

/// X-15. Promise: at most once. An in-doubt call within a called agent is reported as that tool call. After a person
/// has settled it, the agent continues at that point and repeats nothing.
pub(crate) async fn an_in_doubt_call_of_a_called_agent_is_settled_in_that_agent(db: TestDb) {
    let mut rig = Rig::on(db, &[HEAD, BOSS, CLERK]).await;
    for (happened, crash) in [(true, false), (false, false), (true, true), (false, true)] {
        let at = format!("happened: {happened}, crash: {crash}");
        rig = rig.afresh();
        rig.model.script("head", [call("boss", go()), words("All is done.")]);
        rig.model.script(
            "boss",
            [
                call("clerk", go()).and("clerk", json!({"query": "again"})),
                words("The clerk did it."),
            ],
        );
        sends_two(&rig);
        let lost = match (crash, happened) {
            (true, _) => Does::Never,
            (false, true) => Does::LosesTheAnswer,
            (false, false) => Does::IsLost,
        };
        rig.tools.script("send", [Does::Answers(json!("sent")), lost]);
        let run = if crash {
            let begun = dies_while_it_calls(&rig, "head").await;
            rig.finish(begun).await
        } else {
            rig.run("head", go()).await
        };
        let [doubt] = in_doubt(&run, 1)[..] else {
            panic!("{run:?}")
        };
        let resumed = rig.resume(run.id, &[(doubt, happened)]).await;
        assert_eq!(
            (resumed.status(), resumed.summary()),
            (RunStatus::Completed, "All is done."),
            "{at}"
        );
        assert_eq!(resumed.row.in_doubt.len(), 0, "{at}");
        // Two letters in each of two rounds, plus one repeated letter where the person said that the call did not
        // happen.
        let times = |n: u32| {
            let letter = json!({"n": n}).to_string();
            rig.tools.sent().iter().filter(|sent| sent.arguments == letter).count()
        };
        assert_eq!((times(1), times(2)), (2, if happened { 2 } else { 3 }), "{at}");
        // Each model was asked for its next turn only, and no turn was asked for again.
        let asked = |agent: &str| rig.model.asked_of(agent).len();
        assert_eq!((asked("head"), asked("boss")), (2, 2), "{at}");
        // The same runs: the first clerk had completed, and the second continued.
        let runs = ["head completed", "boss completed", "clerk completed", "clerk completed"];
        assert_eq!(rig.runs_of(resumed.id).await, runs, "{at}");
    }
}

/// A second in-doubt call, in the resumed run, is settled in the same way.
#[tokio::test]
async fn a_called_agent_may_have_a_second_in_doubt_call() {
    let rig = Rig::new(&[BOSS, CLERK]).await;
    rig.model.script("boss", [call("clerk", go()), words("Done.")]);
    sends_two(&rig);
    rig.tools.script("send", [Does::LosesTheAnswer, Does::LosesTheAnswer]);
    let run = rig.run("boss", go()).await;
    let first = in_doubt(&run, 1)[0];
    let again = rig.resume(run.id, &[(first, true)]).await;
    let second = in_doubt(&again, 1)[0];
    assert_ne!(first, second);
    let done = rig.resume(again.id, &[(second, true)]).await;
    assert_eq!((done.status(), done.summary()), (RunStatus::Completed, "Done."));
    assert_eq!((rig.tools.calls("send"), rig.model.asked_of("boss").len()), (2, 2));
}

/// X-4: an agent that was cancelled within a call cannot continue. The outcome that a person reports is passed to its
/// caller.
#[tokio::test]
async fn a_settled_call_of_a_called_agent_that_has_ended_is_reported_to_its_caller() {
    let rig = Rig::new(&[BOSS, CLERK]).await;
    rig.model.script("boss", [call("clerk", go()), words("I know.")]);
    rig.model.script("clerk", [call("send", json!({"n": 1}))]);
    rig.tools.script("send", [Does::Never]);
    let begun = rig.begin("boss", go(), None).await;
    let process = rig.process(rig.store.clone());
    let (ended, ()) = tokio::join!(rig.drive(&process, begun), async {
        rig.tools.waited_for.notified().await;
        let rows = rig.db.rows("SELECT id FROM agent_run WHERE agent_id = 'clerk'").await;
        let child = rows[0][0].as_deref().unwrap();
        process.running.cancel(gavel::domain::ids::RunId::parse(child).unwrap());
    });
    ended.unwrap();
    let run = rig.outcome(begun.id).await;
    let doubt = in_doubt(&run, 1)[0];
    let resumed = rig.resume(run.id, &[(doubt, true)]).await;
    assert_eq!((resumed.status(), resumed.summary()), (RunStatus::Completed, "I know."));
    let asked = rig.model.asked_of("boss");
    let [(_, Err((code, words)))] = asked[1].responses() else {
        panic!("{:?}", asked[1].responses())
    };
    assert_eq!(*code, FailureCode::Cancelled);
    assert!(words.contains(r#"its call send {"n":1} had its effect"#), "{words}");
    assert_eq!(rig.tools.calls("send"), 1);
}
