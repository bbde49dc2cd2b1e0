//! What gavel adds to a step of a planning session beside the model and the tool, on each database.
//!
//! A step is three model calls and one tool call. Its time is that from its first model call to the first one of the
//! next step; the time in which a request was with the model or the tool is taken out. The bare client sends the very
//! requests that gavel sent, one after another, and does nothing else.

mod commits;
mod service;
mod stand_in;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::commits::Commits;
use self::service::Service;
use self::stand_in::{Kind, Seen, StandIn};
use super::rig::Rig;
use crate::client::Connection;
use crate::loopback::{Loopback, listen};
use crate::report::{Figure, Target};
use crate::serve::serve;
use crate::stats;

const MODEL: Duration = Duration::from_millis(20);
const TOOL: Duration = Duration::from_millis(5);

/// The kinds of the requests of a step, in order.
const STEP: [Kind; 4] = [Kind::Reason, Kind::Act, Kind::Tool, Kind::Reflect];

/// One pass: milliseconds that were added to each step.
#[derive(Default)]
struct Pass {
    added_ms: Vec<f64>,
    steps: usize,
}

impl Pass {
    fn add(&mut self, seen: &[Seen]) -> anyhow::Result<()> {
        self.added_ms.extend(added(seen)?);
        self.steps += seen.len() / STEP.len();
        stats::sort(&mut self.added_ms);
        Ok(())
    }

    fn percentile(&self, share: f64) -> f64 {
        stats::percentile(&self.added_ms, share)
    }
}

pub(super) async fn measure(rig: &mut Rig) -> anyhow::Result<()> {
    let tasks = TaskTracker::new();
    let stop = CancellationToken::new();
    let (listener, at) = listen(0)?;
    let upstream = Arc::new(StandIn::new(MODEL, TOOL));
    let answering = Arc::clone(&upstream);
    tasks.spawn(serve(listener, stop.clone(), move |request| {
        let answering = Arc::clone(&answering);
        async move { answering.answer(request).await }
    }));
    on(rig, None, &upstream, at).await?;
    match rig.setting.postgres.clone() {
        Some(url) => on(rig, Some(&url), &upstream, at).await?,
        None => eprintln!("steps on PostgreSQL: not measured without --postgres"),
    }
    stop.cancel();
    tasks.close();
    tasks.wait().await;
    Ok(())
}

/// Measures on a new SQLite file, or on the PostgreSQL database at a URL.
async fn on(rig: &mut Rig, postgres: Option<&str>, upstream: &StandIn, at: Loopback) -> anyhow::Result<()> {
    let (steps, sessions) = (rig.pace.steps, rig.pace.sessions);
    let name = postgres.map_or("SQLite", |_| "PostgreSQL");
    rig.report
        .phase(&format!("steps of planning sessions on {name}, {steps} in a session"));
    let directory = tempfile::Builder::new().tempdir_in(&rig.setting.directory)?.keep();
    let file = directory.join("data.db");
    let database = match postgres {
        Some(url) => url.to_owned(),
        None => format!("sqlite://{}", file.display()),
    };
    let service = Service::start(&rig.setting.gavel, directory, &database, at, steps).await?;
    upstream.begin(steps.min(10));
    service.work().await.context("the warm-up")?;
    let commits = match postgres {
        Some(url) => Commits::of_postgres(url).await?,
        None => Commits::of_sqlite(file)?,
    };
    let (mut gavel, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..rig.pace.passes {
        let (mut worked, mut replayed) = (Pass::default(), Pass::default());
        for _ in 0..sessions {
            upstream.begin(steps);
            service.work().await?;
            let seen = of_steps(upstream.begin(steps));
            ensure!(
                seen.len() == steps as usize * STEP.len(),
                "{} requests in {steps} steps",
                seen.len()
            );
            worked.add(&seen)?;
            replay(&seen, at).await?;
            replayed.add(&of_steps(upstream.begin(steps)))?;
        }
        gavel.push(worked);
        bare.push(replayed);
    }
    let committed = commits.since().await?;
    service.stop().await?;
    for (what, share) in [("added to a step, p50", 0.5), ("added to a step, p99", 0.99)] {
        let figures = |passes: &[Pass]| passes.iter().map(|pass| pass.percentile(share)).collect();
        rig.report.add(Figure {
            what: what.into(),
            unit: "ms",
            gavel: figures(&gavel),
            bare: figures(&bare),
            target: Target::None,
        });
    }
    let steps: usize = gavel.iter().map(|pass| pass.steps).sum();
    rig.report.add(Figure {
        what: commits.what().into(),
        unit: "",
        gavel: vec![committed as f64 / steps as f64],
        bare: Vec::new(),
        target: Target::None,
    });
    Ok(())
}

fn of_steps(mut seen: Vec<Seen>) -> Vec<Seen> {
    seen.retain(|one| one.kind != Kind::Other);
    seen.sort_by_key(|one| one.began);
    seen
}

/// The milliseconds of each step but the last in which its request was neither with the model nor with the tool.
fn added(seen: &[Seen]) -> anyhow::Result<Vec<f64>> {
    let steps: Vec<_> = seen.chunks(STEP.len()).collect();
    for step in &steps {
        let kinds: Vec<_> = step.iter().map(|one| one.kind).collect();
        ensure!(kinds == STEP, "not the requests of a step: {kinds:?}");
    }
    let pairs = steps.windows(2).filter_map(|pair| Some((pair[0], pair[1].first()?)));
    Ok(pairs
        .filter_map(|(step, next)| {
            let whole = next.began.duration_since(step.first()?.began);
            let outside: Duration = step.iter().map(|one| one.ended.duration_since(one.began)).sum();
            Some(whole.saturating_sub(outside).as_secs_f64() * 1000.0)
        })
        .collect())
}

/// Sends the same requests again, one after another, over one connection to the model and one to the tools.
async fn replay(seen: &[Seen], at: Loopback) -> anyhow::Result<()> {
    let (mut model, mut tools) = (Connection::open(at).await?, Connection::open(at).await?);
    for one in seen {
        let connection = if one.kind == Kind::Tool { &mut tools } else { &mut model };
        let (status, _) = connection.post(&one.uri, &[], one.body.clone()).await?;
        ensure!(status.is_success(), "{}: {status}", one.uri);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use bytes::Bytes;
    use hyper::Uri;

    use super::*;

    /// Model and tool time are no part of what is added.
    #[test]
    fn what_is_added_is_the_time_between_the_calls() {
        let start = Instant::now();
        let one = |kind, began: u64, ended: u64| Seen {
            kind,
            uri: Uri::from_static("/"),
            body: Bytes::new(),
            began: start + Duration::from_millis(began),
            ended: start + Duration::from_millis(ended),
        };
        let step = |at: u64| {
            [
                one(Kind::Reason, at, at + 20),
                one(Kind::Act, at + 21, at + 41),
                one(Kind::Tool, at + 43, at + 48),
                one(Kind::Reflect, at + 51, at + 71),
            ]
        };
        let seen = [step(0), step(75)].concat();
        assert_eq!(added(&seen).unwrap(), [10.0]);
        assert!(added(&seen[1..]).is_err());
    }
}
