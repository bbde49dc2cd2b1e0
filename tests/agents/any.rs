//! For any behavior of the model, the tools and the processes, a run ends within its limits and its journal is
//! complete.

use std::collections::HashMap;

use gavel::domain::agent_run::RunStatus;
use gavel::domain::ids::ActionId;
use gavel::domain::journal::{Entry, FaultKind};
use gavel::ports::clock::Clock;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use crate::crash::{Death, Dying};
use crate::model::{Say, call_text, fault, hangs, words};
use crate::rig::{Outcome, Rig, seconds};
use crate::tools::Does;

const STEPS: u32 = 6;
const TIME: u64 = 100;

fn boss() -> String {
    format!(
        r#"
name: boss
description: Leads.
promptConfig: {{ query: "${{query}}", systemPrompt: boss }}
toolConfig: {{ tools: [read, book, send] }}
sub_agents: [helper, rounds]
approval: never
outputConfig: {{ outputName: n, description: A number., schema: {{ type: integer }} }}
runConfig: {{ max_turns: {STEPS}, deadline_seconds: {TIME} }}
"#
    )
}

const HELPER: &str = r#"
name: helper
description: Helps.
promptConfig: { query: "${query}", systemPrompt: helper }
toolConfig: { tools: [read, send, put] }
approval: never
runConfig: { max_turns: 3, deadline_seconds: 50 }
"#;

const ROUNDS: &str = r#"
name: rounds
description: Again and again.
flow_type: loop
steps: [helper, { name: again, agent: helper }]
max_iterations: 2
runConfig: { max_turns: 8 }
"#;

/// The scripted behavior of one case.
#[derive(Clone, Debug)]
struct Case {
    boss: Vec<Say>,
    helper: Vec<Say>,
    send: Vec<Does>,
    book: Vec<Does>,
    read: Vec<Does>,
    deaths: Vec<(usize, bool)>,
    /// How many seconds ahead the deadline is, if there is one.
    until: Option<u64>,
}

fn any_calls() -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
    let name = prop_oneof![
        3 => Just("read"),
        3 => Just("send"),
        3 => Just("book"),
        2 => Just("put"),
        3 => Just("helper"),
        2 => Just("rounds"),
        2 => Just("complete_task"),
        1 => Just("exit_loop"),
        1 => Just("drop_all"),
    ];
    let arguments = prop_oneof![
        Just("{}"),
        Just(r#"{"query":"help"}"#),
        Just(r#"{"n":7}"#),
        Just(r#"{ "n" : "many" }"#),
        Just(r#"{"result":"done"}"#),
    ];
    prop_oneof![
        9 => prop::collection::vec((name.clone(), arguments.clone()), 1..4),
        1 => prop::collection::vec((name, arguments), 17..20),
    ]
}

fn any_say() -> impl Strategy<Value = Say> {
    let calls =
        (any_calls(), prop_oneof![Just(""), Just("I continue.")], 0..20_u64).prop_map(|(calls, said, takes)| {
            let mut calls = calls.into_iter();
            let (name, arguments) = calls.next().unwrap();
            calls
                .fold(call_text(name, arguments), |say, (name, arguments)| {
                    say.and(name, serde_json::from_str(arguments).unwrap())
                })
                .saying(said)
                .after(seconds(takes))
        });
    prop_oneof![
        8 => calls,
        2 => Just(call_text("complete_task", r#"{"n":7}"#)),
        2 => prop_oneof![Just("All done."), Just(""), Just(" ")].prop_map(words),
        1 => Just(hangs()),
        1 => prop_oneof![
            Just(FaultKind::Timeout),
            Just(FaultKind::Blocked),
            Just(FaultKind::Malformed),
            Just(FaultKind::Unavailable),
        ]
        .prop_map(fault),
    ]
}

fn any_does() -> impl Strategy<Value = Vec<Does>> {
    let does = prop_oneof![
        4 => Just(Does::Answers(json!({"ok": true}))),
        1 => (0..25_u64).prop_map(|time| Does::Takes(seconds(time))),
        1 => Just(Does::Fails("no")),
        1 => Just(Does::LosesTheAnswer),
        1 => Just(Does::IsLost),
        1 => Just(Does::IsAway),
        1 => Just(Does::Hangs),
    ];
    prop::collection::vec(does, 0..8)
}

fn any_case() -> impl Strategy<Value = Case> {
    let says = || prop::collection::vec(any_say(), 1..6);
    let deaths = prop::collection::vec((1..12_usize, any::<bool>()), 0..3);
    let until = prop::option::weighted(0.4, 0..130_u64);
    let tools = (any_does(), any_does(), any_does());
    (says(), says(), tools, deaths, until).prop_map(|(boss, helper, (send, book, read), deaths, until)| Case {
        boss,
        helper,
        send,
        book,
        read,
        deaths,
        until,
    })
}

async fn play(rig: &Rig, case: &Case) -> Outcome {
    for (agent, script) in [("boss", &case.boss), ("helper", &case.helper)] {
        let script = script.clone();
        rig.model
            .answers(agent, move |asked| script[asked.before % script.len()].clone());
    }
    for (tool, does) in [("send", &case.send), ("book", &case.book), ("read", &case.read)] {
        rig.tools.script(tool, does.clone());
    }
    let go = json!({"query": "go"});
    let mut begun = match case.until {
        None => rig.begin("boss", go, None).await,
        Some(ahead) => {
            let until_us = rig.clock.now_us() + i64::try_from(seconds(ahead).as_micros()).unwrap();
            rig.begin_until("boss", go, until_us).await
        }
    };
    for (write, received) in &case.deaths {
        let death = if *received { Death::Before } else { Death::After };
        let process = rig.process(Dying::at(&rig.store, *write, death));
        if rig.drive(&process, begun).await.is_ok() {
            return rig.outcome(begun.id).await;
        }
        match rig.take_over(begun).await {
            Some(next) => begun = next,
            None => return rig.outcome(begun.id).await,
        }
    }
    rig.finish(begun).await
}

/// Every call has exactly one result. No run has a second one, because no in-doubt call is settled here.
fn calls_are_answered(run: &Outcome) -> Result<(), TestCaseError> {
    let mut results: HashMap<ActionId, u32> = HashMap::new();
    for entry in &run.journal {
        if let Entry::Result { call, .. } = entry {
            *results.entry(*call).or_default() += 1;
        }
    }
    let calls: Vec<_> = run.journal.iter().flat_map(Entry::calls).collect();
    for call in &calls {
        // The call that completes the run needs no result, and an interrupted step stays open until the flow is
        // resumed.
        let is_last = calls.last().is_some_and(|last| last.id == call.id);
        let ends = run.status() == RunStatus::Completed && is_last;
        // The step's own limit stopped it, or the flow's.
        let is_step = |entry: &Entry| matches!(entry, Entry::Step { call: step, .. } if step.id == call.id);
        let open_step = run.status() == RunStatus::Paused && is_last && run.journal.iter().any(is_step);
        let given = results.remove(&call.id).unwrap_or(0);
        prop_assert!(
            given == 1 || (given == 0 && (ends || open_step)),
            "{given} results of {call:?} in {run:#?}"
        );
    }
    prop_assert!(results.is_empty(), "results without calls: {results:?}");
    Ok(())
}

async fn holds(rig: &Rig, case: &Case) -> Result<(), TestCaseError> {
    let before = rig.clock.passed();
    let run = play(rig, case).await;
    prop_assert!(run.status().has_ended(), "{:?}", run.row);
    prop_assert!(!run.error().contains("Something went wrong"), "{:?}", run.row);
    prop_assert!(run.row.steps <= STEPS + 1, "{:?}", run.row);
    let took = rig.clock.passed() - before;
    // A process that dies loses the duration of its last call.
    let lost = u32::try_from(case.deaths.len()).unwrap() * seconds(TIME);
    prop_assert!(took <= seconds(TIME + 30) + lost, "{took:?}");
    // No process extends the deadline.
    if let Some(until) = case.until {
        prop_assert!(took <= seconds(until), "{took:?} of {until} s");
    }
    calls_are_answered(&run)?;
    let sql = format!(
        "SELECT id FROM agent_run WHERE root_id = '{}' AND id <> root_id",
        run.id
    );
    for row in rig.db.rows(&sql).await {
        let id = row[0].as_deref().and_then(gavel::domain::ids::RunId::parse).unwrap();
        let child = rig.outcome(id).await;
        prop_assert!(child.status().has_ended(), "{:?}", child.row);
        prop_assert!(!child.error().contains("Something went wrong"), "{:?}", child.row);
        calls_are_answered(&child)?;
    }
    // A call that is sent twice takes a key, is harmless, or only reads.
    let mut keys: Vec<_> = rig
        .tools
        .sent()
        .into_iter()
        .filter(|sent| sent.tool == "send")
        .map(|sent| sent.key)
        .collect();
    let sends = keys.len();
    keys.sort_unstable();
    keys.dedup();
    prop_assert_eq!(keys.len(), sends);
    let decisions = "SELECT count(*) FROM decision_log WHERE status <> 'closed'";
    prop_assert_eq!(rig.db.count(decisions).await, 0);
    let started = "SELECT count(*) FROM tool_invocation_log WHERE status = 'started'";
    prop_assert_eq!(rig.db.count(started).await, 0);
    prop_assert_eq!(run.row.output.is_some(), run.status() == RunStatus::Completed);
    if run.status() == RunStatus::Completed {
        prop_assert_eq!(run.output(), Value::from(7));
    }
    Ok(())
}

fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

/// X-4 to X-15. Promises: at most once, bounded faults, truthful states. Any script ends within the limits and leaves a
/// complete journal.
#[test]
fn any_script_ends_within_limits_with_a_complete_journal() {
    let runtime = runtime();
    let mut rig = Some(runtime.block_on(Rig::new(&[boss().as_str(), HELPER, ROUNDS])));
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 96,
        max_shrink_iters: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let rig = std::cell::RefCell::new(rig.take());
    let played = runner.run(&any_case(), |case| {
        let fresh = rig.borrow_mut().take().map(Rig::afresh).unwrap();
        let held = runtime.block_on(holds(&fresh, &case));
        *rig.borrow_mut() = Some(fresh);
        held
    });
    if let Err(error) = played {
        panic!("{error}");
    }
}
