//! Gavel with planning sessions, on one database.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use hyper::StatusCode;
use hyper::Uri;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::client::Connection;
use crate::loopback::{Loopback, free_port};
use crate::process::Process;

/// The longest time of a start, and of the end of a session.
const START: Duration = Duration::from_secs(30);
const SESSION: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Service {
    at: Loopback,
    process: Process,
}

impl Service {
    /// Starts gavel on a new database at this URL. The model and the tools are at `upstream`.
    pub(super) async fn start(
        gavel: &Path,
        directory: PathBuf,
        database: &str,
        upstream: Loopback,
        steps: u64,
    ) -> anyhow::Result<Self> {
        let servers = json!({ "mcpServers": { "github": {
            "url": format!("{}/mcp", upstream.url()), "gavel": { "trustHints": true },
        } } });
        std::fs::write(directory.join("mcp.json"), servers.to_string())?;
        let agents = directory.join("agents");
        std::fs::create_dir_all(&agents)?;
        std::fs::write(agents.join("planner.md"), include_str!("../../../../agents/planner.md"))?;
        std::fs::write(
            agents.join("task_worker.md"),
            include_str!("../../../../agents/task_worker.md"),
        )?;
        let at = Loopback::port(free_port()?);
        let mut command = Command::new(gavel);
        // The user's own configuration has no effect.
        command
            .arg("serve")
            .current_dir(&directory)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &directory)
            .env("GAVEL_LISTEN", at.address().to_string())
            .env("DATABASE_URL", database)
            .env("GEMINI_BASE_URL", upstream.url())
            .env("GEMINI_API_KEY", "bench")
            .env("GEMINI_MODEL", "gemini-3.8-flash")
            .env("GAVEL_MCP_CONFIG", directory.join("mcp.json"))
            .env("GAVEL_PLANNING_MAX_STEPS_PER_TASK", (steps + 1).to_string())
            .env("GAVEL_PLANNING_MAX_STEPS", (steps + 1).to_string())
            .env("RUST_LOG", "warn");
        let process = Process::start(command, directory.join("log"))?;
        let mut service = Self { at, process };
        let until = Instant::now() + START;
        loop {
            service.process.check_alive()?;
            if let Ok((StatusCode::OK, _)) = service.get("/readyz").await {
                return Ok(service);
            }
            ensure!(
                Instant::now() < until,
                "it did not start: {}",
                service.process.log_end()
            );
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Makes a plan, confirms it, and waits until it is worked through.
    pub(super) async fn work(&self) -> anyhow::Result<()> {
        let body = json!({
            "prompt": "Read the files", "repoUrl": "https://github.com/acme/dates", "deadline": in_an_hour()?,
        });
        let session = self.post("/v1/sessions", &body, StatusCode::CREATED).await?;
        let id = session["sessionId"].as_str().context("a session without an id")?;
        let path = format!("/v1/sessions/{id}");
        self.post(&format!("{path}/execute"), &json!({}), StatusCode::ACCEPTED)
            .await?;
        let until = Instant::now() + SESSION;
        loop {
            let (_, body) = self.get(&path).await?;
            let session: Value = serde_json::from_slice(&body)?;
            match session["status"].as_str() {
                Some("COMPLETED") => return Ok(()),
                Some("CONFIRMED" | "EXECUTING") if Instant::now() < until => {}
                _ => bail!("the session did not complete: {session}"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn get(&self, path: &str) -> anyhow::Result<(StatusCode, Bytes)> {
        let mut connection = Connection::open(self.at).await?;
        connection.get(&Uri::try_from(path)?).await
    }

    async fn post(&self, path: &str, body: &Value, expected: StatusCode) -> anyhow::Result<Value> {
        let mut connection = Connection::open(self.at).await?;
        let body = Bytes::from(body.to_string());
        let (status, body) = connection.post(&Uri::try_from(path)?, &[], body).await?;
        ensure!(
            status == expected,
            "POST {path}: {status}: {}",
            String::from_utf8_lossy(&body)
        );
        Ok(serde_json::from_slice(&body)?)
    }

    pub(super) async fn stop(self) -> anyhow::Result<()> {
        let status = self.process.stop().await?;
        ensure!(status.success(), "gavel ended with {status}");
        Ok(())
    }
}

/// RFC 3339, by SQLite's clock.
fn in_an_hour() -> anyhow::Result<String> {
    let database = rusqlite::Connection::open_in_memory()?;
    let text = "SELECT strftime('%Y-%m-%dT%H:%M:%SZ', 'now', '+1 hour')";
    Ok(database.query_row(text, [], |row| row.get(0))?)
}
