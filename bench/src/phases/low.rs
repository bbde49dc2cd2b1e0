//! The time added to one decision at low load: the total time minus that of the two model calls.

use std::time::Duration;

use super::rig::{Measured, Rig, Running, figures};
use crate::contender::Asks;
use crate::load::Load;
use crate::report::{Figure, Target};

const LATENCY: Duration = Duration::from_millis(50);
/// Of the two model calls, which run one after the other.
const MODEL_MS: f64 = 100.0;

pub(super) async fn measure(rig: &mut Rig, both: &mut [Running; 2]) -> anyhow::Result<()> {
    rig.report.phase("low load: 1 connection, 50 ms a model call");
    let one = Load {
        asks: Asks::Decision,
        connections: 1,
        duration: Duration::from_secs(60),
        requests: rig.pace.singles,
    };
    let warm_up = Load { requests: 20, ..one };
    let [gavel, bare] = rig.in_turns(both, one, LATENCY, warm_up).await?;
    for (what, share) in [("added to a decision, p50", 0.5), ("added to a decision, p99", 0.99)] {
        let added = |measured: &Measured| measured.outcome.percentile_ms(share) - MODEL_MS;
        rig.report.add(Figure {
            what: what.into(),
            unit: "ms",
            gavel: figures(&gavel, added),
            bare: figures(&bare, added),
            target: Target::AtMostTimesBare(1.5),
        });
    }
    Ok(())
}
