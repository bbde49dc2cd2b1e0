//! The two measured servers: how each is started, and which replies are valid.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use hyper::header::{HeaderName, HeaderValue};
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
    /// The URL of a PostgreSQL database.
    pub(crate) postgres: Option<String>,
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
    let agents = directory.join("agents");
    std::fs::create_dir_all(&agents)?;
    std::fs::write(agents.join(format!("{AGENT}.md")), agent())?;
    let mut command = Command::new(&setting.gavel);
    // The user's own configuration has no effect.
    command
        .arg("serve")
        .current_dir(directory)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", directory)
        .env("GAVEL_LISTEN", at.address().to_string())
        // All requests are of one tenant, which may use seven eighths of it.
        .env("GAVEL_MAX_IN_FLIGHT", "2048")
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

/// The agent that gavel runs: it has the one tool, as the chat has, and ends with plain text.
const AGENT: &str = "lister";

fn agent() -> String {
    format!(
        "---\nname: {AGENT}\ndescription: Lists a person's tasks.\ntools: [{TOOL}]\n---\nYou list one person's tasks.\n"
    )
}

/// What a load asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// A decision by `POST /v1/chat`.
    Decision,
    /// A run of an agent, which the caller waits for. The bare server has none.
    Run,
}

impl Asks {
    pub(crate) fn uri(self) -> Uri {
        Uri::from_static(match self {
            Self::Decision => "/v1/chat",
            Self::Run => "/api/projects/default/agents/lister/trigger",
        })
    }

    /// Names the user of request `number`. Each request is of its own user, because requests are limited per user.
    pub(crate) fn headers(self, number: u64) -> Vec<(HeaderName, HeaderValue)> {
        match self {
            Self::Decision => Vec::new(),
            Self::Run => {
                let user = HeaderValue::try_from(format!("user-{number}")).unwrap_or(HeaderValue::from_static("user"));
                vec![(HeaderName::from_static("x-gavel-user"), user)]
            }
        }
    }

    pub(crate) fn body(self, number: u64) -> Bytes {
        match self {
            Self::Decision => question(number),
            Self::Run => Bytes::from_static(br#"{"query":"What are my tasks?"}"#),
        }
    }

    /// Checks that this is the valid response to request `number`.
    pub(crate) fn check(self, number: u64, status: StatusCode, body: &[u8]) -> Result<(), String> {
        match self {
            Self::Decision => check(number, status, body),
            Self::Run => check_run(status, body),
        }
    }
}

fn question(number: u64) -> Bytes {
    Bytes::from(format!(
        r#"{{"message":"What are my tasks?","user_id":"user-{number}","conversation_id":"conversation-{number}"}}"#
    ))
}

#[derive(Deserialize)]
struct RunReply<'a> {
    status: &'a str,
    summary: Option<&'a str>,
}

fn check_run(status: StatusCode, body: &[u8]) -> Result<(), String> {
    let right = status == StatusCode::OK
        && serde_json::from_slice::<RunReply<'_>>(body).is_ok_and(|run| {
            run.status == "completed" && run.summary.is_some_and(|summary| summary.contains(CONFIRMED))
        });
    match right {
        true => Ok(()),
        false => Err(format!(
            "run: {status} {}",
            String::from_utf8_lossy(&body[..body.len().min(200)])
        )),
    }
}

#[derive(Deserialize)]
struct Reply<'a> {
    decision_id: &'a str,
    conversation_id: &'a str,
    decision_type: &'a str,
    outcome_category: &'a str,
    response: &'a str,
}

fn check(number: u64, status: StatusCode, body: &[u8]) -> Result<(), String> {
    let invalid = |what: &str| {
        let body = String::from_utf8_lossy(&body[..body.len().min(400)]);
        Err(format!("{what}: {status} {body}"))
    };
    if status != StatusCode::OK {
        // Without its ids, so that equal ones are counted together.
        let Ok(refused) = serde_json::from_slice::<Reply<'_>>(body) else {
            return invalid("status");
        };
        return Err(format!("{status} {}", refused.outcome_category));
    }
    let Ok(reply) = serde_json::from_slice::<Reply<'_>>(body) else {
        return invalid("no decision");
    };
    if reply.decision_id.is_empty() || reply.conversation_id != format!("conversation-{number}") {
        return invalid("another's decision");
    }
    if (reply.decision_type, reply.outcome_category) != ("INVOKE_TOOL", "SUCCESS:TASK_COMPLETED") {
        return invalid("outcome");
    }
    if !reply.response.contains(CONFIRMED) {
        return invalid("response");
    }
    Ok(())
}

async fn ask(at: Loopback) -> anyhow::Result<()> {
    let mut connection = Connection::open(at).await?;
    let (status, body) = connection.post(&Asks::Decision.uri(), &[], question(0)).await?;
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
