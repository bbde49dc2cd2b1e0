//! Running gavel's own code in a container.

use bollard::container::LogOutput;
use bollard::exec::{CreateExecOptions, StartExecOptions, StartExecResults};
use futures_util::StreamExt;
use tokio::io::AsyncWriteExt;

use super::{Engine, EngineFault};

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
