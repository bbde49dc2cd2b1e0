//! Which logs and traces a verb makes.

use crate::config::{LogFormat, Resolved};
use crate::telemetry::{Collector, Lines};

/// What telemetry is started with.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) filter: String,
    pub(super) lines: Lines,
    pub(super) collector: Option<Collector>,
}

/// Verbs that are not a service speak up only about trouble, unless they are asked for more.
const QUIET: &str = "warn";

impl Default for Settings {
    fn default() -> Self {
        Self {
            filter: QUIET.to_owned(),
            lines: Lines::Text,
            collector: None,
        }
    }
}

pub(super) fn settings(resolved: &Resolved, service: bool) -> Settings {
    let logs = &resolved.config.logs;
    let asked = resolved
        .origins
        .iter()
        .any(|effective| effective.key == "log.filter" && !effective.origin.is_default());
    Settings {
        filter: if service || asked {
            logs.filter.clone()
        } else {
            QUIET.to_owned()
        },
        lines: match logs.format {
            // A person at a command reads text, wherever it goes; a service's lines go to machines.
            LogFormat::Auto if !service => Lines::Text,
            LogFormat::Auto => Lines::Auto,
            LogFormat::Text => Lines::Text,
            LogFormat::Json => Lines::Json,
        },
        collector: logs.traces.as_ref().map(|traces| Collector {
            url: traces.traces_url.clone(),
            headers: traces.headers.clone(),
            service_name: traces.service_name.clone(),
        }),
    }
}
