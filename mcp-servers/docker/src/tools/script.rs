//! `executeScript`

use std::time::Duration;

use gavel_mcp_base::{Answer, Arguments, ToolError, missing};
use rmcp::model::{JsonObject, Tool};
use serde_json::{Value, json};

use super::schema::{self, Kind};
use super::target::running;
use crate::call::Call;
use crate::docker::Docker;
use crate::error::{Code, Fault};
use crate::redact::Redactor;
use crate::script::{Ending, Frame, KEPT, Script, Signals, run};

pub(super) const NAME: &str = "executeScript";

/// The longest script, in bytes.
const SCRIPT: usize = 256 * 1024;
/// In seconds.
const DEFAULT: u32 = 300;
const MOST: u32 = 600;

const ABOUT: &str = "\
Run a script with /bin/sh in the working directory of a container, without standard input. A status other than 0 is a \
result, not an error. What it starts in the background ends one second after it, unless it is in a session of its own \
(setsid). Of each stream the last 128 KiB are returned; diskFull says that output is lost, because the container's \
disk was full. If timedOut or interrupted is true, the script was cut short; \
it is not run again by itself.";

pub(super) fn tool() -> Tool {
    let timeout = json!({
        "type": "integer", "minimum": 1, "maximum": MOST,
        "description": "After so many seconds the script is ended. 300 when left out."
    });
    let arguments = json!({
        "containerId": schema::container_id(),
        "script": schema::text("The script, of at most 256 KiB."),
        "timeoutSeconds": timeout
    });
    let nullable = |kind: &str, about: &str| json!({ "type": [kind, "null"], "description": about });
    schema::tool(
        NAME,
        "Run a script",
        ABOUT,
        Kind::Runs,
        (arguments, &["containerId", "script"]),
        &[
            ("stdout", schema::text("The end of the standard output.")),
            ("stderr", schema::text("The end of the standard error.")),
            (
                "exitCode",
                nullable(
                    "integer",
                    "As a shell shows it: 128 and its number for a signal. null when it is unknown.",
                ),
            ),
            (
                "signal",
                nullable("string", "The signal that exitCode shows, such as SIGKILL."),
            ),
            (
                "timedOut",
                schema::boolean("Whether it was ended because it took too long."),
            ),
            (
                "interrupted",
                schema::boolean("Whether it was cut short by a cancellation or a stop of the container."),
            ),
            (
                "truncated",
                schema::boolean("Whether a stream had more than what is returned."),
            ),
            (
                "diskFull",
                schema::boolean("Whether the disk was full while it ran, so that a part of its output is lost."),
            ),
            (
                "restarted",
                schema::boolean("Whether the container was restarted to end the script: all its processes are gone."),
            ),
            (
                "durationMs",
                nullable("integer", "How long it ran. null when it is unknown."),
            ),
        ],
    )
}

pub(super) async fn carry_out(
    arguments: Option<JsonObject>,
    docker: &Docker,
    call: &Call,
    signals: &Signals,
) -> Result<Answer, Fault> {
    let arguments = Arguments::new(arguments, &["containerId", "script", "timeoutSeconds"])?;
    let text = arguments.exact_text("script")?.ok_or_else(|| missing("script"))?;
    if text.is_empty() {
        return Err(missing("script").into());
    }
    if text.len() > SCRIPT {
        let words = format!("The script has {} bytes; at most {SCRIPT} are allowed.", text.len());
        return Err(ToolError::new(Code::TooLarge, words)
            .about("script")
            .with("max", SCRIPT)
            .into());
    }
    let seconds = arguments.integer("timeoutSeconds", 1, MOST)?.unwrap_or(DEFAULT);
    let limit = call.limited(Duration::from_secs(u64::from(seconds)))?;
    let container = running(&arguments, docker, call).await?;
    let script = Script {
        container: container.id,
        workdir: container.workdir,
        key: call.id(),
        digest: call.digest.clone(),
        text: text.to_owned(),
        limit,
        is_repeated: call.is_repeated,
    };
    let frame = run(&docker.engine, &script, signals).await?;
    let redactor = docker.credentials.redactor(&script.container, &frame.secrets);
    Ok(Answer::of(&body(&frame, &redactor)))
}

fn body(frame: &Frame, redactor: &Redactor) -> Value {
    let timed_out = frame.stop == "timeout";
    let code = match frame.ending {
        Ending::Exited(code) => Some(code),
        Ending::Lost | Ending::NeverStarted => None,
    };
    json!({
        "stdout": end_of(&frame.out, redactor),
        "stderr": end_of(&frame.err, redactor),
        "exitCode": code,
        "signal": code.and_then(signal),
        "timedOut": timed_out,
        "interrupted": !timed_out && (code.is_none() || !frame.stop.is_empty()),
        "truncated": frame.is_truncated,
        "diskFull": frame.is_disk_full,
        "restarted": frame.has_restarted,
        "durationMs": frame.duration_ms
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
    const NAMES: [&str; 15] = [
        "SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGUSR1",
        "SIGSEGV", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM",
    ];
    NAMES.get(usize::from(code.checked_sub(129)?)).copied()
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
