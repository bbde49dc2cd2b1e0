//! The log and trace settings of a command.

use crate::config::{LogFormat, Otlp, Resolved};

/// The settings that telemetry starts with.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) filter: String,
    pub(super) format: LogFormat,
    pub(super) collector: Option<Otlp>,
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
            format: LogFormat::Text,
            collector: None,
        }
    }
}

pub(super) fn settings(resolved: &Resolved, voice: Voice) -> Settings {
    let log = &resolved.config.log;
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
        // A command's user reads text, wherever it goes; a service's lines go to machines.
        format: match log.format {
            LogFormat::Auto if voice != Voice::Service => LogFormat::Text,
            format => format,
        },
        collector: resolved.config.traces.clone(),
    }
}
