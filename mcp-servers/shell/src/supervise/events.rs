//! What the supervisor waits for, each on a thread of its own.

use std::io::{self, Read};
use std::process::Child;
use std::sync::mpsc::Sender;
use std::thread;

use anyhow::Context;
use rustix::process::{WaitOptions, WaitStatus, wait};

use super::capture::{self, Shared};

/// What happens while a command runs.
#[derive(Debug)]
pub(super) enum Event {
    /// The pipe from the server is closed.
    ServerGone,
    /// The command's own process ended.
    Ended(WaitStatus),
    /// There is no process any more.
    AllEnded,
    /// A stream is read to its end.
    StreamEnded,
}

/// Waits on a thread for the end of the pipe from the server.
pub(super) fn watch_server(events: Sender<Event>) -> io::Result<()> {
    thread::Builder::new().spawn(move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        let _ = events.send(Event::ServerGone);
    })?;
    Ok(())
}

/// Reads a stream on a thread.
pub(super) fn read(stream: Option<impl Read + Send + 'static>, events: &Sender<Event>) -> anyhow::Result<Shared> {
    let (stream, into, events) = (stream.context("no stream")?, Shared::default(), events.clone());
    let shared = into.clone();
    thread::Builder::new().spawn(move || {
        capture::read(stream, &into);
        let _ = events.send(Event::StreamEnded);
    })?;
    Ok(shared)
}

/// Waits for all children on a thread: for the command's own process, and for those that lost their parents.
pub(super) fn wait_for_all(child: &Child, events: &Sender<Event>) -> anyhow::Result<()> {
    let (id, events) = (i32::try_from(child.id())?, events.clone());
    thread::Builder::new().spawn(move || {
        loop {
            match wait(WaitOptions::empty()) {
                Ok(Some((ended, status))) if ended.as_raw_pid() == id => {
                    let _ = events.send(Event::Ended(status));
                }
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => {
                    let _ = events.send(Event::AllEnded);
                    return;
                }
            }
        }
    })?;
    Ok(())
}
