//! The machine of the figures, and how much other processes used it.

use anyhow::ensure;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;

/// File descriptors that a thousand clients, their upstream calls and their timers need here.
const DESCRIPTORS: u64 = 8192;

/// The machine and the time of the measurement.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) cpus: usize,
    pub(crate) cpu_model: String,
    pub(crate) kernel: String,
    /// Of the last minute, before anything was started.
    pub(crate) load_before: f64,
}

impl Machine {
    pub(crate) fn look() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let cpu_info = read("/proc/cpuinfo");
        let model = cpu_info.lines().find(|line| line.starts_with("model name"));
        Self {
            cpus: std::thread::available_parallelism().map_or(1, Into::into),
            cpu_model: model
                .and_then(|line| line.split_once(':'))
                .map_or_else(|| "unknown".to_owned(), |(_, name)| name.trim().to_owned()),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load_before: read("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|load| load.parse().ok())
                .unwrap_or_default(),
        }
    }
}

/// CPU-seconds that the whole machine has been busy since it started.
pub(crate) fn busy_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks: Vec<f64> = stat
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .filter_map(|ticks| ticks.parse().ok())
        .collect();
    // user, nice, system, idle, iowait, irq, softirq, steal
    [0, 1, 2, 5, 6, 7].iter().filter_map(|&n| ticks.get(n)).sum::<f64>() / 100.0
}

/// CPU-seconds of this process.
pub(crate) fn own_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, tail)| tail);
    let ticks = |n| {
        fields
            .split_whitespace()
            .nth(n)
            .and_then(|ticks| ticks.parse::<f64>().ok())
    };
    (ticks(11).unwrap_or_default() + ticks(12).unwrap_or_default()) / 100.0
}

/// Raises the soft limit of open files, which children inherit.
pub(crate) fn raise_descriptors() -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    ensure!(
        hard >= DESCRIPTORS,
        "a thousand requests in flight need {DESCRIPTORS} open files here, and {hard} are allowed: see ulimit -Hn"
    );
    if limit.current.is_some_and(|soft| soft < DESCRIPTORS) {
        setrlimit(
            Resource::Nofile,
            Rlimit {
                current: Some(DESCRIPTORS),
                maximum: limit.maximum,
            },
        )?;
    }
    Ok(())
}
