//! Everything a run needs, with a scripted model and scripted tools.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gavel::adapters::store::{Store, StoreConfig};
use gavel::api::runs::AgentRun;
use gavel::domain::agent_run::RunStatus;
use gavel::domain::definition::{Agents as Directory, Approval, Definition, Form, Source, check};
use gavel::domain::ids::{ActionId, ConversationId, ProjectId, RunId, ThreadId, UserId};
use gavel::domain::journal::{CallResult, Entry};
use gavel::domain::policy::Policy;
use gavel::engine::Engine;
use gavel::engine::agent::{Agents, Ended, Fresh, Given, Models, OnReject, Running, Settings};
use gavel::engine::limits::Stop;
use gavel::engine::live::Live;
use gavel::engine::log::{self, Halt};
use gavel::engine::snapshot::DefinitionSnapshot;
use gavel::ports::clock::Clock;
use gavel::ports::commit::Recorder;
use gavel::ports::records::OpenDecision;
use gavel::ports::runs::{Hold, InThread, Lease, NewRun, Origin, Reopen, ReopenedFor, Runs, Settled, Started};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::crash::Dying;
use crate::model::ScriptedModel;
use crate::support::{T0, TestDb, tenant};
use crate::tools::ScriptedTools;

/// A clock that moves only when the test advances it.
pub(crate) struct ManualClock {
    began: Instant,
    passed: Mutex<Duration>,
}

impl ManualClock {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            began: Instant::now(),
            passed: Mutex::default(),
        })
    }

    pub(crate) fn advance(&self, by: Duration) {
        *self.passed.lock().unwrap() += by;
    }

    pub(crate) fn passed(&self) -> Duration {
        *self.passed.lock().unwrap()
    }
}

impl Clock for ManualClock {
    fn now_us(&self) -> i64 {
        T0 + i64::try_from(self.passed().as_micros()).unwrap()
    }

    fn instant(&self) -> Instant {
        self.began + self.passed()
    }
}

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A run that is created and leased.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    pub(crate) id: RunId,
    pub(crate) lease: Lease,
}

/// A run as the store has it.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) id: RunId,
    pub(crate) row: AgentRun,
    pub(crate) journal: Vec<Entry>,
}

impl Outcome {
    pub(crate) fn status(&self) -> RunStatus {
        self.row.status
    }

    pub(crate) fn summary(&self) -> &str {
        self.row.summary.as_deref().unwrap_or_default()
    }

    pub(crate) fn error(&self) -> &str {
        self.row.error_message.as_deref().unwrap_or_default()
    }

    pub(crate) fn output(&self) -> Value {
        let output = self.row.output.as_deref();
        output.map_or(Value::Null, |output| serde_json::from_str(output.get()).unwrap())
    }

    /// The runs that it called, in order.
    pub(crate) fn called(&self) -> Vec<RunId> {
        let mut called = Vec::new();
        for entry in &self.journal {
            if let Entry::Started { child: Some(child), .. } = entry
                && !called.contains(child)
            {
                called.push(*child);
            }
        }
        called
    }

    /// The results of a call, in order.
    pub(crate) fn results_of(&self, id: ActionId) -> Vec<&CallResult> {
        let results = self.journal.iter().filter_map(|entry| match entry {
            Entry::Result { call, result } if *call == id => Some(result),
            _ => None,
        });
        results.collect()
    }
}

/// The engine on a real store.
pub(crate) struct Rig {
    pub(crate) db: TestDb,
    pub(crate) store: Arc<Store>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) model: Arc<ScriptedModel>,
    pub(crate) tools: Arc<ScriptedTools>,
    /// The policy of processes that start from now on.
    policy: Mutex<Arc<Policy>>,
    directory: Directory,
}

impl Rig {
    /// On SQLite.
    pub(crate) async fn new(definitions: &[&str]) -> Self {
        Self::on(TestDb::sqlite().await, definitions).await
    }

    /// `definitions` are YAML.
    pub(crate) async fn on(db: TestDb, definitions: &[&str]) -> Self {
        let sources = definitions.iter().enumerate().map(|(n, text)| Source {
            file: format!("agents/{n}.yaml"),
            form: Form::Yaml,
            bytes: text.as_bytes().to_vec(),
        });
        let checked = check(&sources.collect::<Vec<_>>(), &[]);
        assert!(checked.errors.is_empty(), "{:#?}", checked.errors);
        // No lease is renewed here and none expires: a process that dies releases its lease.
        let config = StoreConfig {
            run_lease: seconds(3600),
            ..db.config()
        };
        let store = Store::open(config).await.unwrap();
        let clock = ManualClock::new();
        Self {
            db,
            store,
            model: ScriptedModel::new(Arc::clone(&clock)),
            tools: ScriptedTools::new(Arc::clone(&clock)),
            clock,
            policy: Mutex::default(),
            directory: checked.agents,
        }
    }

    /// The same store with unused tools and a model without scripts.
    pub(crate) fn afresh(self) -> Self {
        Self {
            model: ScriptedModel::new(Arc::clone(&self.clock)),
            tools: ScriptedTools::new(Arc::clone(&self.clock)),
            ..self
        }
    }

    /// The parts of a process, with its own access to the store.
    pub(crate) fn process<S: Runs + Recorder + 'static>(&self, store: Arc<S>) -> Arc<Agents> {
        Arc::new(Agents {
            engine: Engine {
                model: self.model.clone(),
                tools: self.tools.clone(),
                recorder: store.clone(),
                clock: self.clock.clone(),
                policy: Arc::clone(&self.policy.lock().unwrap()),
                prices: Arc::default(),
                checks: Arc::default(),
            },
            models: Models::default(),
            runs: store,
            actions: self.store.clone(),
            approvals_expire: Duration::from_secs(24 * 3600),
            running: Running::default(),
        })
    }

    /// Replaces the operator's policy file.
    pub(crate) fn rules(&self, text: &str) {
        *self.policy.lock().unwrap() = Arc::new(Policy::read(text, "policy.yaml").unwrap());
    }

    pub(crate) fn definition(&self, agent: &str) -> &Definition {
        &self.directory[agent].definition
    }

    fn new_run(&self, agent: &str, inputs: Value, timeout: Option<Duration>) -> NewRun {
        let Value::Object(inputs) = inputs else {
            panic!("inputs are an object")
        };
        let definition = &self.directory[agent].definition;
        let inputs = definition.check_arguments(inputs).unwrap();
        let input = serde_json::value::to_raw_value(&inputs).unwrap();
        let id = RunId::new();
        NewRun {
            id,
            project: ProjectId::parse("default").unwrap(),
            agent: agent.into(),
            version: None,
            decision: OpenDecision {
                id: id.decision(),
                tenant: tenant(),
                surface: "agent",
                user: UserId::parse("ann").unwrap(),
                conversation: ConversationId::parse(id.to_string()).unwrap(),
                message: input.get().into(),
                definition_hash: Arc::clone(&definition.hash),
                requested_model: "scripted".into(),
                agent_id: None,
                time_zone: None,
                tools_subset: None,
                history_entries: 0,
                trace_id: None,
                request_id: "req-1".into(),
                created_at: self.clock.now_us(),
            },
            origin: Origin::Trigger,
            snapshot: DefinitionSnapshot::of(agent, &self.directory).unwrap().snapshot(),
            input: input.into(),
            settings: Settings::top(definition, timeout, None).to_raw(),
            entries: Vec::new(),
            queued: false,
            claim: None,
        }
    }

    async fn create(&self, new: NewRun) -> Begun {
        let id = new.id;
        match self.store.create(new).await.unwrap() {
            Started::Now(Some(lease)) => Begun { id, lease },
            other => panic!("{other:?}"),
        }
    }

    /// Creates a run.
    pub(crate) async fn begin(&self, agent: &str, inputs: Value, timeout: Option<Duration>) -> Begun {
        self.create(self.new_run(agent, inputs, timeout)).await
    }

    /// Creates a run with a deadline.
    pub(crate) async fn begin_until(&self, agent: &str, inputs: Value, until_us: i64) -> Begun {
        let new = self.new_run(agent, inputs, None);
        let settings = Settings {
            until_us: Some(until_us),
            ..Settings::read(&new.settings).unwrap()
        };
        self.create(NewRun {
            settings: settings.to_raw(),
            ..new
        })
        .await
    }

    /// Creates a run in a new thread, as the surface does.
    pub(crate) async fn begin_in_thread(&self, agent: &str, inputs: Value) -> Begun {
        let new = self.new_run(agent, inputs, None);
        let settings =
            Settings::top(self.definition(agent), None, None).in_thread(Approval::SideEffects, OnReject::Continue);
        let thread = InThread {
            thread: ThreadId::new(),
            is_new: true,
            message: "go".into(),
            queue: false,
        };
        self.create(NewRun {
            settings: settings.to_raw(),
            origin: Origin::Thread(thread),
            ..new
        })
        .await
    }

    /// Reopens a paused run, as the surface does.
    pub(crate) async fn begin_resume(&self, paused: RunId, settled: &[(ActionId, bool)]) -> Begun {
        let stored = self.store.load(paused).await.unwrap().unwrap();
        let definition = &self.directory[stored.agent.as_ref()].definition;
        let calls: BTreeMap<_, _> = settled.iter().copied().collect();
        let settings = Settings {
            settled: calls.clone(),
            until_us: Settings::read(&stored.settings).unwrap().until_us,
            ..Settings::top(definition, None, None)
        };
        let reopen = Reopen {
            session: None,
            run: paused,
            attempt: stored.attempt,
            place: ReopenedFor::Caller {
                queued: false,
                settled: Settled {
                    by: "user:ann".into(),
                    calls,
                },
                claim: None,
            },
            settings: settings.to_raw(),
            entry: log::resumed(stored.end.steps, stored.end.usage),
            at_us: self.clock.now_us(),
        };
        match self.store.reopen(reopen).await.unwrap() {
            Started::Now(Some(lease)) => Begun { id: paused, lease },
            other => panic!("{other:?}"),
        }
    }

    /// A process creates a run and drives it at once, as the surface does, until it stops. The creation succeeds in any
    /// case.
    pub(crate) async fn run_fresh(&self, store: &Arc<Dying>, agent: &str) -> (Begun, Result<Ended, Stop>) {
        self.run_fresh_after(store, agent, |_, _| {}).await
    }

    /// As `run_fresh`; `before` happens between the creation and the first step.
    pub(crate) async fn run_fresh_after(
        &self,
        store: &Arc<Dying>,
        agent: &str,
        before: impl FnOnce(&Agents, RunId),
    ) -> (Begun, Result<Ended, Stop>) {
        let process = self.process(Arc::clone(store));
        let mut new = self.new_run(agent, json!({"query": "go"}), None);
        let given = Given {
            bundle: Arc::new(DefinitionSnapshot::of(agent, &self.directory).unwrap()),
            settings: Settings::top(self.definition(agent), None, None),
            input: serde_json::from_str(new.input.get()).unwrap(),
        };
        let fresh = Fresh::of(&process, &mut new, given);
        let begun = self.create(new).await;
        before(&process, begun.id);
        let hold = self.hold(begun, self.store.lease_length());
        let driven = process.drive_fresh(fresh, hold, Halt::default()).await;
        self.model.assert_well_formed();
        (begun, driven)
    }

    /// A process drives the run until the run stops.
    pub(crate) async fn drive(&self, process: &Arc<Agents>, begun: Begun) -> Result<Ended, Stop> {
        self.drive_until(process, begun, CancellationToken::new(), Halt::default())
            .await
    }

    /// As `drive`, with a cancellation token and a halt signal.
    pub(crate) async fn drive_until(
        &self,
        process: &Arc<Agents>,
        begun: Begun,
        cancel: CancellationToken,
        halt: Halt,
    ) -> Result<Ended, Stop> {
        let hold = self.hold(begun, self.store.lease_length());
        let driven = process.drive(begun.id, hold, Live::new(begun.id), cancel, halt).await;
        self.model.assert_well_formed();
        driven
    }

    /// The lease as its holder sees it; it is never renewed.
    pub(crate) fn hold(&self, begun: Begun, length: Duration) -> Hold {
        Hold::new(begun.lease, length, self.clock.clone(), self.clock.instant())
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.instant()
    }

    /// As `drive`, under a shorter lease that is not renewed.
    pub(crate) async fn drive_for(&self, process: &Arc<Agents>, begun: Begun, length: Duration) -> Result<Ended, Stop> {
        let (live, hold) = (Live::new(begun.id), self.hold(begun, length));
        process
            .drive(begun.id, hold, live, CancellationToken::new(), Halt::default())
            .await
    }

    /// The process is dead, and another one claims the run. `None` if the run has ended.
    pub(crate) async fn take_over(&self, begun: Begun) -> Option<Begun> {
        self.store.release(vec![begun.lease]).await.unwrap();
        let lease = self.store.take(begun.id).await.unwrap()?;
        Some(Begun { lease, ..begun })
    }

    /// Drives a created run to its end.
    pub(crate) async fn finish(&self, begun: Begun) -> Outcome {
        let process = self.process(self.store.clone());
        self.drive(&process, begun).await.unwrap();
        self.outcome(begun.id).await
    }

    /// Runs an agent from start to end.
    pub(crate) async fn run(&self, agent: &str, inputs: Value) -> Outcome {
        let begun = self.begin(agent, inputs, None).await;
        self.finish(begun).await
    }

    /// Runs an agent with a timeout in the request.
    pub(crate) async fn run_within(&self, agent: &str, inputs: Value, timeout: Duration) -> Outcome {
        let begun = self.begin(agent, inputs, Some(timeout)).await;
        self.finish(begun).await
    }

    /// Resumes a paused run and drives it to its end.
    pub(crate) async fn resume(&self, paused: RunId, settled: &[(ActionId, bool)]) -> Outcome {
        let begun = self.begin_resume(paused, settled).await;
        self.finish(begun).await
    }

    /// A run as the store has it. After its end, every call in its journal has exactly one last result.
    pub(crate) async fn outcome(&self, id: RunId) -> Outcome {
        let row = self.store.get(&tenant(), None, id).await.unwrap().unwrap();
        let stored = self.store.journal(id, 0, 100_000).await.unwrap();
        let numbers: Vec<_> = stored.iter().map(|entry| entry.number).collect();
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
        let journal = stored.iter().map(|entry| log::read(entry).unwrap()).collect();
        Outcome { id, row, journal }
    }

    /// Waits until the journal of a run ends with the start of a call.
    pub(crate) async fn until_a_call_is_recorded(&self, run: RunId) {
        let recorded = async {
            while !matches!(self.outcome(run).await.journal.last(), Some(Entry::Started { .. })) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(seconds(20), recorded).await.unwrap();
    }

    /// Each run in the store: agent and status, callers before called runs.
    pub(crate) async fn runs(&self) -> Vec<String> {
        self.run_rows("SELECT agent_id, status FROM agent_run ORDER BY id")
            .await
    }

    /// A run and all runs that were called in it.
    pub(crate) async fn runs_of(&self, root: RunId) -> Vec<String> {
        let sql = format!("SELECT agent_id, status FROM agent_run WHERE root_id = '{root}' ORDER BY id");
        self.run_rows(&sql).await
    }

    async fn run_rows(&self, sql: &str) -> Vec<String> {
        let rows = self.db.rows(sql).await;
        rows.into_iter()
            .map(|row| row.into_iter().flatten().collect::<Vec<_>>().join(" "))
            .collect()
    }
}
