//! Runs of an agent at the maximum throughput, beside chat decisions: 64 connections, a model that answers at once, one
//! read-only tool.

use std::time::Duration;

use super::rig::{Measured, Rig, Running, figures};
use crate::contender::Asks;
use crate::load::Load;
use crate::report::{Figure, Target};

/// CPU-seconds for 1,000 valid responses.
fn cpu(measured: &Measured) -> f64 {
    measured.cpu / measured.outcome.good().max(1) as f64 * 1000.0
}

pub(super) async fn measure(rig: &mut Rig, gavel: &mut Running) -> anyhow::Result<()> {
    rig.report
        .phase("runs of an agent: 64 connections, 0 ms a model call, one read-only tool");
    let load = |asks| Load {
        asks,
        connections: 64,
        duration: rig.pace.window,
        requests: 500_000,
    };
    let (decision, run) = (load(Asks::Decision), load(Asks::Run));
    for load in [decision, run] {
        let warm_up = Load {
            duration: Duration::from_secs(1),
            ..load
        };
        rig.load(gavel, warm_up, Duration::ZERO).await?;
    }
    let (mut decisions, mut runs) = (Vec::new(), Vec::new());
    for _ in 0..rig.pace.passes {
        decisions.push(rig.load(gavel, decision, Duration::ZERO).await?);
        runs.push(rig.load(gavel, run, Duration::ZERO).await?);
    }
    let mut add = |what: &str, unit, gavel, target| {
        rig.report.add(Figure {
            what: what.into(),
            unit,
            gavel,
            bare: Vec::new(),
            target,
        });
    };
    add(
        "throughput",
        "runs/s",
        figures(&runs, |run| run.outcome.rate()),
        Target::None,
    );
    add("CPU for 1,000 runs", "s", figures(&runs, cpu), Target::None);
    let times = runs
        .iter()
        .zip(&decisions)
        .map(|(run, decision)| cpu(run) / cpu(decision));
    add(
        "CPU of a run, in chat decisions",
        "",
        times.collect(),
        Target::AtMost(3.0),
    );
    add(
        "p99",
        "ms",
        figures(&runs, |run| run.outcome.percentile_ms(0.99)),
        Target::None,
    );
    Ok(())
}
