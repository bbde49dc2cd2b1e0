//! Many requests at once, each waiting for a slow model.

use std::time::Duration;

use super::rig::{Measured, Rig, Running, figures};
use crate::contender::Asks;
use crate::load::Load;
use crate::report::{Figure, Target};

const LATENCY: Duration = Duration::from_millis(300);

pub(super) async fn measure(rig: &mut Rig, both: &mut [Running; 2]) -> anyhow::Result<()> {
    rig.report.phase("many at once: 256 connections, 300 ms a model call");
    let load = Load {
        asks: Asks::Decision,
        connections: 256,
        duration: rig.pace.window,
        requests: 100_000,
    };
    let warm_up = Load {
        duration: Duration::from_millis(700),
        ..load
    };
    let [gavel, bare] = rig.in_turns(both, load, LATENCY, warm_up).await?;
    let p99 = |measured: &Measured| measured.outcome.percentile_ms(0.99);
    rig.report.add(Figure {
        what: "p99".into(),
        unit: "ms",
        gavel: figures(&gavel, p99),
        bare: figures(&bare, p99),
        target: Target::AtMostTimesBare(1.2),
    });
    let errors = |measured: &Measured| measured.outcome.errors as f64;
    rig.report.add(Figure {
        what: "errors".into(),
        unit: "",
        gavel: figures(&gavel, errors),
        bare: figures(&bare, errors),
        target: Target::AtMost(0.0),
    });
    Ok(())
}
