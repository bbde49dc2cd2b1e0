//! A measured child process: its CPU time and memory, including its children.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

/// The time after which a child that does not stop is killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Ticks per second of the times in /proc: `USER_HZ`, which is 100 on every architecture of Linux.
const TICKS: f64 = 100.0;

/// A child that is killed when dropped.
pub(crate) struct Process {
    child: Child,
    pid: Pid,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with standard output and error in `log`.
    pub(crate) fn start(mut command: Command, log: PathBuf) -> anyhow::Result<Self> {
        let out = std::fs::File::create(&log).with_context(|| format!("{} cannot be written", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{:?} cannot be started", command.as_std().get_program()))?;
        let id = child.id().context("a child without an id")?;
        let pid = Pid::from_raw(id.try_into()?).context("a child without an id")?;
        Ok(Self { child, pid, log })
    }

    /// Fails with the end of its log if the process has ended.
    pub(crate) fn check_alive(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("it ended ({status}):\n{}", self.log_end());
        }
        Ok(())
    }

    /// The last lines of its output.
    pub(crate) fn log_end(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(3000)..]).into_owned()
    }

    /// CPU-seconds used so far by it and its children, including ended ones.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        self.tree().iter().map(|stat| stat.ticks as f64 / TICKS).sum()
    }

    /// Resident memory of it and its children, in MiB. Shared pages count once for each process.
    pub(crate) fn resident_mib(&self) -> f64 {
        self.tree()
            .iter()
            .filter_map(|stat| resident_kib(stat.pid))
            .sum::<f64>()
            / 1024.0
    }

    /// Asks it to stop and waits.
    ///
    /// # Errors
    ///
    /// It had to be killed.
    pub(crate) async fn stop(mut self) -> anyhow::Result<ExitStatus> {
        kill_process(self.pid, Signal::TERM)?;
        match tokio::time::timeout(PATIENCE, self.child.wait()).await {
            Ok(status) => Ok(status?),
            Err(_) => {
                self.child.kill().await?;
                bail!("it did not stop within {PATIENCE:?} of SIGTERM:\n{}", self.log_end())
            }
        }
    }

    fn tree(&self) -> Vec<Stat> {
        let mut by_parent: HashMap<i32, Vec<Stat>> = HashMap::new();
        let mut found = Vec::new();
        for stat in all() {
            if stat.pid == self.pid.as_raw_nonzero().get() {
                found.push(stat);
            } else {
                by_parent.entry(stat.parent).or_default().push(stat);
            }
        }
        let mut at = 0;
        while let Some(stat) = found.get(at) {
            let children = by_parent.remove(&stat.pid).unwrap_or_default();
            found.extend(children);
            at += 1;
        }
        found
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Stat {
    pid: i32,
    parent: i32,
    /// User and system time of it and of its ended children.
    ticks: u64,
}

fn all() -> Vec<Stat> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        // A process that has ended in between no longer has a file.
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok())
        .filter_map(|text| parse(&text))
        .collect()
}

/// Reads `/proc/PID/stat` (proc_pid_stat(5)); the name in brackets may itself contain brackets and spaces.
fn parse(text: &str) -> Option<Stat> {
    let (head, tail) = text.rsplit_once(')')?;
    let pid = head.split_once(' ')?.0.parse().ok()?;
    let fields: Vec<&str> = tail.split_whitespace().collect();
    let parent = fields.get(1)?.parse().ok()?;
    let ticks = fields
        .get(11..15)?
        .iter()
        .map(|ticks| ticks.parse::<u64>().unwrap_or_default())
        .sum();
    Some(Stat { pid, parent, ticks })
}

fn resident_kib(pid: i32) -> Option<f64> {
    let status = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let text = "42 (a) b (c) S 7 42 42 0 -1 0 0 0 0 0 10 20 3 4 20 0 1 0 5";
        assert_eq!(
            parse(text),
            Some(Stat {
                pid: 42,
                parent: 7,
                ticks: 37
            })
        );
    }

    #[tokio::test]
    async fn a_child_is_seen_with_its_children_and_stops_when_asked() {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & wait"]);
        let process = Process::start(command, directory.path().join("log")).unwrap();
        while process.tree().len() < 2 {
            tokio::task::yield_now().await;
        }
        let sleeper = process.tree()[1].pid;
        assert!(process.resident_mib() > 0.0);
        assert!(!process.stop().await.unwrap().success(), "sh ends by the signal");
        let _ = kill_process(Pid::from_raw(sleeper).unwrap(), Signal::TERM);
    }
}
