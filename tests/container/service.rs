//! The built gavel as a process, with its bundled servers, and everything around it.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use chrono::{SecondsFormat, Utc};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::collector::Collector;
use crate::engine::{Engine, IMAGE, engine};
use crate::gemini::{Gemini, Reply};
use crate::git::GitServer;
use crate::github::{GitHub, TOKEN};
use crate::postgres;
pub use crate::process::Gavel;
use crate::watched::Watched;

/// The longest that a session of these tests takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// Everything that a session needs, with the files of its repository.
pub struct World {
    pub engine: &'static Engine,
    pub watched: Watched,
    pub git: GitServer,
    pub github: GitHub,
    pub gemini: Gemini,
    pub collector: Collector,
    pub database: String,
    pub directory: TempDir,
    /// Further settings of gavel.
    pub further: Vec<(&'static str, String)>,
    /// Everything that gavel has answered.
    answers: Mutex<String>,
    client: reqwest::Client,
}

/// The engine of this test program; `None` without root.
pub async fn started() -> Option<&'static Engine> {
    // Importing the image takes seconds.
    tokio::task::spawn_blocking(engine).await.unwrap()
}

impl World {
    /// `model` gets the address of the git server.
    pub async fn new(
        engine: &'static Engine,
        database: Option<String>,
        files: &[(&str, &str)],
        model: impl FnOnce(&str) -> Reply,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let sqlite = format!("sqlite://{}", directory.path().join("gavel.db").display());
        let github = GitHub::start().await;
        github.state(|state| {
            let repository = state.add("acme", "dates");
            for (path, text) in files {
                repository.files.insert((*path).to_owned(), text.as_bytes().to_vec());
            }
        });
        // For a client over plain HTTP.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .no_proxy()
            .tls_certs_only([])
            .build()
            .unwrap();
        let git = GitServer::start(TOKEN, files).await;
        Self {
            engine,
            watched: Watched::start(&engine.host()).await,
            gemini: Gemini::scripted(vec![model(&git.url)]).await,
            git,
            github,
            collector: Collector::start().await,
            database: database.unwrap_or(sqlite),
            directory,
            further: Vec::new(),
            answers: Mutex::default(),
            client,
        }
    }

    /// Starts gavel with the environment that an operator would set, and waits until it answers.
    pub async fn start(&self) -> Gavel {
        let port = postgres::free_port();
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.log_file())
            .unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_gavel"))
            .arg("serve")
            .current_dir(self.directory.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.directory.path())
            .env("GAVEL_LISTEN", format!("127.0.0.1:{port}"))
            .env("DATABASE_URL", &self.database)
            .env("GEMINI_API_KEY", "key-of-the-model")
            .env("GEMINI_MODEL", "gemini-3.5-flash")
            .env("GEMINI_BASE_URL", &self.gemini.url)
            .env("GITHUB_TOKEN", TOKEN)
            .env("GITHUB_URL", &self.git.url)
            .env("GITHUB_API_URL", self.github.url())
            .env("DOCKER_HOST", &self.watched.host)
            .env("DOCKER_IMAGES", IMAGE)
            .env("DOCKER_NETWORK", "host")
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", &self.collector.url)
            .env("GAVEL_RUNS_LEASE_SECONDS", "2")
            .env("GAVEL_RATE_LIMIT_PER_MINUTE", "100000")
            .env("GAVEL_RATE_LIMIT_BURST", "10000")
            .env("RUST_LOG", "debug")
            .envs(self.further.iter().cloned())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let gavel = Gavel {
            child,
            url: format!("http://127.0.0.1:{port}"),
        };
        let probe = format!("{}/readyz", gavel.url);
        let began = Instant::now();
        while !self
            .client
            .get(&probe)
            .send()
            .await
            .is_ok_and(|answer| answer.status() == 200)
        {
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "gavel is not ready: {}",
                self.log()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        gavel
    }

    fn log_file(&self) -> std::path::PathBuf {
        self.directory.path().join("gavel.log")
    }

    /// What gavel and its servers logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap()
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> (u16, Value) {
        let response = request.header("x-gavel-user", "ann").send().await.unwrap();
        let status = response.status().as_u16();
        let text = response.text().await.unwrap();
        self.answers.lock().unwrap().push_str(&text);
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    pub async fn get(&self, gavel: &Gavel, path: &str) -> Value {
        let (status, body) = self.send(self.client.get(format!("{}{path}", gavel.url))).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    pub async fn post(&self, gavel: &Gavel, path: &str, body: Value) -> (u16, Value) {
        self.send(self.client.post(format!("{}{path}", gavel.url)).json(&body))
            .await
    }

    /// A session whose plan waits for its confirmation; returns its path.
    pub async fn plan(&self, gavel: &Gavel, time: Duration) -> String {
        let deadline = (Utc::now() + time).to_rfc3339_opts(SecondsFormat::Millis, true);
        let body = json!({
            "prompt": "Accept ISO weeks such as 2026-W48, with tests",
            "repoUrl": format!("{}/acme/dates", self.git.url),
            "deadline": deadline,
        });
        let (status, session) = self.post(gavel, "/v1/sessions", body).await;
        assert_eq!(
            (status, &session["status"]),
            (201, &json!("AWAITING_CONFIRMATION")),
            "{session}"
        );
        format!("/v1/sessions/{}", session["sessionId"].as_str().unwrap())
    }

    /// Confirms the plan.
    pub async fn execute(&self, gavel: &Gavel, session: &str) {
        let (status, body) = self
            .post(gavel, &format!("{session}/execute"), json!({"planVersion": 1}))
            .await;
        assert_eq!(status, 202, "{body}");
    }

    /// The session, once this holds for it.
    pub async fn once(&self, gavel: &Gavel, session: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let read = self.get(gavel, session).await;
            if holds(&read) {
                return read;
            }
            assert!(began.elapsed() < PATIENCE, "{what}: {read}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The session once it has ended.
    pub async fn ended(&self, gavel: &Gavel, session: &str) -> Value {
        let ended = self.once(gavel, session, "it ends", |session| !session["completedAt"].is_null());
        ended.await
    }

    /// The observation of every step of a task.
    pub async fn observations(&self, gavel: &Gavel, session: &str, task: &str) -> Vec<Value> {
        let task = self.get(gavel, &format!("{session}/tasks/{task}?view=raw")).await;
        let steps = task["reactHistory"].as_array().unwrap().iter();
        steps.map(|step| step["observation"].clone()).collect()
    }

    /// The ids of the containers of a session.
    pub fn containers(&self, session: &str) -> Vec<String> {
        self.containers_in(session, &[])
    }

    /// Those of them that fit.
    pub fn containers_in(&self, session: &str, filters: &[&str]) -> Vec<String> {
        let id = session.rsplit('/').next().unwrap();
        let label = format!("label=gavel.session={id}");
        let listing = ["ps", "--all", "--quiet", "--no-trunc", "--filter", &label];
        let listed = self.engine.podman(listing.iter().chain(filters));
        listed.lines().map(str::to_owned).collect()
    }

    /// `gavel audit verify`.
    pub fn verify_audit(&self) {
        let verified = Command::new(env!("CARGO_BIN_EXE_gavel"))
            .args(["audit", "verify"])
            .env_clear()
            .current_dir(self.directory.path())
            .env("DATABASE_URL", &self.database)
            .output()
            .unwrap();
        assert_eq!(
            verified.status.code(),
            Some(0),
            "{}",
            String::from_utf8_lossy(&verified.stderr)
        );
    }

    /// Everything that gavel has answered, logged, traced and kept on its disk, and what the model was sent.
    pub fn everything_said(&self) -> Vec<(&'static str, String)> {
        let requests: Vec<_> = self.gemini.requests().iter().map(Value::to_string).collect();
        vec![
            ("an answer", self.answers.lock().unwrap().clone()),
            ("a request to the model", requests.concat()),
            ("a trace", String::from_utf8_lossy(&self.collector.bytes()).into_owned()),
            ("a file of gavel's", files(self.directory.path())),
        ]
    }
}

/// The bytes of all files below a directory: gavel's log, and the database if it is SQLite.
fn files(directory: &Path) -> String {
    let mut all = String::new();
    for entry in fs::read_dir(directory).unwrap().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => all.push_str(&files(&entry.path())),
            false => all.push_str(&String::from_utf8_lossy(&fs::read(entry.path()).unwrap_or_default())),
        }
    }
    all
}
