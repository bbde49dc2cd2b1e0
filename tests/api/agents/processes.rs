//! Several processes, seen from outside: any of them can claim, watch and cancel a run.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use tempfile::TempDir;
use tokio::sync::Notify;

use super::{CHIEF, HELPER, asks, has_ended, id, lines, said};
use crate::crash::{Process, TASKS, child_of, living, signal, start_beside, start_by, start_with};
use crate::gemini::{Gemini, Reply};
use crate::harness::{binary, client, tasks_database, tasks_in, until};
use crate::postgres::{self, Wire};

/// What the processes share: a directory with agents, a database for gavel and one for the tasks.
pub struct Place {
    directory: TempDir,
    pub record: String,
    tasks: String,
}

/// A test may use a hundred of them.
impl Drop for Place {
    fn drop(&mut self) {
        for url in [&self.record, &self.tasks] {
            if url.starts_with("postgres:") {
                postgres::drop_database(url);
            }
        }
    }
}

impl Place {
    pub async fn on(postgres: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let agents = directory.path().join("agents");
        std::fs::create_dir(&agents).unwrap();
        std::fs::write(agents.join("helper.md"), HELPER).unwrap();
        std::fs::write(agents.join("chief.md"), CHIEF).unwrap();
        let (record, tasks) = if postgres {
            (postgres::database().await, tasks_database().await)
        } else {
            let url = |name: &str| format!("sqlite://{}", directory.path().join(name).display());
            (url("gavel.db"), url("tasks.db"))
        };
        Self {
            directory,
            record,
            tasks,
        }
    }

    async fn start(&self, gemini: &Gemini) -> Process {
        self.start_with(gemini, &json!({"trustHints": true})).await
    }

    /// With these settings of the tasks server.
    pub async fn start_with(&self, gemini: &Gemini, settings: &Value) -> Process {
        self.start_at(gemini, settings, &self.record).await
    }

    /// With these settings of gavel.
    pub async fn start_set(&self, gemini: &Gemini, settings: &[(&str, &str)]) -> Process {
        let mut command = self.command();
        command.envs(settings.iter().copied());
        let hints = json!({"trustHints": true});
        start_with(command, &gemini.url, &self.record, self.directory.path(), &hints).await
    }

    /// With its own connection to the database.
    async fn start_at(&self, gemini: &Gemini, settings: &Value, record: &str) -> Process {
        start_with(self.command(), &gemini.url, record, self.directory.path(), settings).await
    }

    /// With these tool servers instead of the tasks, and these settings.
    pub async fn start_beside(&self, gemini: &Gemini, mcp: &Value, settings: &[(&str, &str)]) -> Process {
        let mut command = self.command();
        command.envs(settings.iter().copied());
        start_beside(command, &gemini.url, &self.record, self.directory.path(), mcp).await
    }

    fn command(&self) -> Command {
        let mut command = Command::new(binary());
        // Short enough that a dead process loses its lease soon, long enough that a live process on a busy machine
        // keeps it.
        command.env("GAVEL_RUNS_LEASE_SECONDS", "2").env(TASKS, &self.tasks);
        command.env("GAVEL_RUNS_AGENT", "helper");
        command
    }

    /// Adds an agent.
    pub fn agent(&self, name: &str, text: &str) {
        std::fs::write(self.directory.path().join("agents").join(name), text).unwrap();
    }

    /// The names of all tasks.
    pub async fn tasks(&self) -> Vec<String> {
        let tasks = tasks_in(&self.tasks).await;
        tasks.into_iter().map(|task| task.description).collect()
    }
}

fn trigger(process: &Process, agent: &str, prefer: Option<&str>) -> reqwest::RequestBuilder {
    let url = format!("{}{}", process.url, super::path_of(agent));
    let request = client().post(url).json(&json!({"query": "x"}));
    match prefer {
        Some(prefer) => request.header("prefer", prefer),
        None => request,
    }
}

async fn get(process: &Process, path: &str) -> Value {
    let answer = client().get(format!("{}{path}", process.url)).send().await.unwrap();
    answer.json().await.unwrap()
}

async fn run(process: &Process, id: &str) -> Value {
    get(process, &format!("/api/runs/{id}")).await
}

pub async fn over(process: &Process, id: &str) -> Value {
    until("the run to end", || async { has_ended(&run(process, id).await) }).await;
    run(process, id).await
}

pub async fn all_runs(process: &Process) -> Vec<Value> {
    let roots = get(process, "/api/projects/default/runs").await["runs"].clone();
    let mut all = Vec::new();
    for root in roots.as_array().unwrap() {
        let filter = format!("filter=parent_run_id%20%3D%20%22{}%22", id(root));
        let called = get(process, &format!("/api/projects/default/runs?{filter}")).await;
        all.push(root.clone());
        all.extend(called["runs"].as_array().unwrap().iter().cloned());
    }
    all
}

async fn events(process: &Process, id: &str) -> Vec<Value> {
    let answer = client()
        .get(format!("{}/api/runs/{id}/events", process.url))
        .send()
        .await
        .unwrap();
    let mut events = lines(&answer.text().await.unwrap());
    events.retain(|event| event["type"] != "delta");
    events
}

/// Adds two tasks, one after the other. `hangs` is the number of the model call that it does not answer, if any.
pub fn adds_two(hangs: Arc<AtomicUsize>) -> AddsTwo {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let reply = Reply::from(move |request| {
        if count.fetch_add(1, Ordering::SeqCst) + 1 == hangs.load(Ordering::SeqCst) {
            return Reply::Hang;
        }
        match (asks(request, "chief"), said(request)) {
            (true, 1) => Reply::call("helper", json!({"query": "add two"})),
            (true, _) => Reply::Text("Both are there."),
            (false, 1) => Reply::call("add_task", json!({"description": "one"})),
            (false, 3) => Reply::call("add_task", json!({"description": "two"})),
            (false, _) => Reply::Text("Added."),
        }
    });
    AddsTwo { asked, reply }
}

pub struct AddsTwo {
    asked: Arc<AtomicUsize>,
    pub reply: Reply,
}

/// A run that one process drives can be watched on another, with the same events.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_of_one_process_is_watched_on_another() {
    let place = Place::on(true).await;
    let model = adds_two(Arc::default());
    let slow = Reply::After(Duration::from_millis(200), Box::new(model.reply));
    let gemini = Gemini::scripted(vec![slow]).await;
    let [one, two] = [place.start(&gemini).await, place.start(&gemini).await];
    let waiting = tokio::spawn(trigger(&one, "chief", None).send());
    until("the model to be asked", || async { !gemini.requests().is_empty() }).await;
    let chief = id(&get(&two, "/api/projects/default/runs").await["runs"][0]);
    let (here, there) = tokio::join!(events(&one, &chief), events(&two, &chief));
    assert_eq!(here, there);
    let reported: Value = waiting.await.unwrap().unwrap().json().await.unwrap();
    assert_eq!(there.last().unwrap()["run"], reported);
    assert_eq!(reported["status"], "completed", "{reported}");
    assert_eq!(there.iter().filter(|event| event["type"] == "tool_call").count(), 2);
}

/// A run can be cancelled from either process, with the runs it called.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_cancelled_from_either_process() {
    let place = Place::on(true).await;
    let gemini = Gemini::scripted(vec![Reply::from(|request| match asks(request, "chief") {
        true => Reply::call("helper", json!({"query": "add two"})),
        false => Reply::Hang,
    })])
    .await;
    let processes = [place.start(&gemini).await, place.start(&gemini).await];
    for (n, from) in processes.iter().enumerate() {
        let waiting = tokio::spawn(trigger(&processes[0], "chief", None).send());
        until("the helper to be asked", || async {
            gemini.requests().len() == 2 * (n + 1)
        })
        .await;
        let chief = id(&get(from, "/api/projects/default/runs").await["runs"][0]);
        let answer = client().post(format!("{}/api/runs/{chief}/cancel", from.url));
        assert!(answer.send().await.unwrap().status().is_success());
        let reported: Value = waiting.await.unwrap().unwrap().json().await.unwrap();
        assert_eq!(
            (&reported["id"], &reported["status"]),
            (&json!(chief), &json!("cancelled")),
            "{reported}"
        );
        for run in all_runs(from).await {
            assert_eq!(run["status"], "cancelled", "{run}");
        }
    }
}

/// Promise: exact approvals. A run that is cancelled on one process starts no further call on the other, even if the
/// other has not yet noticed when the model answers. The run ends soon. Its lease is long, so a renewal does not reveal
/// the cancellation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_cancelled_on_one_process_starts_no_call_on_another() {
    let place = Place::on(true).await;
    let go = Arc::new(Notify::new());
    let held = Reply::Held(
        Arc::clone(&go),
        Box::new(Reply::call("add_task", json!({"description": "one"}))),
    );
    let gemini = Gemini::scripted(vec![held, Reply::Text("Added.")]).await;
    let lease = [("GAVEL_RUNS_LEASE_SECONDS", "60")];
    let [one, two] = [
        place.start_set(&gemini, &lease).await,
        place.start_set(&gemini, &lease).await,
    ];
    let waiting = tokio::spawn(trigger(&one, "helper", None).send());
    until("the model to be asked", || async { !gemini.requests().is_empty() }).await;
    let run = id(&get(&two, "/api/projects/default/runs").await["runs"][0]);
    let cancel = client().post(format!("{}/api/runs/{run}/cancel", two.url));
    assert!(cancel.send().await.unwrap().status().is_success());
    go.notify_one();
    let reported: Value = waiting.await.unwrap().unwrap().json().await.unwrap();
    assert_eq!(reported["status"], "cancelled", "{reported}");
    assert_eq!(place.tasks().await, Vec::<String>::new());
    assert_eq!(gemini.requests().len(), 1);
}

/// Promises: at most once, truthful states. If the process is killed with -9 at any model call, the run ends the same
/// way on another process. No completed call is repeated.
async fn killed_at_every_model_call(postgres: bool) {
    // The chief, the helper three times, the chief again.
    for at in 1..=5 {
        let place = Place::on(postgres).await;
        let hangs = Arc::new(AtomicUsize::new(at));
        let model = adds_two(Arc::clone(&hangs));
        let gemini = Gemini::scripted(vec![model.reply]).await;
        let mut one = place.start(&gemini).await;
        // On SQLite there is one process at a time.
        let other = match postgres {
            true => Some(place.start(&gemini).await),
            false => None,
        };
        let waiting = tokio::spawn(trigger(&one, "chief", None).send());
        until("the model call", || async { model.asked.load(Ordering::SeqCst) == at }).await;
        let chief = id(&get(&one, "/api/projects/default/runs").await["runs"][0]);
        one.child.0.kill().unwrap();
        one.child.0.wait().unwrap();
        let sent = waiting.await.unwrap();
        assert!(sent.is_err(), "its client was not answered");
        hangs.store(0, Ordering::SeqCst);
        let other = match other {
            Some(other) => other,
            None => place.start(&gemini).await,
        };
        let reported = over(&other, &chief).await;
        assert_eq!(
            (&reported["status"], &reported["summary"]),
            (&json!("completed"), &json!("Both are there.")),
            "killed at question {at}: {reported}"
        );
        assert_eq!(place.tasks().await, ["one", "two"], "killed at question {at}");
        is_whole(&other, &format!("question {at}")).await;
    }
}

/// No run is left running, each has one closed decision, and each task one completed call.
pub async fn is_whole(process: &Process, at: &str) {
    let runs = all_runs(process).await;
    assert_eq!(runs.len(), 2, "killed at {at}: {runs:?}");
    for run in &runs {
        assert_eq!(run["status"], "completed", "killed at {at}: {run}");
    }
    let decisions = get(process, "/v1/decisions").await;
    let decisions = decisions["decisions"].as_array().unwrap();
    let ids = |rows: &[Value], field: &str| -> BTreeSet<String> {
        rows.iter().map(|row| row[field].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(decisions, "decision_id"), ids(&runs, "id"), "killed at {at}");
    assert_eq!(decisions.len(), 2);
    for decision in decisions {
        assert_eq!(decision["status"], "closed", "killed at {at}: {decision}");
    }
    let calls = get(process, "/v1/tool-invocations").await;
    let calls = calls["tool_invocations"].as_array().unwrap();
    let of = |tool: &str| calls.iter().filter(|call| call["tool"] == tool).count();
    assert_eq!(
        (of("helper"), of("add_task"), calls.len()),
        (1, 2, 3),
        "killed at {at}: {calls:?}"
    );
    for call in calls {
        assert_eq!(call["status"], "completed", "killed at {at}: {call}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_killed_at_any_model_call_ends_as_if_undisturbed_on_sqlite() {
    killed_at_every_model_call(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_killed_at_any_model_call_ends_as_if_undisturbed_on_postgres() {
    killed_at_every_model_call(true).await;
}

/// A run that kills its process three times fails with an error that says so. The next process does not claim it, and
/// works.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_kills_three_processes_is_failed() {
    for postgres in [false, true] {
        let place = Place::on(postgres).await;
        let gemini = Gemini::scripted(vec![Reply::from(|request| {
            match request.to_string().contains("fell") {
                true => Reply::Hang,
                false => Reply::Text("Hello."),
            }
        })])
        .await;
        let mut run = None;
        for times in 1..=3 {
            let mut process = place.start(&gemini).await;
            let run = &mut run;
            if run.is_none() {
                let (_, made) = post(&process, &super::path_of("helper"), json!({"query": "fell it"})).await;
                *run = Some(id(&made));
            }
            until("the run to be claimed", || async { gemini.requests().len() == times }).await;
            process.child.0.kill().unwrap();
            process.child.0.wait().unwrap();
        }
        let next = place.start(&gemini).await;
        let reported = over(&next, &run.unwrap()).await;
        assert_eq!(
            (
                &reported["status"],
                &reported["stop_reason"],
                &reported["outcome_category"]
            ),
            (&json!("failed"), &json!("process_lost"), &json!("ERROR:INTERNAL")),
            "{reported}"
        );
        let why = reported["error_message"].as_str().unwrap();
        assert!(why.contains("3 processes in a row were lost"), "{why}");
        let decisions = get(&next, "/v1/decisions").await;
        assert_eq!(decisions["decisions"][0]["status"], "closed", "{decisions}");
        let (_, other) = post(&next, &super::path_of("helper"), json!({"query": "greet"})).await;
        assert_eq!(over(&next, &id(&other)).await["status"], "completed");
        assert_eq!(gemini.requests().len(), 4, "no process worked on it again");
    }
}

/// Promise: at most once. If the process is killed within a tool call, the call is sent again under its key, and the
/// task exists once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_killed_in_flight_is_sent_again_under_its_key() {
    for postgres in [false, true] {
        let place = Place::on(postgres).await;
        let model = adds_two(Arc::default());
        let slow = Reply::After(Duration::from_millis(500), Box::new(model.reply));
        let gemini = Gemini::scripted(vec![slow]).await;
        let mut one = place.start(&gemini).await;
        let waiting = tokio::spawn(trigger(&one, "helper", None).send());
        until("the model call", || async { !gemini.requests().is_empty() }).await;
        // The server is paused, so that the call is in flight when everything is killed. Once continued, it carries out
        // the call.
        let tasks_server = child_of(one.child.0.id());
        assert!(signal("-STOP", tasks_server));
        until("the call to be in flight", || async {
            let calls = get(&one, "/v1/tool-invocations").await;
            calls["tool_invocations"].as_array().unwrap().len() == 1
        })
        .await;
        let helper = id(&get(&one, "/api/projects/default/runs").await["runs"][0]);
        one.child.0.kill().unwrap();
        one.child.0.wait().unwrap();
        assert!(waiting.await.unwrap().is_err());
        // The signal is rejected if the server has already exited: the kernel ends a stopped process that lost its
        // parent.
        signal("-CONT", tasks_server);
        until("the tasks server to end", || async { living(tasks_server).is_none() }).await;
        let again = place.start(&gemini).await;
        let reported = over(&again, &helper).await;
        assert_eq!(
            (&reported["status"], &reported["recovered_from"], &reported["in_doubt"]),
            (&json!("completed"), &json!("crash"), &json!([])),
            "{reported}"
        );
        assert_eq!(place.tasks().await, ["one", "two"]);
        let reported: Vec<_> = events(&again, &helper).await;
        assert_eq!(
            reported.iter().filter(|event| event["type"] == "recovered").count(),
            1,
            "{reported:?}"
        );
    }
}

/// Graceful shutdown: a run without a waiting client stops between two steps and continues in the next process. A run
/// with a waiting client is finished and answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_finishes_runs_with_waiting_clients_and_hands_over_the_others() {
    for postgres in [false, true] {
        let place = Place::on(postgres).await;
        let model = adds_two(Arc::default());
        let slow = Reply::After(Duration::from_millis(700), Box::new(model.reply));
        let gemini = Gemini::scripted(vec![slow]).await;
        let mut one = place.start(&gemini).await;
        let queued = trigger(&one, "helper", Some("respond-async")).send().await.unwrap();
        let queued: Value = queued.json().await.unwrap();
        until("the background run to start", || async { gemini.requests().len() == 1 }).await;
        let waiting = tokio::spawn(trigger(&one, "helper", None).send());
        until("the other run to start", || async { gemini.requests().len() == 2 }).await;
        assert!(signal("-TERM", one.child.0.id()));
        let reported: Value = waiting.await.unwrap().unwrap().json().await.unwrap();
        assert_eq!(
            (&reported["status"], &reported["recovered_from"]),
            (&json!("completed"), &Value::Null),
            "{reported}"
        );
        assert!(one.child.0.wait().unwrap().success());
        let asked = gemini.requests().len();
        assert!(
            (4..6).contains(&asked),
            "the background run stopped between two steps: {asked}"
        );
        let again = place.start(&gemini).await;
        let reported = over(&again, &id(&queued)).await;
        assert_eq!(
            (&reported["status"], &reported["summary"]),
            (&json!("completed"), &json!("Added.")),
            "{reported}"
        );
        let mut tasks = place.tasks().await;
        tasks.sort_unstable();
        assert_eq!(tasks, ["one", "one", "two", "two"]);
    }
}

/// A run with a waiting client that outlasts the drain stops at its current step. Its client is answered with the run
/// in progress, and the run continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_outlasts_the_drain_is_answered_as_running_and_continues_elsewhere() {
    for postgres in [false, true] {
        let place = Place::on(postgres).await;
        let hangs = Arc::new(AtomicUsize::new(2));
        let model = adds_two(Arc::clone(&hangs));
        let gemini = Gemini::scripted(vec![model.reply]).await;
        let mut command = Command::new(binary());
        command
            .env("GAVEL_RUNS_LEASE_SECONDS", "1")
            .env("GAVEL_DRAIN_SECONDS", "1")
            .env(TASKS, &place.tasks);
        let mut one = start_by(command, &gemini.url, &place.record, place.directory.path()).await;
        let waiting = tokio::spawn(trigger(&one, "helper", None).send());
        until("the model call", || async { model.asked.load(Ordering::SeqCst) == 2 }).await;
        assert!(signal("-TERM", one.child.0.id()));
        let answer = waiting.await.unwrap().unwrap();
        assert_eq!(answer.status(), 202);
        let reported: Value = answer.json().await.unwrap();
        assert_eq!(reported["status"], "running", "{reported}");
        assert!(one.child.0.wait().unwrap().success());
        hangs.store(0, Ordering::SeqCst);
        let again = place.start(&gemini).await;
        let reported = over(&again, &id(&reported)).await;
        assert_eq!(
            (&reported["status"], &reported["recovered_from"]),
            (&json!("completed"), &Value::Null),
            "no process crashed: {reported}"
        );
        assert_eq!(place.tasks().await, ["one", "two"]);
    }
}

async fn post(process: &Process, path: &str, body: Value) -> (u16, Value) {
    let request = client().post(format!("{}{path}", process.url)).json(&body);
    let answer = request.header("prefer", "respond-async").send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

/// What separates a process from the others.
#[derive(Clone, Copy, Debug)]
enum Parted {
    /// It runs, and cannot reach PostgreSQL.
    CutOff,
    /// It is suspended.
    Stopped,
}

/// Promises: at most once, truthful states. A call whose intent is recorded waits for a slot at its server when its
/// process is separated from the others. Another process claims the run, a person reports that the call did not happen,
/// and it is repeated. When the first process gets its slot at last, it sends nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_separated_process_sends_nothing_for_a_run_that_another_process_claimed() {
    for parted in [Parted::CutOff, Parted::Stopped] {
        let place = Place::on(true).await;
        let wire = Wire::to(&place.record).await;
        // The fourth content follows a person's settlement of the call.
        let gemini = Gemini::scripted(vec![Reply::from(|request| {
            match (request.to_string().contains("hold the place"), said(request)) {
                (true, 1) => Reply::call("list_tasks", json!({})),
                (false, 1 | 4) => Reply::call("add_task", json!({"description": "two"})),
                _ => Reply::Text("Done."),
            }
        })])
        .await;
        let settings = json!({
            "trustHints": true, "maxConcurrent": 1, "tools": {"add_task": {"idempotency": "none"}},
        });
        let one = place.start_at(&gemini, &settings, &wire.url).await;
        let path = super::path_of("helper");
        // The tool server is connected and answers.
        let (_, first) = post(&one, &path, json!({"query": "hold the place"})).await;
        assert_eq!(over(&one, &id(&first)).await["status"], "completed");
        let tasks_server = child_of(one.child.0.id());
        assert!(signal("-STOP", tasks_server));
        let (_, holds) = post(&one, &path, json!({"query": "hold the place"})).await;
        until("its call to be sent", || async {
            let mut record = PgConnection::connect(&place.record).await.unwrap();
            let begun = "SELECT COUNT(*) FROM agent_run_entry WHERE run_id = $1 AND body LIKE '%\"started\":%'";
            let begun = sqlx::query_scalar::<_, i64>(begun).bind(id(&holds));
            begun.fetch_one(&mut record).await.unwrap() == 1
        })
        .await;
        let (_, waits) = post(&one, &path, json!({"query": "add two"})).await;
        until("its intent to be recorded", || async {
            let calls = get(&one, "/v1/tool-invocations?filter=status%20%3D%20%22started%22").await;
            calls["tool_invocations"].as_array().unwrap().len() == 1
        })
        .await;
        match parted {
            Parted::CutOff => wire.silence(true),
            Parted::Stopped => assert!(signal("-STOP", one.child.0.id())),
        }
        let other = place.start_with(&gemini, &settings).await;
        let paused = over(&other, &id(&waits)).await;
        assert_eq!(
            (&paused["status"], &paused["stop_reason"]),
            (&json!("paused"), &json!("in_doubt")),
            "{paused}"
        );
        let doubt = paused["in_doubt"][0]["action_id"].as_str().unwrap();
        let settled = json!({"settled": {doubt: false}});
        let (status, resumed) = post(&other, &format!("/api/runs/{}/resume", id(&waits)), settled).await;
        assert!([200, 202].contains(&status), "{resumed}");
        let done = over(&other, &id(&resumed)).await;
        assert_eq!(done["status"], "completed", "{done}");
        assert_eq!(place.tasks().await, ["two"], "{parted:?}");
        assert!(signal("-CONT", tasks_server));
        if let Parted::Stopped = parted {
            assert!(signal("-CONT", one.child.0.id()));
        }
        // Long enough for the call that held the slot to be answered, and for the next one to be sent.
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(place.tasks().await, ["two"], "{parted:?}");
        wire.silence(false);
        // It works again, with its server and its database.
        until("the first process to work again", || async {
            let (status, run) = post(&one, &path, json!({"query": "hold the place"})).await;
            [200, 202].contains(&status) && over(&one, &id(&run)).await["status"] == "completed"
        })
        .await;
        assert_eq!(place.tasks().await, ["two"], "{parted:?}");
    }
}

/// Promise: recorded. "nothing was done" means that the caller may send the request again. It is not answered if the
/// commit of the run's row may have succeeded: the answer names the run, which another process may claim, and the same
/// key leads to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_commit_is_unknown_is_answered_as_one_that_may_exist() {
    let place = Place::on(true).await;
    let gemini = Gemini::scripted(vec![Reply::Hang]).await;
    let wire = Wire::to(&place.record).await;
    let settings = json!({"trustHints": true});
    let one = place.start_at(&gemini, &settings, &wire.url).await;
    let other = place.start_with(&gemini, &settings).await;
    let keyed =
        |process: &Process, key: &str| trigger(process, "helper", Some("respond-async")).header("idempotency-key", key);
    let running: Value = keyed(&other, "k-0").send().await.unwrap().json().await.unwrap();
    let running = id(&running);

    let http = client();
    let put = |n: usize| {
        let definition = json!({
            "name": "greeter", "description": format!("Greets, {n}."),
            "promptConfig": {"query": "${query}", "systemPrompt": "Greet."},
        });
        let put = http.put(format!("{}/api/projects/demo/agents/greeter", one.url));
        put.json(&definition)
    };
    let outcome_unknown = async |request: reqwest::RequestBuilder| -> Value {
        // The pool's writers take turns, and a new connection first makes a commit of its own.
        for n in 0..6 {
            let answer = put(n).send().await.unwrap();
            assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
        }
        wire.lose_commits(true);
        let problem: Value = request.send().await.unwrap().json().await.unwrap();
        assert_eq!(
            (&problem["status"], &problem["code"]),
            (&json!(500), &json!("outcome_unrecorded")),
            "{problem}"
        );
        problem
    };
    let made = outcome_unknown(keyed(&one, "k-1")).await;
    assert!(
        made["detail"].as_str().unwrap().contains("same Idempotency-Key"),
        "{made}"
    );
    let again: Value = keyed(&other, "k-1").send().await.unwrap().json().await.unwrap();
    assert_eq!(again["id"], made["run_id"], "{made} {again}");
    wire.lose_commits(false);

    let cancel = http.post(format!("{}/api/runs/{running}/cancel", one.url));
    let cancelled = outcome_unknown(cancel).await;
    assert_eq!(cancelled["run_id"], json!(running), "{cancelled}");
    wire.lose_commits(false);
    assert_eq!(over(&other, &running).await["status"], "cancelled");

    let answer = outcome_unknown(put(7)).await;
    assert!(
        answer["detail"]
            .as_str()
            .unwrap()
            .contains("whether the version was created"),
        "{answer}"
    );
    let found = get(&other, "/api/projects/demo/agents/greeter").await;
    assert!(found.to_string().contains("Greets, 7."), "{found}");
}
