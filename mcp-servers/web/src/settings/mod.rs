//! Combines the options; rejects those that are invalid.

mod search;

use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::{Context, bail};

use crate::args::Args;
use crate::guard::{Guard, Hosts, private_hosts};
use crate::search::Service;

const TIMEOUT: u64 = 30;
const TIMEOUTS: RangeInclusive<u64> = 1..=120;

/// Consistent settings.
#[derive(Debug, Clone)]
pub struct Settings {
    pub(crate) guard: Guard,
    pub(crate) respects_robots: bool,
    /// How long one call may take.
    pub(crate) timeout: Duration,
    /// Without it, there is no search.
    pub(crate) search: Option<Service>,
}

impl Settings {
    /// What the search asks, such as `Custom Search`; `None` if there is no search.
    #[must_use]
    pub fn search(&self) -> Option<&'static str> {
        Some(match self.search.as_ref()? {
            Service::Gemini(access) => access.name,
            Service::CustomSearch { .. } => "Custom Search",
        })
    }

    /// Whether every host of the public web may be requested.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.guard.allow.is_unlimited()
    }
}

impl TryFrom<Args> for Settings {
    type Error = anyhow::Error;

    fn try_from(args: Args) -> anyhow::Result<Self> {
        let text = |option: &'_ Option<String>| option.clone().unwrap_or_default();
        let guard = Guard {
            allow: Hosts::parse("WEB_ALLOW", &text(&args.allow))?,
            deny: Hosts::parse("WEB_DENY", &text(&args.deny))?,
            private: private_hosts("WEB_ALLOW_PRIVATE", &text(&args.allow_private))?,
        };
        let respects_robots = match &*text(&args.robots) {
            "" | "respect" => true,
            "ignore" => false,
            _ => bail!("WEB_ROBOTS must be respect or ignore"),
        };
        Ok(Self {
            guard,
            respects_robots,
            timeout: timeout(given(args.timeout_seconds.as_deref()))?,
            search: search::service(&args)?,
        })
    }
}

/// An empty setting counts as unset.
fn given(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

fn timeout(text: Option<&str>) -> anyhow::Result<Duration> {
    let Some(text) = text else {
        return Ok(Duration::from_secs(TIMEOUT));
    };
    let seconds = text.parse().ok().filter(|seconds| TIMEOUTS.contains(seconds));
    seconds.map(Duration::from_secs).with_context(|| {
        let (least, most) = (TIMEOUTS.start(), TIMEOUTS.end());
        format!("WEB_TIMEOUT_SECONDS must be a whole number from {least} to {most}")
    })
}
