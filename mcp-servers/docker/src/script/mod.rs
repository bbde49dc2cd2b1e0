//! Running one script in a container, at most once.
//!
//! 1. `launch.sh` reads the script, claims its key by creating a directory, and starts `supervise.sh`; an attempt that
//!    finds the directory starts nothing. Then it waits for the end and prints the result ([`frame`]).
//! 2. `supervise.sh` runs the script and keeps its output and its end in that directory. It outlives this server and
//!    the engine's service.
//! 3. `stop.sh` ends the script at its limit, or when the caller cancels.
//!
//! By design, the state of a script is in its container alone: a new process of this server needs nothing but the key.

use std::time::Duration;

use gavel_mcp_base::{Fault, ToolError, internal, key_reused};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::engine::{self, Command, Engine, EngineFault, Written};
use crate::error::{Code, disk_full, engine_error, unsettled};

const LAUNCH: &str = include_str!("launch.sh");
const SUPERVISE: &str = include_str!("supervise.sh");
const STOP: &str = include_str!("stop.sh");

/// How much of the end of each stream a result has, in bytes.
pub(crate) const KEPT: usize = 128 * 1024;
/// What is read beyond it, so that a credential at the cut is seen whole.
const MARGIN: usize = 1024;
/// How long the result may take after the script was ended.
const AFTERWARDS: Duration = Duration::from_secs(8);
/// How long a connection that ends may take to end before its calls are taken for cancelled.
const CLOSING: Duration = Duration::from_millis(200);

/// A script to run.
#[derive(Debug)]
pub(crate) struct Script {
    /// The id of the container.
    pub(crate) container: String,
    pub(crate) workdir: String,
    /// A name of the call that is safe in paths.
    pub(crate) key: String,
    /// The digest of the call's arguments.
    pub(crate) digest: String,
    pub(crate) text: String,
    /// How long it may run.
    pub(crate) limit: Duration,
    /// Whether the caller sent the call before.
    pub(crate) is_repeated: bool,
}

/// How a script can be ended from outside.
#[derive(Debug, Clone)]
pub(crate) struct Signals {
    /// The caller does not wait any more.
    pub(crate) dropped: CancellationToken,
    /// The server ends. Scripts continue: the next attempt finds them.
    pub(crate) closing: CancellationToken,
}

impl Signals {
    /// Waits until the caller cancels the call.
    async fn cancelled(&self) {
        self.dropped.cancelled().await;
        tokio::select! {
            // The connection has ended, and with it all calls.
            () = self.closing.cancelled() => std::future::pending().await,
            () = sleep(CLOSING) => {}
        }
    }
}

/// Runs the script, or joins an earlier attempt of the same call, and waits for the result.
pub(crate) async fn run(engine: &Engine, script: &Script, signals: &Signals) -> Result<Frame, Fault> {
    let until = Instant::now() + script.limit;
    let mut result = std::pin::pin!(result(engine, script));
    let why = tokio::select! {
        found = &mut result => return settle(engine, script, found?).await,
        () = sleep_until(until) => Why::Timeout,
        () = signals.cancelled() => Why::Cancelled,
        () = signals.closing.cancelled() => {
            return Err(unsettled("the server ends while the script runs"));
        }
    };
    let has_restarted = stop(engine, script, why).await;
    let found = timeout(AFTERWARDS, result).await;
    let mut frame = found.map_err(|_| unsettled("the script was ended, and its result cannot be read"))??;
    frame.has_restarted |= has_restarted;
    if frame.stop.is_empty() && frame.ending == Ending::Lost {
        frame.stop = why.text().to_owned();
    }
    Ok(frame)
}

/// A script whose supervisor ended before it may have left processes behind; or another attempt of the call ends it by a
/// restart, and has not yet noted that.
async fn settle(engine: &Engine, script: &Script, mut frame: Frame) -> Result<Frame, Fault> {
    if matches!(frame.ending, Ending::Lost) {
        drop(engine.turn(&script.container).await);
        frame = result(engine, script).await?;
        frame.has_restarted |= stop(engine, script, Why::Interrupted).await;
    }
    Ok(frame)
}

/// Asks for the result until there is one: the engine's service may be restarted meanwhile.
async fn result(engine: &Engine, script: &Script) -> Result<Frame, Fault> {
    let command = launch(script);
    let (mut has_started, mut was_restarting) = (false, false);
    let mut pause = Duration::from_millis(100);
    loop {
        match engine.prepare_exec(&script.container, &command).await {
            Ok(prepared) => {
                has_started = true;
                if let Ok(written) = engine.run_exec(prepared).await
                    && let Some(printed) = parse_printed(&written, &script.key)
                {
                    return done(script, printed);
                }
            }
            Err(EngineFault::Conflict) if !was_restarting => {
                drop(engine.turn(&script.container).await);
                was_restarting = true;
            }
            Err(fault @ (EngineFault::Missing | EngineFault::Conflict)) => return Err(engine_error(&fault).into()),
            Err(fault) if !has_started && !script.is_repeated => return Err(engine_error(&fault).into()),
            Err(EngineFault::Unavailable | EngineFault::Failed | EngineFault::Full) => {}
        }
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

fn launch(script: &Script) -> Command<'_> {
    let text = |number: usize| number.to_string();
    Command {
        code: LAUNCH,
        arguments: vec![
            script.key.clone(),
            script.digest.clone(),
            text(script.text.len()),
            script.limit.as_secs().max(1).to_string(),
            script.workdir.clone(),
            text(KEPT + MARGIN),
            SUPERVISE.to_owned(),
            STOP.to_owned(),
        ],
        input: script.text.as_bytes(),
        most: 2 * KEPT + 128 * 1024,
    }
}

fn done(script: &Script, printed: Printed) -> Result<Frame, Fault> {
    let frame = match printed {
        Printed::Frame(frame) => frame,
        Printed::Fault(why) if why == "storage" => return Err(disk_full().into()),
        Printed::Fault(why) => match why.strip_prefix("missing ") {
            Some(tool) => {
                let words = format!(
                    "The script was not started: the image has no `{tool}`. Create a container of another image."
                );
                return Err(ToolError::new(Code::ImageUnusable, words).into());
            }
            None => return Err(internal().into()),
        },
    };
    match frame.digest.is_empty() || frame.digest == script.digest {
        true => Ok(frame),
        false => Err(key_reused().into()),
    }
}

/// Whether the code in the container wrote what it writes last.
fn without_last_line<'a>(written: &'a [u8], key: &str) -> Option<&'a [u8]> {
    written.strip_suffix(format!("\ngavel end {key}\n").as_bytes())
}

/// Both streams, if they are complete.
fn complete<'a>(written: &'a Written, key: &str) -> Option<(&'a [u8], &'a [u8])> {
    without_last_line(&written.out, key).zip(without_last_line(&written.err, key))
}

/// Five seconds until it has begun, two between TERM and KILL, and five for what remains.
const STOP_TIME: Duration = Duration::from_secs(15);

/// Why a script is ended.
#[derive(Debug, Clone, Copy)]
enum Why {
    /// It ran as long as it may.
    Timeout,
    /// The caller cancelled the call, or its time has ended.
    Cancelled,
    /// Its supervisor is gone.
    Interrupted,
}

impl Why {
    fn text(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
        }
    }
}

/// Ends the script and all that it started. Returns whether the container had to be restarted for that.
async fn stop(engine: &Engine, script: &Script, why: Why) -> bool {
    if ends(engine, script, why, "").await {
        return false;
    }
    match engine.restart(&script.container).await {
        Ok(Some(_turn)) => {
            tracing::warn!(
                container = script.container,
                "a script could not be ended; its container was restarted"
            );
            // Nothing is left to end: this notes what happened, for the kept result. Another attempt
            // waits for the turn, and then reads it.
            ends(engine, script, why, "restarted").await;
            true
        }
        // The container has stopped, or is gone, and the script with it.
        Ok(None) => false,
        Err(_) => {
            tracing::error!(
                container = script.container,
                "a container with a script that could not be ended did not restart"
            );
            false
        }
    }
}

/// Whether nothing of the script is left.
async fn ends(engine: &Engine, script: &Script, why: Why, after: &str) -> bool {
    let command = Command {
        code: STOP,
        arguments: vec![
            script.key.clone(),
            format!("/var/lib/gavel/calls/{}", script.key),
            why.text().to_owned(),
            after.to_owned(),
        ],
        input: &[],
        most: 1024,
    };
    let stopped = timeout(STOP_TIME, engine.exec(&script.container, &command)).await;
    stopped
        .ok()
        .and_then(Result::ok)
        .is_some_and(|written| matches!(written.out.trim_ascii(), b"ended" | b"stopped"))
}

// What `launch.sh` prints: the state of a script, its output, and the credentials that must not be in it.

/// What was printed.
#[derive(Debug)]
enum Printed {
    Frame(Frame),
    /// The script was not started; the text says why.
    Fault(String),
}

/// How a script ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// With this status, as a shell shows it: 128 and the number of a signal for a signal.
    Exited(u8),
    /// Its supervisor is gone, because the container was stopped or ran out of processes.
    Lost,
    /// It was claimed by an attempt that ended before it started anything.
    NeverStarted,
}

/// A script's result.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) ending: Ending,
    /// The digest of the call that started the script.
    pub(crate) digest: String,
    /// Why the script was ended from outside: `timeout`, `cancelled` or `interrupted`; else empty.
    pub(crate) stop: String,
    /// Whether the container was restarted, since the script could not be ended otherwise.
    pub(crate) has_restarted: bool,
    /// In milliseconds, if it is known when the script ended.
    pub(crate) duration_ms: Option<u64>,
    /// The end of each stream, with a margin for the redactor.
    pub(crate) out: Vec<u8>,
    pub(crate) err: Vec<u8>,
    /// Whether the streams had more.
    pub(crate) is_truncated: bool,
    /// Whether a part of the streams is lost because the disk was full.
    pub(crate) is_disk_full: bool,
    /// The lines of the credential file.
    pub(crate) secrets: Vec<String>,
}

/// The printed result; `None` if it is incomplete.
fn parse_printed(written: &Written, key: &str) -> Option<Printed> {
    if let Some(fault) = written.out.strip_prefix(b"fault ") {
        let fault = fault.strip_suffix(b"\n")?;
        return Some(Printed::Fault(String::from_utf8_lossy(fault).into_owned()));
    }
    let (out, err) = complete(written, key)?;
    let printed = engine::Printed::parse(out)?;
    let value = |name| printed.value(name);
    let ending = match value("state")? {
        "end" => Ending::Exited(value("code")?.parse().ok()?),
        "never" => Ending::NeverStarted,
        _ => Ending::Lost,
    };
    // The size of a stream that was cut before has a gigabyte added.
    let is_longer = |name| {
        value(name)
            .and_then(|bytes| bytes.parse::<u64>().ok())
            .is_some_and(|bytes| bytes > KEPT as u64)
    };
    let is_disk_full = value("full").is_some_and(|full| !full.is_empty());
    let seconds = |name| value(name).and_then(|text| text.parse::<f64>().ok());
    let duration = seconds("began")
        .zip(seconds("ended"))
        .map(|(began, ended)| (ended - began) * 1000.0);
    Some(Printed::Frame(Frame {
        ending,
        digest: value("digest").unwrap_or_default().to_owned(),
        stop: value("stop").unwrap_or_default().to_owned(),
        has_restarted: value("restart").is_some_and(|restart| !restart.is_empty()),
        duration_ms: duration
            .filter(|ms| ending != Ending::Lost && *ms >= 0.0)
            .map(|ms| ms.round() as u64),
        secrets: printed.secrets(),
        err: err.to_vec(),
        is_truncated: is_longer("out") || is_longer("err") || is_disk_full,
        is_disk_full,
        out: printed.content,
    }))
}

#[cfg(test)]
mod frame_tests {
    use super::*;

    fn written(out: &str, err: &str) -> Written {
        Written {
            out: out.as_bytes().to_vec(),
            err: err.as_bytes().to_vec(),
        }
    }

    #[test]
    fn a_whole_result_is_read_and_a_part_of_one_is_not() {
        let out = "state end\ncode 3\nended 12.50\ndigest d\nbegan 10.00\nstop \nrestart \nfull \nout 1073741830\nerr 1\n\
                   secret a b\n\nhi\n\n\ngavel end k\n";
        let err = "e\ngavel end k\n";
        let Some(Printed::Frame(frame)) = parse_printed(&written(out, err), "k") else {
            panic!("a result");
        };
        assert_eq!(frame.ending, Ending::Exited(3));
        assert_eq!(frame.duration_ms, Some(2500));
        assert_eq!(
            (frame.out.as_slice(), frame.err.as_slice()),
            (&b"hi\n\n"[..], &b"e"[..])
        );
        assert!(frame.is_truncated && !frame.has_restarted && !frame.is_disk_full);
        assert_eq!(frame.secrets, ["a b"]);
        for length in 0..out.len() {
            assert!(parse_printed(&written(&out[..length], err), "k").is_none(), "{length}");
        }
        assert!(parse_printed(&written(out, "e"), "k").is_none());
        assert!(parse_printed(&written(out, err), "j").is_none());
    }

    #[test]
    fn a_fault_is_read() {
        let Some(Printed::Fault(fault)) = parse_printed(&written("fault missing setsid\n", ""), "k") else {
            panic!("a fault");
        };
        assert_eq!(fault, "missing setsid");
    }
}
