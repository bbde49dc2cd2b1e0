//! Combines the options; rejects those that are invalid.

mod search;

use std::time::Duration;

use gavel_mcp_base::settings;

use crate::args::Args;
use crate::guard::{Guard, Hosts, private_hosts};
use crate::search::Service;

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
        let hosts = |option| settings::given(option).unwrap_or_default();
        let guard = Guard {
            allow: Hosts::parse("WEB_ALLOW", hosts(&args.allow))?,
            deny: Hosts::parse("WEB_DENY", hosts(&args.deny))?,
            private: private_hosts("WEB_ALLOW_PRIVATE", hosts(&args.allow_private))?,
        };
        let robots = [("respect", true), ("ignore", false)];
        let timeout = settings::number("WEB_TIMEOUT_SECONDS", &args.timeout_seconds, 30, 1..=120)?;
        Ok(Self {
            guard,
            respects_robots: settings::choice("WEB_ROBOTS", &args.robots, &robots)?,
            timeout: Duration::from_secs(timeout),
            search: search::service(&args)?,
        })
    }
}
