//! The agents of a configuration: this module finds their files, the domain checks the content.

mod load;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use tokio_util::sync::CancellationToken;

use self::load::{DEFAULT_DIRECTORY, SCHEMAS, files};
pub use self::load::{Loaded, agents, agents_in};
use crate::config::{Config, FileError};
use crate::domain::definition::answerer;
use crate::surfaces::definitions::FileAgents;

/// Interval between two checks of the files.
const LOOK: Duration = Duration::from_secs(1);

/// Why the agents are read, which decides what an error in them does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To serve them. An error in an explicitly named directory prevents the start: the operator wants all of its
    /// agents.
    Serving,
    /// For a command that concerns something else, or a single agent.
    OneCommand,
    /// Not at all: for a command that only reads records.
    Records,
}

/// The file-based agents of the service, replaced when the files change.
pub(super) struct Files {
    directory: Option<PathBuf>,
    /// The stamps of the files just before they were read.
    stamp: Option<Vec<Stamp>>,
    pub(super) agents: Arc<ArcSwap<FileAgents>>,
}

impl Files {
    /// Reads the agents. Errors that do not prevent the start are logged; the valid agents that need no invalid one are
    /// loaded.
    ///
    /// # Errors
    /// The directory is named and served, and cannot be listed or has errors; all errors are reported.
    pub(super) fn read(config: &Config, purpose: Purpose) -> Result<Self, FileError> {
        if purpose == Purpose::Records {
            return Ok(Self {
                directory: None,
                stamp: None,
                agents: Arc::default(),
            });
        }
        let directory = match &config.agents {
            Some(directory) => Some(directory.clone()),
            None => Some(PathBuf::from(DEFAULT_DIRECTORY)).filter(|directory| directory.is_dir()),
        };
        let must_be_right = purpose == Purpose::Serving && config.agents.is_some();
        let stamp = directory.as_deref().and_then(stamp);
        let loaded = match agents(config) {
            Ok(loaded) => loaded,
            Err(error) => {
                let place = directory
                    .as_deref()
                    .unwrap_or(Path::new(DEFAULT_DIRECTORY))
                    .display()
                    .to_string();
                let error = format!("the agents of {place} cannot be read: {error}");
                if must_be_right {
                    return Err(FileError(error));
                }
                tracing::warn!("{error}; no agents are loaded");
                Loaded::none(place)
            }
        };
        if !loaded.checked.errors.is_empty() {
            let lines = lines(&loaded);
            if must_be_right {
                return Err(FileError(format!(
                    "the agents are invalid (`gavel agents validate` checks them):\n{lines}"
                )));
            }
            tracing::warn!(
                "some agents are invalid; they and the agents that need them are left out (`gavel agents validate` checks them):\n{lines}"
            );
        }
        for warning in &loaded.checked.warnings {
            tracing::warn!("{warning}");
        }
        if purpose == Purpose::Serving
            && let Err(why) = answerer(&loaded.checked.agents, &config.runs.threads.agent)
        {
            tracing::warn!(
                "threads have no agent yet (runs.agent): {why}; messages are answered with 503 until the agent is created through the API"
            );
        }
        let agents = Arc::new(ArcSwap::from_pointee(of(loaded, 1)));
        Ok(Self {
            directory,
            stamp,
            agents,
        })
    }

    /// Reloads the agents whenever the files change. If the changed files are invalid, logs the errors once and keeps
    /// the former agents.
    pub(super) async fn follow(self, stop: CancellationToken) {
        let Some(directory) = self.directory else { return };
        let mut ticks = tokio::time::interval(LOOK);
        let mut known = self.stamp;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = stop.cancelled() => return,
            }
            let looked_at = directory.clone();
            let now = match tokio::task::spawn_blocking(move || stamp(&looked_at)).await {
                Ok(now) => now,
                Err(error) => {
                    tracing::error!(%error, "watching the directory of agents failed");
                    continue;
                }
            };
            if now == known {
                continue;
            }
            known = now;
            let read = directory.clone();
            match tokio::task::spawn_blocking(move || agents_in(&read, None)).await {
                Ok(Ok(loaded)) if loaded.checked.errors.is_empty() => {
                    let generation = self.agents.load().generation + 1;
                    tracing::info!(agents = loaded.checked.agents.len(), "the agents were reloaded");
                    self.agents.store(Arc::new(of(loaded, generation)));
                }
                Ok(Ok(loaded)) => tracing::error!(
                    "the changed agents are invalid; the former definitions remain in use:\n{}",
                    lines(&loaded)
                ),
                Ok(Err(error)) => {
                    tracing::error!(%error, "the agents cannot be read; the former definitions remain in use")
                }
                Err(error) => {
                    tracing::error!(%error, "reading the agents failed; the former definitions remain in use")
                }
            }
        }
    }
}

fn of(loaded: Loaded, generation: u64) -> FileAgents {
    FileAgents {
        place: loaded.place,
        agents: loaded.checked.agents,
        schemas: loaded.schemas,
        generation,
    }
}

fn lines(loaded: &Loaded) -> String {
    let lines: Vec<_> = loaded.checked.errors.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// Detects a change of a file: its path, size and modification time.
type Stamp = (PathBuf, u64, Option<SystemTime>);

/// The stamps of all files in a directory; `None` if it cannot be listed, which differs from having no files. Reading
/// it returns the reason.
fn stamp(directory: &Path) -> Option<Vec<Stamp>> {
    let mut all = files(directory).ok()?;
    all.extend(files(&directory.join(SCHEMAS)).unwrap_or_default());
    let stamped = all.into_iter().map(|path| {
        let about = fs::metadata(&path).ok();
        let size = about.as_ref().map_or(0, fs::Metadata::len);
        let changed = about.and_then(|about| about.modified().ok());
        (path, size, changed)
    });
    Some(stamped.collect())
}
