//! Resident memory of the process and its children.

use std::time::Duration;

use super::rig::{Measured, Rig, Running, figures};
use crate::contender::Asks;
use crate::load::Load;
use crate::report::{Figure, Target};

/// Time after a start for the release of memory.
const SETTLE: Duration = Duration::from_secs(1);

const LATENCY: Duration = Duration::from_millis(500);

/// Before any load except the first response.
pub(super) async fn idle(rig: &mut Rig, both: &[Running; 2]) -> anyhow::Result<()> {
    rig.report.phase("memory");
    tokio::time::sleep(SETTLE).await;
    let [gavel, bare] = both
        .each_ref()
        .map(|running| vec![running.contender.process.resident_mib()]);
    rig.report.add(Figure {
        what: "memory, idle".into(),
        unit: "MiB",
        gavel,
        bare,
        target: Target::AtMost(50.0),
    });
    Ok(())
}

/// The maximum while a thousand requests are in flight.
pub(super) async fn in_flight(rig: &mut Rig, both: &mut [Running; 2]) -> anyhow::Result<()> {
    rig.report.phase("memory: 1,000 connections, 500 ms a model call");
    let load = Load {
        asks: Asks::Decision,
        connections: 1000,
        duration: rig.pace.window,
        requests: 100_000,
    };
    let [gavel, bare] = rig
        .in_turns(both, load, LATENCY, Load { requests: 1000, ..load })
        .await?;
    let peak = |measured: &Measured| measured.peak_mib;
    rig.report.add(Figure {
        what: "memory, 1,000 in flight".into(),
        unit: "MiB",
        gavel: figures(&gavel, peak),
        bare: figures(&bare, peak),
        target: Target::AtMost(250.0),
    });
    Ok(())
}
