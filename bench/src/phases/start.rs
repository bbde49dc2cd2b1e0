//! From the start of the process to the first valid response, on an empty database.

use std::time::Duration;

use super::rig::Rig;
use crate::contender::{Contender, Who};
use crate::report::{Figure, Target};

pub(super) async fn measure(rig: &mut Rig) -> anyhow::Result<()> {
    rig.report.phase("start");
    rig.upstream.set_latency(Duration::ZERO);
    let mut took = [Vec::new(), Vec::new()];
    for _ in 0..rig.pace.starts {
        for (n, who) in Who::BOTH.into_iter().enumerate() {
            let contender = Contender::start(who, &rig.setting, &rig.upstream).await?;
            took[n].push(contender.started_in.as_secs_f64() * 1000.0);
            contender.stop().await?;
        }
    }
    let [gavel, bare] = took;
    rig.report.add(Figure {
        what: "start to first answer".into(),
        unit: "ms",
        gavel,
        bare,
        target: Target::AtMost(300.0),
    });
    Ok(())
}
