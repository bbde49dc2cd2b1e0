//! Process faults: kill -9 under load, SIGTERM under load, a client that disconnects.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::gemini::{Gemini, Reply};
use crate::harness::{
    Database, Ended, Setup, binary, client, free_port, ready, spawn_app, tasks_database, tasks_in, until,
};
use crate::postgres;

/// The program itself, as a process that can be killed.
pub struct Process {
    pub child: Ended,
    pub url: String,
}

async fn start(gemini: &Gemini, database: &str, directory: &Path) -> Process {
    start_by(Command::new(binary()), &gemini.url, database, directory).await
}

/// A variable of the tests' own, because the tester's environment may set that of the server.
pub const TASKS: &str = "TASKS_OF_THIS_TEST";

/// Starts gavel through another command, which gets the same arguments.
pub async fn start_by(command: Command, gemini: &str, database: &str, directory: &Path) -> Process {
    start_with(command, gemini, database, directory, &json!({"trustHints": true})).await
}

/// With these settings of the tasks server.
pub async fn start_with(command: Command, gemini: &str, database: &str, directory: &Path, settings: &Value) -> Process {
    let tasks = format!("sqlite://{}", directory.join("tasks.db").display());
    let mcp = json!({"mcpServers": {"tasks": {
        "command": binary(), "args": ["mcp-server", "tasks"], "gavel": settings,
        "env": {"TASKS_DATABASE_URL": format!("${{{TASKS}:-{tasks}}}")},
    }}});
    start_beside(command, gemini, database, directory, &mcp).await
}

/// With these tool servers.
pub async fn start_beside(
    mut command: Command,
    gemini: &str,
    database: &str,
    directory: &Path,
    mcp: &Value,
) -> Process {
    let port = free_port();
    std::fs::write(directory.join("mcp.json"), mcp.to_string()).unwrap();
    let log = directory.join(format!("gavel-{port}.log"));
    let child = command
        .arg("serve")
        .current_dir(directory)
        .env("GAVEL_LISTEN", format!("127.0.0.1:{port}"))
        .env("GAVEL_MCP_CONFIG", directory.join("mcp.json"))
        .env("DATABASE_URL", database)
        .env("GEMINI_API_KEY", "test")
        .env("GEMINI_MODEL", "gemini-3.5-flash")
        .env("GEMINI_BASE_URL", gemini)
        .env("GAVEL_RATE_LIMIT_PER_MINUTE", "1000000")
        .env("GAVEL_RATE_LIMIT_BURST", "100000")
        .env("RUST_LOG", "error")
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let url = format!("http://127.0.0.1:{port}");
    let probe = url.clone();
    if let Err(error) = tokio::spawn(async move { ready(&probe).await }).await {
        panic!("{error}; it said: {}", std::fs::read_to_string(&log).unwrap());
    }
    Process {
        child: Ended(child),
        url,
    }
}

/// The databases of gavel and of its tasks server, one each.
struct Stores {
    directory: TempDir,
    record: String,
    tasks: String,
}

impl Stores {
    fn sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let url = |name: &str| format!("sqlite://{}", directory.path().join(name).display());
        let (record, tasks) = (url("gavel.db"), url("tasks.db"));
        Self {
            directory,
            record,
            tasks,
        }
    }

    async fn postgres() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
            record: postgres::database().await,
            tasks: tasks_database().await,
        }
    }

    async fn start(&self, gemini: &Gemini) -> Process {
        let mut command = Command::new(binary());
        command.env(TASKS, &self.tasks);
        start_by(command, &gemini.url, &self.record, self.directory.path()).await
    }

    /// The names of all tasks of the tasks server, of all users.
    async fn tasks(&self) -> Vec<String> {
        let mut names: Vec<_> = tasks_in(&self.tasks)
            .await
            .into_iter()
            .map(|task| task.description)
            .collect();
        // Databases differ in how they order words.
        names.sort_unstable();
        names
    }
}

/// A model that adds the task that a message names, and answers everything else with text, each time after `thought`.
fn busy_model(thought: Duration) -> Vec<Reply> {
    vec![Reply::from(move |request| {
        let last = request["contents"].as_array().unwrap().last().unwrap();
        let text = last["parts"][0]["text"].as_str().unwrap_or_default();
        let reply = match text.split_once("add ") {
            Some((_, task)) => Reply::call("add_task", json!({"description": task})),
            None => Reply::Text("Done."),
        };
        Reply::After(thought, Box::new(reply))
    })]
}

/// The answer to request `n`, which has its own key. An even number adds its own task, an odd one only talks.
async fn send(client: &reqwest::Client, url: &str, n: usize) -> Option<Value> {
    let message = if n.is_multiple_of(2) {
        format!("add task {n}")
    } else {
        "hello".to_owned()
    };
    let body = json!({"message": message, "user_id": format!("user-{}", n % 7)});
    let answer = client
        .post(format!("{url}/v1/chat"))
        .header("idempotency-key", format!("n-{n}"))
        .json(&body)
        .send()
        .await
        .ok()?;
    answer.json().await.ok()
}

/// The answer to each request, if there was one.
type Sent = BTreeMap<usize, Option<Value>>;

const CLIENTS: usize = 16;

/// Runs this many clients at once. Each sends one request after another until it gets its `last` answer, or none.
fn load(
    http: &reqwest::Client,
    url: &str,
    last: impl Fn(&Value) -> bool + Clone + Send + 'static,
) -> Vec<tokio::task::JoinHandle<Sent>> {
    let client = |client: usize| {
        let (http, url, last) = (http.clone(), url.to_owned(), last.clone());
        tokio::spawn(async move {
            let mut sent = BTreeMap::new();
            for n in (client..).step_by(CLIENTS) {
                let answer = send(&http, &url, n).await;
                let ended = answer.as_ref().is_none_or(&last);
                sent.insert(n, answer);
                if ended {
                    break;
                }
            }
            sent
        })
    };
    (0..CLIENTS).map(client).collect()
}

async fn all_sent(clients: Vec<tokio::task::JoinHandle<Sent>>) -> Sent {
    let mut sent = BTreeMap::new();
    for client in clients {
        sent.extend(client.await.unwrap());
    }
    sent
}

async fn get(client: &reqwest::Client, url: &str) -> Value {
    client.get(url).send().await.unwrap().json().await.unwrap()
}

/// Everything in `tool_invocation_log`.
async fn invocations(client: &reqwest::Client, url: &str) -> Vec<Value> {
    let page = get(client, &format!("{url}/v1/tool-invocations?page_size=1000")).await;
    assert!(page["next_page_token"].is_null(), "more than a page");
    page["tool_invocations"].as_array().unwrap().clone()
}

/// Everything in `decision_log`, by id.
async fn decisions(client: &reqwest::Client, url: &str) -> BTreeMap<String, Value> {
    let (mut all, mut page) = (BTreeMap::new(), String::new());
    loop {
        let next = get(client, &format!("{url}/v1/decisions?page_size=1000{page}")).await;
        for decision in next["decisions"].as_array().unwrap() {
            all.insert(decision["decision_id"].as_str().unwrap().to_owned(), decision.clone());
        }
        match next["next_page_token"].as_str() {
            Some(token) => page = format!("&page_token={token}"),
            None => return all,
        }
    }
}

/// The parent of a process that has not ended.
pub fn living(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    fields.next()?.parse().ok().filter(|_| state != "Z")
}

/// The process that `parent` started: its tasks server.
pub fn child_of(parent: u32) -> u32 {
    let pids = std::fs::read_dir("/proc").unwrap();
    let mut pids = pids.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    pids.find(|pid| living(*pid) == Some(parent)).unwrap()
}

pub fn signal(name: &str, pid: u32) -> bool {
    let sent = Command::new("kill").args([name, &pid.to_string()]).output();
    sent.unwrap().status.success()
}

/// C-SC-3, C-FR-007. Promises: recorded, at most once. Every answer is in the decision log, every effect has its row,
/// every unknown outcome is recorded as such, and no key runs anything twice.
async fn nothing_is_lost_and_nothing_is_done_twice(stores: Stores) {
    let gemini = Gemini::scripted(busy_model(Duration::ZERO)).await;
    let mut process = stores.start(&gemini).await;
    let http = client();
    let stopped = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&stopped);
    let clients = load(&http, &process.url, move |answer| {
        stop.load(Ordering::SeqCst) && answer["outcome_category"] == "SUCCESS:TASK_COMPLETED"
    });
    until("some load", || async { gemini.requests().len() > 300 }).await;
    // The server is paused within its work. A client that adds tasks may get one more answer, to a call whose result was
    // already sent; it ends with that, or with a call that has no result. The others talk until the kill.
    let tasks_server = child_of(process.child.0.id());
    assert!(signal("-STOP", tasks_server));
    stopped.store(true, Ordering::SeqCst);
    let begun = format!(
        "{}/v1/tool-invocations?filter=status%20%3D%20%22started%22",
        process.url
    );
    until("every call to be in flight", || async {
        let unanswered = clients.iter().step_by(2).filter(|client| !client.is_finished());
        let unanswered = unanswered.count();
        get(&http, &begun).await["tool_invocations"].as_array().unwrap().len() == unanswered
    })
    .await;
    process.child.0.kill().unwrap();
    process.child.0.wait().unwrap();
    let sent = all_sent(clients).await;
    // The signal is rejected if the server has already exited: the kernel ends a stopped process that lost its parent.
    signal("-CONT", tasks_server);
    until("the tasks server to end", || async { living(tasks_server).is_none() }).await;
    let answered: Vec<&Value> = sent.values().flatten().collect();
    assert!(answered.len() > 50, "only {} answers before the kill", answered.len());

    let again = stores.start(&gemini).await;
    for answer in answered {
        let id = answer["decision_id"].as_str().unwrap();
        let record = get(&http, &format!("{}/v1/decisions/{id}", again.url)).await;
        assert_eq!(
            (&record["status"], &record["recovered"]),
            (&json!("closed"), &json!(false)),
            "answered decision {id} is not in the log: {record}"
        );
    }
    let open = format!("{}/v1/decisions?filter=status%20%3D%20%22open%22", again.url);
    until("recovery to finish what was open", || async {
        get(&http, &open).await["decisions"] == json!([])
    })
    .await;

    let rows = invocations(&http, &again.url).await;
    let with = |status: &str| {
        let rows = rows.iter().filter(|row| row["status"] == status);
        let mut names: Vec<_> = rows
            .map(|row| row["parameters"]["description"].as_str().unwrap())
            .collect();
        names.sort_unstable();
        names
    };
    let (completed, in_doubt) = (with("completed"), with("in_doubt"));
    assert_eq!(completed.len() + in_doubt.len(), rows.len(), "{rows:?}");
    if in_doubt.is_empty() {
        eprintln!("not checked: calls in doubt, since none was under way when the process was killed");
    }
    let answer_to = |task: &str| {
        let n: usize = task.strip_prefix("task ").unwrap().parse().unwrap();
        &sent[&n]
    };
    for task in &in_doubt {
        assert_eq!(answer_to(task), &None, "{task}");
    }
    let unanswered = sent.iter().filter(|(n, answer)| *n % 2 == 0 && answer.is_none());
    for task in unanswered.map(|(n, _)| format!("task {n}")) {
        // Its result may have been committed right before the kill.
        assert!(
            in_doubt.contains(&task.as_str()) || completed.contains(&task.as_str()),
            "{task}"
        );
    }
    let tasks = stores.tasks().await;
    let certain: Vec<_> = tasks.iter().filter(|task| !in_doubt.contains(&task.as_str())).collect();
    assert_eq!(certain, completed, "each task has its row, each row its task");

    for (n, before) in &sent {
        let answer = send(&http, &again.url, *n).await.unwrap();
        match before {
            Some(before) => assert_eq!(&answer, before, "another answer to the same key"),
            None if in_doubt.contains(&format!("task {n}").as_str()) => {
                assert_eq!(answer["code"], "outcome_unrecorded", "{answer}");
            }
            None if n % 2 == 0 => assert_eq!(answer["outcome_category"], "SUCCESS:TASK_COMPLETED", "{answer}"),
            // A request without an effect may not have reached its claim.
            None => {}
        }
    }
    assert_eq!(stores.tasks().await, tasks);
    assert_eq!(invocations(&http, &again.url).await, rows);
}

#[tokio::test]
async fn kill_9_under_load_loses_nothing_and_repeats_nothing_on_sqlite() {
    nothing_is_lost_and_nothing_is_done_twice(Stores::sqlite()).await;
}

#[tokio::test]
async fn kill_9_under_load_loses_nothing_and_repeats_nothing_on_postgres() {
    nothing_is_lost_and_nothing_is_done_twice(Stores::postgres().await).await;
}

/// docs/reference/metrics.md: an alarm on the store's metric needs it from the start, not from the first failure on.
#[tokio::test]
async fn the_stores_metric_exists_before_the_first_failure() {
    let directory = tempfile::tempdir().unwrap();
    let gemini = Gemini::scripted(busy_model(Duration::ZERO)).await;
    let database = format!("sqlite://{}", directory.path().join("gavel.db").display());
    let process = start(&gemini, &database, directory.path()).await;
    let page = client().get(format!("{}/metrics", process.url)).send().await.unwrap();
    let page = page.text().await.unwrap();
    assert!(page.lines().any(|line| line == "gavel_store_up 1"), "{page}");
}

/// Promises: recorded, at most once, truthful states. With a graceful drain under load, requests in progress are
/// finished, answered and recorded. Later ones are shed and recorded, and every decision is answered.
async fn sigterm_answers_all_that_is_decided(stores: Stores) {
    // Long enough that every client waits for an answer when the signal arrives.
    let gemini = Gemini::scripted(busy_model(Duration::from_millis(50))).await;
    let mut process = stores.start(&gemini).await;
    let http = client();
    let is_shed = |answer: &Value| answer["outcome_category"] == "REFUSAL:OVERLOADED";
    let clients = load(&http, &process.url, is_shed);
    until("some load", || async { gemini.requests().len() > 300 }).await;
    assert!(signal("-TERM", process.child.0.id()));
    let sent = all_sent(clients).await;
    let ended = process.child.0.wait().unwrap();
    assert!(ended.success(), "SIGTERM ends with 0: {ended}");

    let answers: Vec<_> = sent
        .iter()
        .filter_map(|(n, answer)| Some((n, answer.as_ref()?)))
        .collect();
    let (shed, finished): (Vec<_>, Vec<_>) = answers.iter().partition(|(_, answer)| is_shed(answer));
    assert!(!shed.is_empty(), "no request arrived during the drain");
    let mut added = Vec::new();
    for (n, answer) in finished {
        let expected = match *n % 2 {
            0 => "SUCCESS:TASK_COMPLETED",
            _ => "SUCCESS:RESPONSE_GIVEN",
        };
        assert_eq!(answer["outcome_category"], expected, "{answer}");
        assert_eq!(answer["response"], "Done.", "{answer}");
        if *n % 2 == 0 {
            added.push(format!("task {n}"));
        }
    }
    added.sort_unstable();
    assert!(added.len() > 50, "only {} tasks before the signal", added.len());
    assert_eq!(stores.tasks().await, added, "answers are tasks");

    let again = stores.start(&gemini).await;
    let mut recorded = decisions(&http, &again.url).await;
    for (_, answer) in answers {
        let record = recorded.remove(answer["decision_id"].as_str().unwrap());
        let record = record.unwrap_or_else(|| panic!("answered and not in the log: {answer}"));
        assert_eq!(
            (&record["status"], &record["recovered"], &record["outcome_category"]),
            (&json!("closed"), &json!(false), &answer["outcome_category"]),
            "{record}"
        );
    }
    assert!(
        recorded.is_empty(),
        "decided, and its client got no answer: {recorded:?}"
    );
    let mut rows: Vec<_> = invocations(&http, &again.url)
        .await
        .iter()
        .map(|row| {
            assert_eq!(row["status"], "completed", "{row}");
            row["parameters"]["description"].as_str().unwrap().to_owned()
        })
        .collect();
    rows.sort_unstable();
    assert_eq!(rows, added, "each task has its row, each row its task");
}

#[tokio::test]
async fn sigterm_under_load_answers_every_decision_on_sqlite() {
    sigterm_answers_all_that_is_decided(Stores::sqlite()).await;
}

#[tokio::test]
async fn sigterm_under_load_answers_every_decision_on_postgres() {
    sigterm_answers_all_that_is_decided(Stores::postgres().await).await;
}

/// C-FR-006. Promise: recorded. A request that outlasts the drain time is interrupted. This is answered and recorded,
/// with what was done.
#[tokio::test]
async fn a_request_that_outlasts_the_drain_is_interrupted_answered_and_recorded() {
    for database in [Database::Sqlite, Database::Postgres] {
        let directory = tempfile::tempdir().unwrap();
        let gemini = Gemini::scripted(vec![Reply::from(|request| {
            let contents = request["contents"].as_array().unwrap();
            let text = contents[0]["parts"][0]["text"].as_str().unwrap();
            match (contents.len(), text.contains("add")) {
                (1, true) => Reply::call("add_task", json!({"description": "x"})),
                _ => Reply::Hang,
            }
        })])
        .await;
        let database = match database {
            Database::Sqlite => format!("sqlite://{}", directory.path().join("gavel.db").display()),
            Database::Postgres => postgres::database().await,
        };
        let mut command = Command::new(binary());
        command.env("GAVEL_DRAIN_SECONDS", "1");
        let mut process = start_by(command, &gemini.url, &database, directory.path()).await;
        // An even number adds a task, an odd one only talks.
        let under_way: Vec<_> = (0..2)
            .map(|n| {
                let url = process.url.clone();
                tokio::spawn(async move { send(&client(), &url, n).await })
            })
            .collect();
        until("both to hang", || async { gemini.requests().len() == 3 }).await;
        let reported = Instant::now();
        let pid = process.child.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let mut answered = Vec::new();
        for one in under_way {
            let answer = one.await.unwrap().expect("an interrupted request is answered");
            assert_eq!(answer["outcome_category"], "ERROR:INTERNAL", "{answer}");
            answered.push(answer);
        }
        let ended = process.child.0.wait().unwrap();
        assert!(ended.success(), "{ended}");
        assert!(reported.elapsed() < Duration::from_secs(6), "{:?}", reported.elapsed());
        assert_eq!(
            answered[0]["tool_calls"][0]["result"]["success"], true,
            "{}",
            answered[0]
        );
        assert_eq!(answered[1]["tool_calls"], json!([]), "{}", answered[1]);

        let again = start(&gemini, &database, directory.path()).await;
        for answer in answered {
            let id = answer["decision_id"].as_str().unwrap();
            let record = client()
                .get(format!("{}/v1/decisions/{id}", again.url))
                .send()
                .await
                .unwrap();
            let record: Value = record.json().await.unwrap();
            assert_eq!(record["outcome_category"], "ERROR:INTERNAL", "{record}");
            assert_eq!(
                (&record["status"], &record["recovered"]),
                (&json!("closed"), &json!(false)),
                "{record}"
            );
        }
    }
}

/// C-FR-006: a client that disconnects cannot lose a decision.
#[tokio::test]
async fn a_client_that_disconnects_within_a_request_loses_no_record() {
    for setup in [Setup::stdio_sqlite(), Setup::stdio_postgres()] {
        let app = spawn_app(setup.script(vec![
            Reply::call("add_task", json!({"description": "milk"})),
            Reply::After(Duration::from_secs(1), Box::new(Reply::Text("Added."))),
        ]))
        .await;
        let request = client().post(format!("{}/v1/chat", app.url));
        let request = tokio::spawn(request.json(&json!({"message": "add milk", "user_id": "ann"})).send());
        until("the model to be asked for the answer", || async {
            app.gemini.requests().len() == 2
        })
        .await;
        // Aborting the task closes the client's connection.
        request.abort();
        assert!(
            request.await.is_err_and(|error| error.is_cancelled()),
            "the client disconnected before the answer"
        );
        until("the decision to be recorded", || async {
            let (_, page) = app.get("/v1/decisions").await;
            page["decisions"][0]["outcome_category"] == "SUCCESS:TASK_COMPLETED"
        })
        .await;
        let (_, page) = app.get("/v1/decisions").await;
        assert_eq!(page["decisions"].as_array().unwrap().len(), 1, "{page}");
        assert_eq!(page["decisions"][0]["response"], "Added.", "{page}");
        let tasks = app.tasks().await;
        assert_eq!(tasks.len(), 1, "{tasks:?}");
        assert_eq!(tasks[0].description, "milk");
    }
}

/// C-FR-006: the same for a stream whose reader disconnects within it.
#[tokio::test]
async fn a_reader_that_disconnects_from_a_stream_loses_no_record() {
    for setup in [Setup::stdio_sqlite(), Setup::stdio_postgres()] {
        let app = spawn_app(setup.script(vec![
            Reply::call("add_task", json!({"description": "milk"})),
            Reply::After(Duration::from_millis(300), Box::new(Reply::Text("Added."))),
        ]))
        .await;
        let body = json!({"message": "add milk", "user_id": "ann"});
        let stream = client().post(format!("{}/v1/chat/stream", app.url)).json(&body);
        let mut stream = stream.send().await.unwrap();
        let first = stream.chunk().await.unwrap().unwrap();
        assert!(first.starts_with(b"{\"type\":\"started\""), "{first:?}");
        drop(stream);
        until("the decision to be recorded", || async {
            let (_, page) = app.get("/v1/decisions").await;
            page["decisions"][0]["outcome_category"] == "SUCCESS:TASK_COMPLETED"
        })
        .await;
    }
}
