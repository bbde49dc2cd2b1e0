//! A process dies at any of its writes, and another process continues the run (promises: at most once, truthful
//! states).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use gavel::adapters::store::Store;
use gavel::api::runs::AgentRun;
use gavel::domain::agent_run::{RunStatus, StopReason};
use gavel::domain::ids::{DecisionId, ProjectId, RunId, TenantId, UserId};
use gavel::engine::limits::Stop;
use gavel::engine::log::Halt;
use gavel::ports::BoxFuture;
use gavel::ports::claims::{Claim, Claimant, Claimed};
use gavel::ports::commit::{Commit, Committed, Recorder};
use gavel::ports::records::{ListQuery, Page, QueryError, RecordError};
use gavel::ports::runs::{
    Lease, LoggedEntry, NewRun, Renewed, Reopen, RunState, Runs, Started, StoredEntry, StoredRun, Turn, Waiting,
};
use serde_json::json;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::model::{call, words};
use crate::rig::{Begun, Outcome, Rig, seconds};
use crate::support::TestDb;
use crate::tools::Does;

/// When a process dies, relative to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    /// The write does not reach the store.
    Before,
    /// The write reaches the store, and its caller receives no answer.
    After,
    /// The process lives, and the write does not reach the store until the test releases it.
    Held,
    /// The process lives and the write is in the store; the answer arrives when the test releases it.
    HeldUnacknowledged,
}

/// The store as a process sees it that dies at its n-th write.
pub(crate) struct Dying {
    store: Arc<Store>,
    left: AtomicUsize,
    writes: AtomicUsize,
    reads: AtomicUsize,
    death: Death,
    dead: AtomicBool,
    /// Notified when the write is held.
    pub(crate) held: Notify,
    /// Releases the held write.
    pub(crate) continues: Notify,
}

impl Dying {
    pub(crate) fn at(store: &Arc<Store>, write: usize, death: Death) -> Arc<Self> {
        Arc::new(Self {
            store: Arc::clone(store),
            left: AtomicUsize::new(write),
            writes: AtomicUsize::new(0),
            reads: AtomicUsize::new(0),
            death,
            dead: AtomicBool::new(false),
            held: Notify::new(),
            continues: Notify::new(),
        })
    }

    pub(crate) fn never(store: &Arc<Store>) -> Arc<Self> {
        Self::at(store, usize::MAX, Death::Before)
    }

    /// How often the process has written.
    pub(crate) fn writes(&self) -> usize {
        self.writes.load(Ordering::SeqCst)
    }

    /// How often it has read.
    pub(crate) fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }

    fn read(&self) -> &Store {
        self.reads.fetch_add(1, Ordering::SeqCst);
        &self.store
    }

    async fn write<T>(&self, write: BoxFuture<'_, Result<T, RecordError>>) -> Result<T, RecordError> {
        let died = || Err(RecordError::Unavailable("the process is dead".into()));
        self.writes.fetch_add(1, Ordering::SeqCst);
        if self.dead.load(Ordering::SeqCst) {
            return died();
        }
        if self.left.fetch_sub(1, Ordering::SeqCst) != 1 {
            return write.await;
        }
        match self.death {
            Death::Before | Death::After => {
                self.dead.store(true, Ordering::SeqCst);
                if self.death == Death::After {
                    write.await?;
                }
                died()
            }
            Death::Held => {
                self.held.notify_one();
                self.continues.notified().await;
                write.await
            }
            Death::HeldUnacknowledged => {
                let written = write.await;
                self.held.notify_one();
                self.continues.notified().await;
                written
            }
        }
    }
}

#[async_trait]
impl Recorder for Dying {
    fn available(&self) -> Result<(), RecordError> {
        self.store.available()
    }
    async fn commit(&self, commit: Commit) -> Result<Committed, RecordError> {
        self.write(self.store.commit(commit)).await
    }
    async fn claim(&self, claim: Claim, by: Claimant) -> Result<Claimed, RecordError> {
        self.store.claim(claim, by).await
    }
    fn lose(&self, decision: DecisionId) {
        self.store.lose(decision);
    }
}

#[async_trait]
impl Runs for Dying {
    fn lease_length(&self) -> Duration {
        self.store.lease_length()
    }
    async fn create(&self, run: NewRun) -> Result<Started, RecordError> {
        self.write(self.store.create(run)).await
    }
    async fn reopen(&self, run: Reopen) -> Result<Started, RecordError> {
        self.write(self.store.reopen(run)).await
    }
    async fn take(&self, run: RunId) -> Result<Option<Lease>, RecordError> {
        self.store.take(run).await
    }
    async fn renew(&self, leases: Vec<Lease>) -> Result<Renewed, RecordError> {
        self.store.renew(leases).await
    }
    async fn release(&self, leases: Vec<Lease>) -> Result<(), RecordError> {
        self.store.release(leases).await
    }
    async fn cancel(&self, run: RunId, by: &str) -> Result<(), RecordError> {
        self.store.cancel(run, by).await
    }
    async fn give_up(&self, most: u32) -> Result<Vec<RunId>, RecordError> {
        self.store.give_up(most).await
    }
    async fn waiting(&self, turn: Turn<'_>, takes: u32) -> Result<Option<Waiting>, RecordError> {
        self.store.waiting(turn, takes).await
    }
    async fn claimed(&self, claim: &Claim) -> Result<Option<Claimed>, QueryError> {
        self.store.claimed(claim).await
    }
    async fn load(&self, run: RunId) -> Result<Option<StoredRun>, QueryError> {
        self.read().load(run).await
    }
    async fn run_state(&self, run: RunId) -> Result<Option<RunState>, QueryError> {
        self.read().run_state(run).await
    }
    async fn is_cancelled(&self, run: RunId) -> Result<bool, QueryError> {
        self.read().is_cancelled(run).await
    }
    async fn journal(&self, run: RunId, after: u64, most: u32) -> Result<Vec<StoredEntry>, QueryError> {
        self.read().journal(run, after, most).await
    }
    async fn events(&self, run: RunId, after: u64, most: u32, bytes: usize) -> Result<Vec<LoggedEntry>, QueryError> {
        self.read().events(run, after, most, bytes).await
    }
    async fn get(&self, tenant: &TenantId, user: Option<&UserId>, run: RunId) -> Result<Option<AgentRun>, QueryError> {
        self.read().get(tenant, user, run).await
    }
    async fn list(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        query: &ListQuery,
    ) -> Result<Page<AgentRun>, QueryError> {
        self.store.list(tenant, project, query).await
    }
}

/// The final state of a run, without ids and times.
#[derive(Debug, PartialEq)]
struct Left {
    status: RunStatus,
    summary: Option<String>,
    output: serde_json::Value,
    error: Option<String>,
    stop_reason: Option<StopReason>,
    steps: u32,
    runs: Vec<String>,
    effects: Vec<(String, String)>,
}

async fn left(rig: &Rig, run: &Outcome) -> Left {
    Left {
        status: run.status(),
        summary: run.row.summary.clone(),
        output: run.output(),
        error: run.row.error_message.clone(),
        stop_reason: run.row.stop_reason,
        steps: run.row.steps,
        runs: rig.runs_of(run.id).await,
        effects: rig.tools.effects(),
    }
}

/// Drives a run in a process that dies at its n-th write, then in one that does not. Returns the outcome and whether
/// another process claimed the run, or `None` if the run ended before that write.
async fn disturbed(rig: &Rig, begun: Begun, write: usize, death: Death) -> Option<(Outcome, bool)> {
    let process = rig.process(Dying::at(&rig.store, write, death));
    if rig.drive(&process, begun).await.is_ok() {
        return None;
    }
    drop(process);
    let taken = rig.take_over(begun).await;
    match taken {
        Some(begun) => Some((rig.finish(begun).await, true)),
        // The last write was the end of the run.
        None => Some((rig.outcome(begun.id).await, false)),
    }
}

/// With a death at any write, before or after it, the run ends as it does without a death.
async fn dies_everywhere(mut rig: Rig, least: usize, prepare: impl Fn(&Rig), begin: impl AsyncFn(&Rig) -> Begun) {
    prepare(&rig);
    let begun = begin(&rig).await;
    let run = rig.finish(begun).await;
    let expected = left(&rig, &run).await;
    assert_eq!(
        (expected.status, run.row.recovered_from),
        (RunStatus::Completed, None),
        "{expected:?}"
    );
    for death in [Death::Before, Death::After] {
        for write in 1.. {
            rig = rig.afresh();
            prepare(&rig);
            let begun = begin(&rig).await;
            let Some((run, taken_up)) = disturbed(&rig, begun, write, death).await else {
                assert!(write > least, "only {write} writes");
                break;
            };
            assert_eq!(left(&rig, &run).await, expected, "{death:?} write {write}");
            let from = taken_up.then_some(StopReason::Crash);
            assert_eq!(run.row.recovered_from, from, "{death:?} write {write}");
            same_keys(&rig);
        }
    }
}

/// A call with an effect is repeated at most once, and under the same key.
fn same_keys(rig: &Rig) {
    let mut keys: HashMap<String, Vec<String>> = HashMap::new();
    for sent in rig.tools.sent().into_iter().filter(|sent| sent.tool != "read") {
        keys.entry(format!("{} {}", sent.tool, sent.arguments))
            .or_default()
            .push(sent.key);
    }
    for (call, keys) in keys {
        assert!(keys.len() <= 2, "{call}: {keys:?}");
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), 1, "{call}: {keys:?}");
    }
}

fn clerk(more: &str) -> String {
    format!(
        r#"
name: clerk
description: Works.
promptConfig: {{ query: "${{query}}", systemPrompt: clerk }}
toolConfig: {{ tools: [read, send, book, put] }}
approval: never
{more}
"#
    )
}

const BOSS: &str = r#"
name: boss
description: Leads.
promptConfig: { query: "${query}", systemPrompt: boss }
toolConfig: { tools: [book] }
sub_agents: [clerk]
approval: never
"#;

fn go() -> serde_json::Value {
    json!({"query": "go"})
}

/// One agent whose tools only read, take a key, or may be repeated.
pub(crate) async fn a_run_whose_process_dies_at_any_write_ends_as_if_undisturbed(db: TestDb) {
    let output = "outputConfig: { outputName: n, description: A number., schema: { type: integer } }";
    let rig = Rig::on(db, &[clerk(output).as_str()]).await;
    let prepare = |rig: &Rig| {
        rig.model.script(
            "clerk",
            [
                call("read", json!({"n": 1}))
                    .and("book", json!({"n": 2}))
                    .and("put", json!({"n": 3})),
                call("complete_task", json!({"n": "many"})).saying("Seven."),
                call("book", json!({"n": 4}))
                    .and("read", json!({"n": 5}))
                    .and("read", json!({"n": 6})),
                call("complete_task", json!({"n": 7})),
            ],
        );
    };
    dies_everywhere(rig, 7, prepare, async |rig| rig.begin("clerk", go(), None).await).await;
}

/// An agent that calls another agent; both have effects.
#[tokio::test]
async fn a_run_with_a_sub_agent_whose_process_dies_at_any_write_ends_as_if_undisturbed() {
    let rig = Rig::new(&[BOSS, clerk("").as_str()]).await;
    let prepare = |rig: &Rig| {
        rig.model.script(
            "boss",
            [
                call("book", json!({"by": "boss"}))
                    .and("clerk", json!({"query": "one"}))
                    .and("clerk", json!({"query": "two"})),
                call("book", json!({"again": "boss"})),
                words("Both are done."),
            ],
        );
        rig.model.answers("clerk", |asked| match asked.before {
            0 => call("read", json!({})).and("book", json!({"for": asked.task()})),
            _ => words("done"),
        });
    };
    dies_everywhere(rig, 15, prepare, async |rig| rig.begin("boss", go(), None).await).await;
}

const ALONE: &str = "name: alone\ndescription: Does it.\nsystemPrompt: Do.\ntools: [send]\napproval: never\n";

const FLOW: &str = r#"
name: flow
description: A pipeline with a loop in it.
flow_type: sequential
steps: [clerk, { name: rounds, agent: loop, input: { query: "${clerk}" } }, { name: last, agent: clerk, input: { query: "${rounds}" } }]
"#;

const LOOP: &str = r#"
name: loop
description: Again and again.
promptConfig: { query: "${query}", systemPrompt: loop }
toolConfig: { tools: [book] }
flow_type: loop
max_iterations: 2
approval: never
"#;

fn prepare_flow(rig: &Rig) {
    rig.model.answers("clerk", |asked| match asked.before {
        0 => call("book", json!({"for": asked.task()})),
        _ => words(&format!("done {}", asked.task().len())),
    });
    rig.model.answers("loop", |asked| match asked.before {
        0 => call("book", json!({"for": asked.task()})),
        _ => words("rounded"),
    });
}

/// A pipeline that contains a loop.
pub(crate) async fn a_flow_whose_process_dies_at_any_write_ends_as_if_undisturbed(db: TestDb) {
    let rig = Rig::on(db, &[clerk("").as_str(), FLOW, LOOP]).await;
    dies_everywhere(rig, 20, prepare_flow, async |rig| rig.begin("flow", go(), None).await).await;
}

/// A flow that resumes at an interrupted step.
#[tokio::test]
async fn a_resumed_flow_whose_process_dies_at_any_write_ends_as_if_undisturbed() {
    let flow = "name: flow\ndescription: One step.\nflow_type: sequential\nsteps: [clerk]\n";
    let rig = Rig::new(&[clerk("runConfig: { max_turns: 2 }").as_str(), flow]).await;
    let prepare = |rig: &Rig| {
        let book = |n: u32| call("book", json!({"n": n}));
        let script = [book(1), book(2), words("Two."), book(3), words("Three.")];
        rig.model.script("clerk", script);
    };
    dies_everywhere(rig, 4, prepare, async |rig| {
        let first = rig.run("flow", go()).await;
        assert_eq!(first.row.stop_reason, Some(StopReason::Step));
        rig.begin_resume(first.id, &[]).await
    })
    .await;
}

/// Every process that continues the run dies too, at each of its writes.
#[tokio::test]
async fn a_run_ends_normally_even_if_every_process_dies() {
    let rig = Rig::new(&[clerk("").as_str(), FLOW, LOOP]).await;
    prepare_flow(&rig);
    let begun = rig.begin("flow", go(), None).await;
    let run = rig.finish(begun).await;
    let expected = left(&rig, &run).await;
    for death in [Death::Before, Death::After] {
        let rig = Rig::new(&[clerk("").as_str(), FLOW, LOOP]).await;
        prepare_flow(&rig);
        let mut begun = rig.begin("flow", go(), None).await;
        // The first writes only ensure that the two nested runs exist; later writes make progress.
        for _ in 0..100 {
            let process = rig.process(Dying::at(&rig.store, 5, death));
            if rig.drive(&process, begun).await.is_ok() {
                break;
            }
            match rig.take_over(begun).await {
                Some(next) => begun = next,
                None => break,
            }
        }
        let run = rig.outcome(begun.id).await;
        let left = left(&rig, &run).await;
        assert_eq!(
            (left.status, &left.effects),
            (expected.status, &expected.effects),
            "{death:?}"
        );
        assert_eq!(left, expected, "{death:?}");
    }
}

/// Promise: at most once. A tool that takes no key is not called twice. The run pauses and names the call, unless the
/// call is known not to have started or to have been answered. This holds at every write, in one agent, in a called
/// agent, and in a step of a flow.
pub(crate) async fn a_tool_without_a_key_is_never_called_twice(db: TestDb) {
    let flow = "name: flow\ndescription: One step.\nflow_type: sequential\nsteps: [clerk]\n";
    let mut rig = Rig::on(db, &[clerk("").as_str(), BOSS, flow]).await;
    for (agent, reason) in [
        ("clerk", StopReason::InDoubt),
        ("boss", StopReason::InDoubt),
        ("flow", StopReason::Step),
    ] {
        let mut seen = HashSet::new();
        for (death, write) in [Death::Before, Death::After]
            .into_iter()
            .flat_map(|death| (1..).map(move |n| (death, n)).take(20))
        {
            rig = rig.afresh();
            rig.model
                .script("boss", [call("clerk", json!({"query": "send it"})), words("Sent.")]);
            rig.model
                .script("clerk", [call("send", json!({"n": 1})), words("Sent.")]);
            let begun = rig.begin(agent, go(), None).await;
            let Some((run, _)) = disturbed(&rig, begun, write, death).await else {
                continue;
            };
            let (calls, effects) = (rig.tools.calls("send"), rig.tools.effects().len());
            assert!(
                calls <= 1 && calls == effects,
                "{agent} {death:?} write {write}: {calls}"
            );
            seen.insert((run.status(), effects));
            if run.status() == RunStatus::Completed {
                assert_eq!(effects, 1);
                continue;
            }
            assert_eq!((run.status(), run.row.stop_reason), (RunStatus::Paused, Some(reason)));
            assert_eq!(run.row.recovered_from, Some(StopReason::Crash));
            let [in_doubt] = &run.row.in_doubt[..] else {
                panic!("{:?}", run.row.in_doubt)
            };
            let resumed = rig.resume(run.id, &[(in_doubt.action_id, effects == 1)]).await;
            assert_eq!((resumed.status(), resumed.summary()), (RunStatus::Completed, "Sent."));
            assert_eq!(rig.tools.calls("send"), calls);
        }
        let all = [
            (RunStatus::Completed, 1),
            (RunStatus::Paused, 0),
            (RunStatus::Paused, 1),
        ];
        assert_eq!(seen, HashSet::from(all), "{agent}");
    }
}

/// X-6. Promise: at most once. A run that dies after its soft stop makes no further steps.
#[tokio::test]
async fn a_run_that_dies_after_its_soft_stop_has_no_more_steps() {
    let mut rig = Rig::new(&[clerk("runConfig: { max_turns: 2 }").as_str()]).await;
    for death in [Death::Before, Death::After] {
        for write in 1..=7 {
            rig = rig.afresh();
            rig.model.script(
                "clerk",
                [
                    call("book", json!({"n": 1})),
                    call("book", json!({"n": 2})),
                    call("book", json!({"n": 3})).saying("One more."),
                ],
            );
            let begun = rig.begin("clerk", go(), None).await;
            let run = match disturbed(&rig, begun, write, death).await {
                Some((run, _)) => run,
                None => rig.outcome(begun.id).await,
            };
            assert_eq!((run.status(), run.summary()), (RunStatus::Paused, "One more."));
            assert_eq!((run.row.stop_reason, run.row.steps), (Some(StopReason::StepLimit), 3));
            assert_eq!(rig.tools.effects().len(), 2);
        }
    }
}

/// Promise: truthful states. A run that recovered from text in place of its required output reports that, even if it
/// also recovered from a crash.
#[tokio::test]
async fn a_run_reports_recovery_from_a_missing_output_even_after_a_crash() {
    let output = "outputConfig: { outputName: n, description: A number., schema: { type: integer } }";
    let rig = Rig::new(&[clerk(output).as_str()]).await;
    let script = [
        words("I am done."),
        call("book", json!({})),
        call("complete_task", json!({"n": 7})),
    ];
    rig.model.script("clerk", script);
    let begun = rig.begin("clerk", go(), None).await;
    let (run, taken_up) = disturbed(&rig, begun, 2, Death::After).await.unwrap();
    assert!(taken_up);
    assert_eq!((run.status(), run.output()), (RunStatus::Completed, json!(7)));
    assert_eq!(run.row.recovered_from, Some(StopReason::MissingOutput));
}

/// A process that lost its lease but is still alive sends nothing more.
#[tokio::test]
async fn a_process_that_lost_its_lease_sends_nothing() {
    let rig = Rig::new(&[clerk("").as_str()]).await;
    rig.model.script("clerk", [call("send", json!({})), words("Sent.")]);
    let lost = rig.begin("clerk", go(), None).await;
    let begun = rig.take_over(lost).await.unwrap();
    let process = rig.process(rig.store.clone());
    let driven = rig.drive(&process, lost).await;
    assert!(matches!(driven, Err(Stop::LeaseLost)), "{driven:?}");
    assert_eq!(rig.tools.sent(), []);
    let run = rig.finish(begun).await;
    assert_eq!((run.status(), rig.tools.effects().len()), (RunStatus::Completed, 1));
}

/// Promise: at most once. An answered call of any kind is not repeated. A read that was not answered may be repeated.
#[tokio::test]
async fn an_answered_call_is_not_repeated_after_a_crash() {
    let rig = Rig::new(&[clerk("").as_str()]).await;
    rig.tools
        .script("read", [Does::Answers(json!("first")), Does::Answers(json!("second"))]);
    rig.model.script(
        "clerk",
        [call("read", json!({})), call("book", json!({})), words("Done.")],
    );
    let begun = rig.begin("clerk", go(), None).await;
    // The task, the read with its result; then the write of the second call's turn is lost.
    let process = rig.process(Dying::at(&rig.store, 3, Death::Before));
    assert!(rig.drive(&process, begun).await.is_err());
    let begun = rig.take_over(begun).await.unwrap();
    let run = rig.finish(begun).await;
    assert_eq!(run.status(), RunStatus::Completed);
    assert_eq!((rig.tools.calls("read"), rig.tools.calls("book")), (1, 1));
    assert_eq!(
        rig.model.asked()[2].responses(),
        [("read".to_owned(), Ok(json!("first")))]
    );
}

/// X-8, X-15: the time that a called run has used counts against its caller, however often a process dies.
#[tokio::test]
async fn the_time_of_a_called_run_counts_for_its_caller_after_a_crash() {
    let boss = format!("{BOSS}runConfig: {{ deadline_seconds: 60 }}\n");
    let rig = Rig::new(&[boss.as_str(), clerk("").as_str()]).await;
    rig.model
        .script("boss", [call("clerk", json!({"query": "one"})), words("Done.")]);
    rig.model.script("clerk", [call("read", json!({})), words("Read.")]);
    rig.tools.script("read", [Does::Takes(seconds(15))]);
    let mut begun = rig.begin("boss", go(), None).await;
    // The tasks and the started calls make six writes, the last of which is the result of the read. After that,
    // ensuring that the clerk's run exists is one write.
    for write in [7, 1, 1] {
        let process = rig.process(Dying::at(&rig.store, write, Death::Before));
        assert!(rig.drive(&process, begun).await.is_err());
        begun = rig.take_over(begun).await.unwrap();
    }
    let run = rig.finish(begun).await;
    assert_eq!((run.status(), run.summary()), (RunStatus::Completed, "Done."));
    assert_eq!(rig.tools.calls("read"), 1);
    let left = rig.model.asked_of("boss").last().unwrap().time;
    assert_eq!(left, seconds(45));
}

/// Promise: truthful states. A run with an unreadable journal fails with an error that says so, and is not claimed
/// again.
#[tokio::test]
async fn a_run_with_an_unreadable_journal_fails_with_that_reason() {
    let damage = "UPDATE agent_run_entry SET body = '{\"of\": \"another time\"}' WHERE number = 1";
    fails_once_damaged(damage, "its journal cannot be read").await;
}

/// Its settings restrict a run, so it does not continue without them.
#[tokio::test]
async fn a_run_with_unreadable_settings_fails_with_that_reason() {
    for field in ["until_us", "floor", "zone"] {
        let damage = format!(
            "UPDATE agent_run SET settings = REPLACE(settings, '\"{field}\":null', '\"{field}\":\"another time\"')"
        );
        fails_once_damaged(&damage, "its settings cannot be read: ").await;
    }
}

async fn fails_once_damaged(damage: &str, reason: &str) {
    let rig = Rig::new(&[ALONE]).await;
    rig.model.answers("alone", |asked| match asked.before {
        0 => call("send", json!({})),
        _ => words("Done."),
    });
    let begun = rig.begin("alone", json!({"query": "go"}), None).await;
    let halt = Halt::default();
    halt.between_steps.cancel();
    let process = rig.process(rig.store.clone());
    let stopped = rig.drive_until(&process, begun, CancellationToken::new(), halt).await;
    assert!(matches!(stopped, Err(Stop::Halted)), "{stopped:?}");
    rig.db.run(damage).await;
    let begun = rig.take_over(begun).await.unwrap();
    let ended = rig.drive(&rig.process(rig.store.clone()), begun).await.unwrap();
    assert_eq!(ended.end.status, RunStatus::Failed, "{damage}");
    let said = ended.end.error_message.unwrap();
    assert!(said.starts_with(reason), "{said}");
    assert_eq!(rig.tools.effects().len(), 0);
    assert!(rig.take_over(begun).await.is_none());
}
