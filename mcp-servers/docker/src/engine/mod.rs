//! The container engine: what this server asks it, and nothing else.

pub(crate) mod containers;
pub(crate) mod create;

use std::collections::HashMap;
use std::sync::{Mutex, Weak};
use std::time::Duration;

use bollard::container::LogOutput;
use bollard::errors::Error;
use bollard::exec::{CreateExecOptions, StartExecOptions, StartExecResults};
use bollard::{API_DEFAULT_VERSION, Docker};
use bytes::Bytes;
use futures_util::StreamExt;
use gavel_mcp_base::Moment;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::client::conn::http1::handshake;
use hyper::header::HOST;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::OnceCell;
use tokio::time::timeout;

/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(60);

/// The engine behind one socket. It is connected to when it is first needed, so that the server starts without it.
#[derive(Debug)]
pub(crate) struct Engine {
    socket: String,
    docker: OnceCell<Docker>,
    /// By container: held while this server restarts or removes it. One that is restarted looks as if it had stopped.
    turns: Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>,
}

impl Engine {
    /// The engine at the path of a socket.
    pub(crate) fn new(socket: String) -> Self {
        Self {
            socket,
            docker: OnceCell::new(),
            turns: Mutex::default(),
        }
    }

    /// A client that speaks the engine's version of the API.
    async fn docker(&self) -> Result<&Docker, EngineFault> {
        let connect = || async {
            let docker = Docker::connect_with_unix(&self.socket, REQUEST.as_secs(), API_DEFAULT_VERSION)?;
            docker.negotiate_version().await
        };
        Ok(self.docker.get_or_try_init(connect).await?)
    }

    /// Asks the engine about itself.
    pub(crate) async fn info(&self) -> Result<EngineInfo, EngineFault> {
        let docker = self.docker().await?;
        let version = docker.version().await?;
        let options = docker.info().await?.security_options.unwrap_or_default();
        let maps = ["name=rootless", "name=userns"];
        let name = version.components.into_iter().flatten().next().map(|part| part.name);
        Ok(EngineInfo {
            name: name.unwrap_or_default(),
            version: version.version.unwrap_or_default(),
            api_version: version.api_version.unwrap_or_default(),
            root_is_host_root: !options
                .iter()
                .any(|option| maps.iter().any(|map| option.split(',').any(|part| part == *map))),
        })
    }
}

/// The engine behind a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineInfo {
    /// Such as `Podman Engine`; empty if the engine does not say.
    pub name: String,
    /// Such as `4.3.1`.
    pub version: String,
    /// The version of its API, such as `1.41`.
    pub api_version: String,
    /// Root in a container is root on the host: the engine runs as root and maps no users. What escapes from a
    /// container then has the whole host.
    pub root_is_host_root: bool,
}

/// What the engine answered instead of a result.
#[derive(Debug)]
pub(crate) enum EngineFault {
    /// No answer, or half of one: it is unknown what the request did.
    Unavailable,
    /// What the request names does not exist.
    Missing,
    /// The state of the container, or a name that is taken, does not permit it.
    Conflict,
    /// The engine refused the request, or failed at it.
    Failed,
    /// The engine failed because its disk is full. Nothing was done.
    Full,
}

impl From<Error> for EngineFault {
    fn from(error: Error) -> Self {
        match error {
            Error::DockerResponseServerError { status_code: 404, .. } => Self::Missing,
            Error::DockerResponseServerError { status_code: 409, .. } => Self::Conflict,
            // Podman's words for a container that has stopped, and for a name that is taken.
            Error::DockerResponseServerError {
                status_code: 500,
                message,
            } if message.contains("state improper") || message.contains("already in use") => Self::Conflict,
            // The words of the operating system, which both engines pass on.
            Error::DockerResponseServerError { message, .. } if message.contains("no space left on device") => {
                Self::Full
            }
            Error::DockerResponseServerError { status_code, message } => {
                // What the engine says may name paths of the host: it is for the log.
                tracing::warn!(status_code, message, "the container engine refused a request");
                Self::Failed
            }
            other => {
                tracing::debug!(error = %other, "the container engine did not answer");
                Self::Unavailable
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Podman answers a request to create a container.
    #[test]
    fn a_full_disk_of_the_engine_is_recognized() {
        let message = "container create: write /var/tmp/270707900: no space left on device".to_owned();
        let status_code = 500;
        let error = Error::DockerResponseServerError { status_code, message };
        assert!(matches!(EngineFault::from(error), EngineFault::Full));
    }
}

// Reading the engine's state.
//
// bollard's types have only Docker's words for a container's state. Podman has more, such as `stopped` between the end
// of a container and the cleanup after it, and one such container would make the whole list unreadable.

/// The engine's answer to a request that fails.
#[derive(Deserialize)]
struct Refusal {
    message: String,
}

impl Engine {
    /// The answer to a GET, at a path below the version of the API.
    async fn read<T: DeserializeOwned>(&self, path: &str) -> Result<T, EngineFault> {
        let version = self.docker().await?.client_version();
        let uri = format!("/v{}.{}/{path}", version.major_version, version.minor_version);
        let (status_code, body) = match timeout(REQUEST, get(&self.socket, &uri)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                tracing::debug!(uri, %error, "the container engine did not answer");
                return Err(EngineFault::Unavailable);
            }
            Err(_) => {
                tracing::debug!(uri, "the container engine did not answer within {REQUEST:?}");
                return Err(EngineFault::Unavailable);
            }
        };
        if status_code != 200 {
            let refusal: Option<Refusal> = serde_json::from_slice(&body).ok();
            let message = refusal.map(|refusal| refusal.message).unwrap_or_default();
            return Err(Error::DockerResponseServerError { status_code, message }.into());
        }
        serde_json::from_slice(&body).map_err(|error| {
            tracing::warn!(uri, %error, "the answer of the container engine cannot be read");
            EngineFault::Failed
        })
    }
}

/// The status and the body.
async fn get(socket: &str, uri: &str) -> anyhow::Result<(u16, Bytes)> {
    let stream = UnixStream::connect(socket).await?;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    let request = Request::get(uri)
        .header(HOST, "localhost")
        .body(Empty::<Bytes>::new())?;
    let answer = async move {
        let response = sender.send_request(request).await?;
        let status = response.status().as_u16();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    };
    // The connection ends when the sender is dropped.
    let (answer, ()) = tokio::try_join!(answer, connection)?;
    Ok(answer)
}

/// Marks a container as gavel's. Without it, a container is not touched.
pub(crate) const MANAGED: &str = "gavel.managed";

/// What is written on a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Labels {
    /// The session that it belongs to, else the user. No other owner sees it.
    #[serde(rename = "gavel.session")]
    pub(crate) owner: Option<String>,
    /// Whose share it is a part of.
    #[serde(rename = "gavel.user")]
    pub(crate) user: Option<String>,
    /// A group to clean up together.
    #[serde(rename = "gavel.group")]
    pub(crate) group: Option<String>,
    /// The idempotency key of the call that created it.
    #[serde(rename = "gavel.key")]
    pub(crate) key: Option<String>,
    /// The digest of the arguments of that call.
    #[serde(rename = "gavel.digest")]
    pub(crate) digest: Option<String>,
    /// A name for people.
    #[serde(rename = "gavel.name")]
    pub(crate) name: Option<String>,
    /// After this time it is removed.
    #[serde(rename = "gavel.expires", default, deserialize_with = "moment")]
    pub(crate) expires: Option<Moment>,
}

impl Labels {
    /// As the engine takes them.
    pub(crate) fn write(&self) -> HashMap<String, String> {
        let own = serde_json::to_value(self).unwrap_or_default();
        let own = own.as_object().into_iter().flatten();
        let given = own.filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)));
        let all = given.chain([(MANAGED, "true")]);
        all.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// The labels of a container of gavel; `None` for any other container.
    pub(crate) fn read(labels: &HashMap<String, String>) -> Option<Self> {
        if labels.get(MANAGED).map(String::as_str) != Some("true") {
            return None;
        }
        let given = labels.iter().filter(|(_, text)| !text.is_empty());
        let given = given.map(|(name, text)| (name.clone(), Value::from(text.as_str())));
        serde_json::from_value(Value::Object(given.collect())).ok()
    }
}

/// A time; `None` for another text.
fn moment<'de, D: Deserializer<'de>>(label: D) -> Result<Option<Moment>, D::Error> {
    String::deserialize(label).map(|text| Moment::parse(&text))
}

#[cfg(test)]
mod labels_tests {
    use super::*;

    #[test]
    fn labels_are_read_as_they_were_written() {
        let labels = Labels {
            owner: Some("s".to_owned()),
            user: Some("acme/ann".to_owned()),
            key: Some("k=1".to_owned()),
            expires: Moment::parse("2026-03-31T09:00:00Z"),
            ..Labels::default()
        };
        assert_eq!(Labels::read(&labels.write()), Some(labels.clone()));
        let mut foreign = labels.write();
        foreign.remove(MANAGED);
        assert_eq!(Labels::read(&foreign), None);
    }
}

/// The environment variable by which gavel's own processes in a container are distinguished from a script's.
pub(crate) const MARK: &str = "GAVEL_SUPERVISOR";

/// Code for `/bin/sh` in a container.
#[derive(Debug, Clone)]
pub(crate) struct Command<'a> {
    pub(crate) code: &'a str,
    /// `$1` and so on. Others in the container can see them.
    pub(crate) arguments: Vec<String>,
    /// Standard input. The code must not wait for its end, which not every engine passes on.
    pub(crate) input: &'a [u8],
    /// The most that each stream may have, in bytes.
    pub(crate) most: usize,
}

/// What the code wrote.
#[derive(Debug, Clone, Default)]
pub(crate) struct Written {
    pub(crate) out: Vec<u8>,
    pub(crate) err: Vec<u8>,
}

/// What code in a container printed for this server: lines of "name value", an empty line, and a content.
#[derive(Debug)]
pub(crate) struct Printed {
    lines: Vec<(String, String)>,
    pub(crate) content: Vec<u8>,
}

impl Printed {
    /// `None` if there is no empty line.
    pub(crate) fn parse(written: &[u8]) -> Option<Self> {
        let end = written.windows(2).position(|pair| pair == b"\n\n")?;
        let header = String::from_utf8_lossy(written.get(..end)?).into_owned();
        let line = |line: &str| {
            let (name, value) = line.split_once(' ').unwrap_or((line, ""));
            (name.to_owned(), value.to_owned())
        };
        Some(Self {
            lines: header.lines().map(line).collect(),
            content: written.get(end + 2..)?.to_vec(),
        })
    }

    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.lines
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, value)| value.as_str())
    }

    /// The lines of the credential file.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let secrets = self.lines.iter().filter(|(name, _)| name == "secret");
        secrets.map(|(_, secret)| secret.clone()).collect()
    }
}

/// Code that the engine knows and has not started.
#[derive(Debug)]
pub(crate) struct Prepared<'a> {
    id: String,
    command: &'a Command<'a>,
}

impl Engine {
    /// Makes the command known to the engine. Nothing runs yet, so a fault means that nothing was done.
    pub(crate) async fn prepare_exec<'a>(
        &self,
        container: &str,
        command: &'a Command<'a>,
    ) -> Result<Prepared<'a>, EngineFault> {
        let fixed = ["/bin/sh", "-c", command.code, "gavel"].map(str::to_owned);
        let options = CreateExecOptions {
            attach_stdin: Some(!command.input.is_empty()),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            env: Some(vec![format!("{MARK}=exec")]),
            // A script may have removed the working directory of the container.
            working_dir: Some("/".to_owned()),
            cmd: Some(fixed.into_iter().chain(command.arguments.iter().cloned()).collect()),
            ..CreateExecOptions::default()
        };
        let created = self.docker().await?.create_exec(container, options).await?;
        Ok(Prepared {
            id: created.id,
            command,
        })
    }

    /// Runs the command and reads what it writes until it ends.
    pub(crate) async fn run_exec(&self, prepared: Prepared<'_>) -> Result<Written, EngineFault> {
        let command = prepared.command;
        let options = StartExecOptions {
            detach: false,
            tty: false,
            output_capacity: None,
        };
        let started = self.docker().await?.start_exec(&prepared.id, Some(options)).await?;
        let StartExecResults::Attached { mut output, mut input } = started else {
            return Err(EngineFault::Unavailable);
        };
        let write = async {
            // Code that does not need its input any more may have ended.
            if input.write_all(command.input).await.is_ok() {
                input.flush().await.ok();
            }
            std::future::pending::<()>().await;
        };
        let read = async {
            let mut written = Written::default();
            while let Some(part) = output.next().await {
                let (stream, message) = match part? {
                    LogOutput::StdOut { message } | LogOutput::Console { message } => (&mut written.out, message),
                    LogOutput::StdErr { message } => (&mut written.err, message),
                    LogOutput::StdIn { .. } => continue,
                };
                if stream.len() + message.len() > command.most {
                    return Err(EngineFault::Failed);
                }
                stream.extend_from_slice(&message);
            }
            Ok(written)
        };
        tokio::select! {
            () = write => Err(EngineFault::Unavailable),
            written = read => written,
        }
    }

    /// Both in one.
    pub(crate) async fn exec(&self, container: &str, command: &Command<'_>) -> Result<Written, EngineFault> {
        let prepared = self.prepare_exec(container, command).await?;
        self.run_exec(prepared).await
    }
}
