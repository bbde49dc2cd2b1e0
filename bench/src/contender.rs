//! The two measured servers: how each is started, and which replies are valid.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use hyper::{StatusCode, Uri};
use serde::Deserialize;
use serde_json::json;
use tokio::process::Command;

use crate::client::Connection;
use crate::loopback::{Loopback, free_port};
use crate::precise;
use crate::process::Process;
use crate::stand_ins::{CONFIRMED, StandIns, TOOL};

/// The longest time of a start.
const START: Duration = Duration::from_secs(30);

/// A measured server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    Gavel,
    Bare,
}

impl Who {
    /// Gavel first.
    pub(crate) const BOTH: [Self; 2] = [Self::Gavel, Self::Bare];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gavel => "gavel",
            Self::Bare => "bare server",
        }
    }

    /// The query that counts its durable rows: decisions and tool calls.
    fn rows(self) -> &'static str {
        match self {
            Self::Gavel => {
                "SELECT (SELECT count(*) FROM decision_log WHERE status = 'closed'), \
                 (SELECT count(*) FROM tool_invocation_log WHERE status = 'completed')"
            }
            Self::Bare => "SELECT (SELECT count(*) FROM decision), (SELECT count(*) FROM tool_call)",
        }
    }
}

/// Settings that both need to start.
pub(crate) struct Setting {
    /// The gavel binary.
    pub(crate) gavel: PathBuf,
    /// The system prompt that gavel sends; the bare server sends the same.
    pub(crate) prompt: PathBuf,
    /// For databases and logs; removed at the end.
    pub(crate) directory: PathBuf,
}

/// A running server.
pub(crate) struct Contender {
    pub(crate) who: Who,
    pub(crate) at: Loopback,
    pub(crate) process: Process,
    /// From its start to its first valid response.
    pub(crate) started_in: Duration,
    database: PathBuf,
}

impl Contender {
    /// Starts `who` on a new database and waits for the first valid response.
    pub(crate) async fn start(who: Who, setting: &Setting, upstream: &StandIns) -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new().tempdir_in(&setting.directory)?.keep();
        let database = directory.join("data.db");
        Self::start_on(who, setting, upstream, database)
            .await
            .with_context(|| format!("{} did not start", who.name()))
    }

    /// Starts `who` on a database that may exist.
    pub(crate) async fn start_on(
        who: Who,
        setting: &Setting,
        upstream: &StandIns,
        database: PathBuf,
    ) -> anyhow::Result<Self> {
        let at = Loopback::port(free_port()?);
        let directory = database.parent().context("a database has a directory")?;
        let command = match who {
            Who::Gavel => gavel(setting, upstream, at, &database)?,
            Who::Bare => bare(setting, upstream, at, &database)?,
        };
        let start = Instant::now();
        let mut process = Process::start(command, directory.join("log"))?;
        let mut last = String::new();
        while start.elapsed() < START {
            match ask(at).await {
                Ok(()) => {
                    return Ok(Self {
                        who,
                        at,
                        process,
                        started_in: start.elapsed(),
                        database,
                    });
                }
                Err(error) => last = format!("{error:#}"),
            }
            process.check_alive()?;
            precise::sleep(Duration::from_millis(1)).await?;
        }
        bail!(
            "no valid response within {START:?}; the last: {last}\n{}",
            process.log_end()
        )
    }

    /// Decisions and tool calls that are durable now.
    pub(crate) fn rows(&self) -> anyhow::Result<(i64, i64)> {
        let database = rusqlite::Connection::open(&self.database)?;
        Ok(database.query_row(self.who.rows(), [], |row| Ok((row.get(0)?, row.get(1)?)))?)
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        let name = self.who.name();
        let log = self.process.log_end();
        let status = self.process.stop().await.with_context(|| name.to_owned())?;
        ensure!(
            status.success(),
            "{name} ended with {status} when asked to stop:\n{log}"
        );
        Ok(())
    }
}

fn gavel(setting: &Setting, upstream: &StandIns, at: Loopback, database: &Path) -> anyhow::Result<Command> {
    let directory = database.parent().context("a database has a directory")?;
    let servers = directory.join("mcp.json");
    let tools = json!({TOOL: {"sideEffect": false}});
    let config = json!({"mcpServers": {"tasks": {
        "url": format!("{}/mcp", upstream.mcp_at.url()), "gavel": {"tools": tools},
    }}});
    std::fs::write(&servers, config.to_string())?;
    let mut command = Command::new(&setting.gavel);
    // The user's own configuration has no effect.
    command
        .arg("serve")
        .current_dir(directory)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", directory)
        .env("GAVEL_LISTEN", at.address().to_string())
        .env("DATABASE_URL", format!("sqlite://{}", database.display()))
        .env("GEMINI_BASE_URL", upstream.model_at.url())
        .env("GEMINI_API_KEY", "bench")
        .env("GEMINI_MODEL", "gemini-3.8-flash")
        .env("GAVEL_MCP_CONFIG", servers)
        .env("RUST_LOG", "warn");
    Ok(command)
}

fn bare(setting: &Setting, upstream: &StandIns, at: Loopback, database: &Path) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg("bare")
        .args(["--port", &at.address().port().to_string()])
        .args(["--model-port", &upstream.model_at.address().port().to_string()])
        .args(["--mcp-port", &upstream.mcp_at.address().port().to_string()])
        .arg("--database")
        .arg(database)
        .arg("--prompt")
        .arg(&setting.prompt);
    Ok(command)
}

/// The address for decisions.
pub(crate) fn chat() -> Uri {
    Uri::from_static("/v1/chat")
}

/// A unique request: each is of its own user, because requests are limited per user.
pub(crate) fn question(number: u64) -> Bytes {
    Bytes::from(format!(
        r#"{{"message":"What are my tasks?","user_id":"user-{number}","conversation_id":"conversation-{number}"}}"#
    ))
}

#[derive(Deserialize)]
struct Reply<'a> {
    decision_id: &'a str,
    conversation_id: &'a str,
    decision_type: &'a str,
    outcome_category: &'a str,
    response: &'a str,
}

/// Checks that this is the valid response to [`question`] `number`.
pub(crate) fn check(number: u64, status: StatusCode, body: &[u8]) -> Result<(), String> {
    let wrong = |what: &str| {
        let body = String::from_utf8_lossy(&body[..body.len().min(400)]);
        Err(format!("{what}: {status} {body}"))
    };
    if status != StatusCode::OK {
        return wrong("status");
    }
    let Ok(reply) = serde_json::from_slice::<Reply<'_>>(body) else {
        return wrong("no decision");
    };
    if reply.decision_id.is_empty() || reply.conversation_id != format!("conversation-{number}") {
        return wrong("another's decision");
    }
    if (reply.decision_type, reply.outcome_category) != ("INVOKE_TOOL", "SUCCESS:TASK_COMPLETED") {
        return wrong("outcome");
    }
    if !reply.response.contains(CONFIRMED) {
        return wrong("response");
    }
    Ok(())
}

async fn ask(at: Loopback) -> anyhow::Result<()> {
    let mut connection = Connection::open(at).await?;
    let (status, body) = connection.post(&chat(), &[], question(0)).await?;
    check(0, status, &body).map_err(anyhow::Error::msg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_reply_is_detected() {
        let good = format!(
            r#"{{"decision_id":"d","conversation_id":"conversation-7","decision_type":"INVOKE_TOOL",
                "outcome_category":"SUCCESS:TASK_COMPLETED","response":"{CONFIRMED}"}}"#
        );
        assert_eq!(check(7, StatusCode::OK, good.as_bytes()), Ok(()));
        assert!(check(8, StatusCode::OK, good.as_bytes()).is_err(), "crossed replies");
        assert!(check(7, StatusCode::SERVICE_UNAVAILABLE, good.as_bytes()).is_err());
        for (from, to) in [("INVOKE", "REFUSE"), ("SUCCESS", "ERROR"), (CONFIRMED, "sorry")] {
            assert!(
                check(7, StatusCode::OK, good.replace(from, to).as_bytes()).is_err(),
                "{to}"
            );
        }
    }
}
