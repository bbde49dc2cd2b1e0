//! Running one script in a container, at most once.
//!
//! 1. `launch.sh` reads the script, claims its key by creating a directory, and starts `supervise.sh`; an attempt that
//!    finds the directory starts nothing. Then it waits for the end and prints the result ([`frame`]).
//! 2. `supervise.sh` runs the script and keeps its output and its end in that directory. It outlives this server and
//!    the engine's service.
//! 3. `stop.sh` ends the script at its limit, or when the caller cancels.
//!
//! By design, the state of a script is in its container alone: a new process of this server needs nothing but the key.

mod frame;
mod stop;

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::engine::exec::{Command, Written};
use crate::engine::{Engine, EngineFault};
use crate::error::{Code, disk_full, engine_error, unsettled};
use frame::Printed;
pub(crate) use frame::{Ending, Frame};
use gavel_mcp_base::{Fault, ToolError, internal, key_reused};
use stop::{Why, stop};

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
                    && let Some(printed) = frame::parse(&written, &script.key)
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
