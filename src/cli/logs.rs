//! The log and trace settings of a command.

use crate::config::{LogFormat, Resolved};
use crate::telemetry::{Collector, Lines};

/// The settings that telemetry starts with.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) filter: String,
    pub(super) lines: Lines,
    pub(super) collector: Option<Collector>,
}

/// How much a command logs by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Voice {
    /// Like a service, in machine-readable lines.
    Service,
    /// Only warnings and errors.
    Trouble,
    /// Nothing: its answer already reports everything.
    None,
}

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

pub(super) fn settings(resolved: &Resolved, voice: Voice) -> Settings {
    let (log, traces) = (&resolved.config.log, &resolved.config.traces);
    let asked = resolved
        .origins
        .iter()
        .any(|effective| effective.key == "log.filter" && !effective.origin.is_default());
    Settings {
        filter: match voice {
            _ if asked => log.filter.clone(),
            Voice::Service => log.filter.clone(),
            Voice::Trouble => QUIET.to_owned(),
            Voice::None => "off".to_owned(),
        },
        lines: match log.format {
            // A command's user reads text, wherever it goes; a service's lines go to machines.
            LogFormat::Auto if voice != Voice::Service => Lines::Text,
            LogFormat::Auto => Lines::Auto,
            LogFormat::Text => Lines::Text,
            LogFormat::Json => Lines::Json,
        },
        collector: traces.as_ref().map(|traces| Collector {
            url: traces.traces_url.clone(),
            headers: traces.headers.clone(),
            service_name: traces.service_name.clone(),
        }),
    }
}
