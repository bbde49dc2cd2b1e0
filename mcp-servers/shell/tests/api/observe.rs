//! What the tests see of processes.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A word that no other process has in its command line.
pub(crate) fn unique() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(1);
    // An argument of `sleep`, in seconds: more than a day.
    format!("9{:06}.{:03}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The processes with this word in their command line, without those that are dead.
pub(crate) fn with_word(word: &str) -> Vec<i32> {
    processes().filter(|id| command_line(*id).contains(word)).collect()
}

/// How many processes sleep with this argument: a shell that has not yet begun has it in its command line too.
pub(crate) fn sleeping(word: &str) -> usize {
    processes()
        .filter(|id| command_line(*id).trim_end() == format!("sleep {word}"))
        .count()
}

fn processes() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").expect("processes").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn command_line(id: i32) -> String {
    let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

/// The threads and processes of a user.
pub(crate) fn of_user(user: u32) -> usize {
    processes()
        .filter(|id| field(*id, "Uid:").is_some_and(|found| found == u64::from(user)))
        .count()
}

pub(crate) fn field(id: i32, name: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The supervisors of a server.
pub(crate) fn supervisors(server: i32) -> Vec<i32> {
    let parent = u64::try_from(server).expect("an id");
    let children = processes().filter(|id| field(*id, "PPid:") == Some(parent));
    children.filter(|id| command_line(*id).contains("supervise")).collect()
}

pub(crate) fn kill(id: i32) {
    kill_process(Pid::from_raw(id).expect("an id"), Signal::KILL).expect("it is there");
}

/// Waits until this holds; how long it took.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(60), "not within 60 s: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    begin.elapsed()
}
