//! Maximum throughput: 64 connections and a model that answers at once.

use std::time::Duration;

use super::rig::{Measured, Rig, Running, figures};
use crate::contender::Asks;
use crate::load::Load;
use crate::report::{Figure, Target};

pub(super) async fn measure(rig: &mut Rig, both: &mut [Running; 2]) -> anyhow::Result<()> {
    rig.report.phase("saturation: 64 connections, 0 ms a model call");
    let load = Load {
        asks: Asks::Decision,
        connections: 64,
        duration: rig.pace.window,
        requests: 500_000,
    };
    let warm_up = Load {
        duration: Duration::from_secs(1),
        ..load
    };
    let [gavel, bare] = rig.in_turns(both, load, Duration::ZERO, warm_up).await?;
    let rate = |measured: &Measured| measured.outcome.rate();
    rig.report.add(Figure {
        what: "throughput".into(),
        unit: "decisions/s",
        gavel: figures(&gavel, rate),
        bare: figures(&bare, rate),
        target: Target::AtLeastTimesBare(0.4),
    });
    let cpu = |measured: &Measured| measured.cpu / measured.outcome.good().max(1) as f64 * 1000.0;
    rig.report.add(Figure {
        what: "CPU for 1,000 decisions".into(),
        unit: "s",
        gavel: figures(&gavel, cpu),
        bare: figures(&bare, cpu),
        target: Target::AtMost(0.3),
    });
    let p99 = |measured: &Measured| measured.outcome.percentile_ms(0.99);
    rig.report.add(Figure {
        what: "p99".into(),
        unit: "ms",
        gavel: figures(&gavel, p99),
        bare: figures(&bare, p99),
        target: Target::None,
    });
    Ok(())
}
