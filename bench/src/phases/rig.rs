//! Shared parts of all phases: the stand-ins, both servers, and one way to apply load to one of them.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::Pace;
use crate::contender::{Contender, Setting, Who};
use crate::load::{Load, Outcome, put};
use crate::machine::{busy_seconds, own_seconds};
use crate::report::Report;
use crate::stand_ins::StandIns;

/// The interval of memory samples.
const SAMPLE: Duration = Duration::from_millis(100);

pub(crate) struct Rig {
    pub(crate) setting: Setting,
    pub(crate) upstream: StandIns,
    pub(crate) pace: Pace,
    pub(crate) report: Report,
}

/// One running server, with the number of its valid responses.
pub(super) struct Running {
    pub(super) contender: Contender,
    good: i64,
}

/// The effect of a load on a server.
pub(super) struct Measured {
    pub(super) outcome: Outcome,
    /// CPU-seconds of the server and its children.
    pub(super) cpu: f64,
    /// The maximum memory, in MiB.
    pub(super) peak_mib: f64,
}

impl Rig {
    /// Starts both. They run side by side and are measured in turns, so that a slow minute of the machine affects both.
    pub(super) async fn start_both(&self) -> anyhow::Result<[Running; 2]> {
        let [gavel, bare] = Who::BOTH;
        let start = async |who| {
            let contender = Contender::start(who, &self.setting, &self.upstream).await?;
            anyhow::Ok(Running { contender, good: 1 })
        };
        Ok([start(gavel).await?, start(bare).await?])
    }

    /// Stops both, and checks that every valid response left its rows.
    pub(super) async fn stop_both(&mut self, both: [Running; 2]) -> anyhow::Result<()> {
        for running in both {
            let name = running.contender.who.name();
            let (decisions, calls) = running.contender.rows().context("rows cannot be counted")?;
            ensure!(
                decisions >= running.good && calls >= running.good,
                "{name} gave {} valid responses and has {decisions} decisions and {calls} tool calls in its log",
                running.good
            );
            running.contender.stop().await?;
        }
        Ok(())
    }

    /// Applies `load` to one of them while the model takes `latency` for each call.
    ///
    /// # Errors
    ///
    /// The server ended, or it responded without having called the model twice and the tool once.
    pub(super) async fn load(
        &mut self,
        running: &mut Running,
        load: Load,
        latency: Duration,
    ) -> anyhow::Result<Measured> {
        self.upstream.set_latency(latency);
        let contender = &mut running.contender;
        let name = contender.who.name();
        let seen = self.upstream.seen();
        let (cpu, busy, own, start) = (
            contender.process.cpu_seconds(),
            busy_seconds(),
            own_seconds(),
            Instant::now(),
        );
        let mut peak_mib = 0.0_f64;
        let mut loading = std::pin::pin!(put(load, contender.at));
        let outcome = loop {
            tokio::select! {
                outcome = &mut loading => break outcome,
                () = tokio::time::sleep(SAMPLE) => peak_mib = peak_mib.max(contender.process.resident_mib()),
            }
        };
        contender.process.check_alive().context(name)?;
        let cpu = contender.process.cpu_seconds() - cpu;
        let others = (busy_seconds() - busy - (own_seconds() - own) - cpu) / start.elapsed().as_secs_f64();
        let seen = self.upstream.seen().since(seen);
        let good = outcome.good() as u64;
        ensure!(
            seen.model_calls >= 2 * good && seen.tool_calls >= good,
            "{name} gave {good} valid responses with {} model calls and {} tool calls: it does not do the work",
            seen.model_calls,
            seen.tool_calls
        );
        running.good += i64::try_from(good)?;
        self.report.note(name, &outcome, seen.faults, others.max(0.0));
        Ok(Measured { outcome, cpu, peak_mib })
    }

    /// Measures both in turns, `passes` times, after a warm-up of each; the order changes with every pass.
    pub(super) async fn in_turns(
        &mut self,
        both: &mut [Running; 2],
        load: Load,
        latency: Duration,
        warm_up: Load,
    ) -> anyhow::Result<[Vec<Measured>; 2]> {
        for running in both.iter_mut() {
            self.load(running, warm_up, latency).await?;
        }
        let mut measured = [Vec::new(), Vec::new()];
        for pass in 0..self.pace.passes {
            for turn in 0..2 {
                let n = (usize::from(pass) + turn) % 2;
                measured[n].push(self.load(&mut both[n], load, latency).await?);
            }
        }
        Ok(measured)
    }
}

/// One figure of each pass.
pub(super) fn figures(measured: &[Measured], figure: impl Fn(&Measured) -> f64) -> Vec<f64> {
    measured.iter().map(figure).collect()
}
