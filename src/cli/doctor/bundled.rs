//! What the bundled servers act on: the container engine, GitHub, the sandbox of commands, and the search. A server that is
//! off has one line among the servers, which says what it needs.

use super::Findings;
use crate::api::planning::Fitness;
use crate::app::BundledConditions;
use crate::config::Config;
use crate::ports::conditions::Conditions;

pub(super) async fn bundled(config: &Config, findings: &mut Findings) -> anyhow::Result<()> {
    for condition in BundledConditions(config.clone()).look().await {
        let what = format!("{}: {}", condition.of.as_str().replace('_', " "), condition.detail);
        match condition.state {
            Fitness::Good => findings.good(&what)?,
            Fitness::Warning => findings.warn(&what)?,
            Fitness::Error => findings.error(
                &what,
                condition
                    .next
                    .as_deref()
                    .unwrap_or("see docs/how-to/github-and-containers.md"),
            )?,
        }
    }
    Ok(())
}
