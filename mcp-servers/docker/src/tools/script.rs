//! `executeScript`

use std::sync::Arc;
use std::time::Duration;

use gavel_mcp_base::{Fault, Kind, Tool, ToolError, missing, text};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ContainerId, running};
use crate::call::Call;
use crate::docker::Docker;
use crate::error::Code;
use crate::redact::Redactor;
use crate::script::{Ending, KEPT, Script, Signals, run};

/// The longest script, in bytes.
const SCRIPT: usize = 256 * 1024;
/// In seconds.
const DEFAULT: u32 = 300;

const ABOUT: &str = "\
Run a script with /bin/sh in the working directory of a container, without standard input. A status other than 0 is a \
result, not an error. What it starts in the background ends one second after it, unless it is in a session of its own \
(setsid). Of each stream the last 128 KiB are returned; diskFull says that output is lost, because the container's \
disk was full. If timedOut or interrupted is true, the script was cut short; \
it is not run again by itself.";

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Arguments {
    #[serde(flatten)]
    container: ContainerId,
    /// The script, of at most 256 KiB.
    #[schemars(extend("x-exact" = true))]
    script: String,
    /// After so many seconds the script is ended. 300 when left out.
    #[schemars(range(min = 1, max = 600))]
    timeout_seconds: Option<u32>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Ended {
    /// The end of the standard output.
    stdout: String,
    /// The end of the standard error.
    stderr: String,
    /// As a shell shows it: 128 and its number for a signal. null when it is unknown.
    exit_code: Option<u32>,
    /// The signal that exitCode shows, such as SIGKILL.
    signal: Option<&'static str>,
    /// Whether it was ended because it took too long.
    timed_out: bool,
    /// Whether it was cut short by a cancellation or a stop of the container.
    interrupted: bool,
    /// Whether a stream had more than what is returned.
    truncated: bool,
    /// Whether the disk was full while it ran, so that a part of its output is lost.
    disk_full: bool,
    /// Whether the container was restarted to end the script: all its processes are gone.
    restarted: bool,
    /// How long it ran. null when it is unknown.
    duration_ms: Option<u64>,
}

pub(super) fn tool() -> Tool<Docker> {
    super::tool("executeScript", "Run a script", ABOUT, Kind::Acts, execute)
}

async fn execute(docker: Arc<Docker>, arguments: Arguments, call: Call) -> Result<Ended, Fault> {
    let text = arguments.script;
    if text.is_empty() {
        return Err(missing("script").into());
    }
    if text.len() > SCRIPT {
        let words = format!("The script has {} bytes; at most {SCRIPT} are allowed.", text.len());
        let error = ToolError::new(Code::TooLarge, words).about("script");
        return Err(error.with("max", SCRIPT).into());
    }
    let seconds = arguments.timeout_seconds.unwrap_or(DEFAULT);
    let limit = call.limited(Duration::from_secs(u64::from(seconds)))?;
    let container = running(&arguments.container, &docker, &call).await?;
    let script = Script {
        container: container.id,
        workdir: container.workdir,
        key: call.id(),
        digest: call.digest.clone(),
        text,
        limit,
        is_repeated: call.is_repeated,
    };
    let signals = Signals {
        dropped: call.dropped,
        closing: docker.closing.clone(),
    };
    let frame = run(&docker.engine, &script, &signals).await?;
    let redactor = docker.credentials.redactor(&script.container, &frame.secrets);
    let timed_out = frame.stop == "timeout";
    let code = match frame.ending {
        Ending::Exited(code) => Some(code),
        Ending::Lost | Ending::NeverStarted => None,
    };
    Ok(Ended {
        stdout: end_of(&frame.out, &redactor),
        stderr: end_of(&frame.err, &redactor),
        exit_code: code.map(Into::into),
        signal: code.and_then(signal),
        timed_out,
        interrupted: !timed_out && (code.is_none() || !frame.stop.is_empty()),
        truncated: frame.is_truncated,
        disk_full: frame.is_disk_full,
        restarted: frame.has_restarted,
        duration_ms: frame.duration_ms,
    })
}

/// The last [`KEPT`] bytes of a stream as text, without credentials: those at the cut are removed before it is made.
fn end_of(stream: &[u8], redactor: &Redactor) -> String {
    let text = redactor.clean(&String::from_utf8_lossy(stream));
    let start = text.len().saturating_sub(KEPT);
    let start = (start..=text.len())
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or_default();
    text.get(start..).unwrap_or_default().to_owned()
}

/// The signal of a status, as a shell shows it.
fn signal(code: u8) -> Option<&'static str> {
    match code {
        129..=143 => text::signal(usize::from(code - 128)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_above_128_is_a_signal() {
        assert_eq!(signal(137), Some("SIGKILL"));
        assert_eq!(signal(143), Some("SIGTERM"));
        for code in [0, 1, 128, 144, 255] {
            assert_eq!(signal(code), None, "{code}");
        }
    }
}
