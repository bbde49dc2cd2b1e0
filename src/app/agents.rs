//! The agents of a configuration: this module finds their files, the domain checks the content.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use tokio_util::sync::CancellationToken;

use super::Work;
use crate::config::{Config, FileError};
use crate::domain::definition::{Checked, Form, MAX_BYTES, ReadError, SchemaSource, Source, answerer, check};
use crate::surfaces::definitions::FileAgents;

/// Interval between two checks of the files.
const LOOK: Duration = Duration::from_secs(1);

/// The file-based agents of the service, replaced when the files change.
#[derive(Default)]
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
    pub(super) fn read(config: &Config, work: Work) -> Result<Self, FileError> {
        if work.reads() {
            return Ok(Self::default());
        }
        let directory = directory(config);
        let must_be_right = work == Work::Serve && config.agents.is_some();
        let stamp = directory.as_deref().and_then(stamp);
        let loaded = match agents(config) {
            Ok(loaded) => loaded,
            Err(error) => {
                let place = directory.iter().map(|path| path.display().to_string()).collect();
                let error = format!("the agents of {place} cannot be read: {error}");
                if must_be_right {
                    return Err(FileError(error));
                }
                tracing::warn!("{error}; no agents are loaded");
                Loaded {
                    place,
                    ..Loaded::default()
                }
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
        if work == Work::Serve
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
            let (directory, before) = (directory.clone(), known.clone());
            let look = tokio::task::spawn_blocking(move || {
                let now = stamp(&directory);
                (now != before).then(|| (now, agents_in(&directory, None)))
            });
            let loaded = match look.await {
                Ok(None) => continue,
                Ok(Some((now, loaded))) => {
                    known = now;
                    loaded
                }
                Err(error) => Err(error.into()),
            };
            match loaded {
                Ok(loaded) if loaded.checked.errors.is_empty() => {
                    let generation = self.agents.load().generation + 1;
                    tracing::info!(agents = loaded.checked.agents.len(), "the agents were reloaded");
                    self.agents.store(Arc::new(of(loaded, generation)));
                }
                Ok(loaded) => tracing::error!(
                    "the changed agents are invalid; the former definitions remain in use:\n{}",
                    lines(&loaded)
                ),
                Err(error) => {
                    tracing::error!(%error, "the agents cannot be read; the former definitions remain in use")
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

/// The directory that is read when none is named.
const DEFAULT_DIRECTORY: &str = "agents";

/// Subdirectory with the named schemas.
const SCHEMAS: &str = "schemas";

/// One byte more than allowed, so that a file that is too long is detected.
const MOST_BYTES: u64 = MAX_BYTES as u64 + 1;

/// The built-in definitions: file and text.
const BUILT_IN: &[(&str, &str)] = &[
    (
        "codebase_investigator.md",
        include_str!("../../agents/codebase_investigator.md"),
    ),
    ("day_planner.md", include_str!("../../agents/day_planner.md")),
    ("docs_checker.md", include_str!("../../agents/docs_checker.md")),
    ("planner.md", include_str!("../../agents/planner.md")),
    ("task_worker.md", include_str!("../../agents/task_worker.md")),
    ("workspace.md", include_str!("../../agents/workspace.md")),
];

/// The built-in schemas: name and text.
const BUILT_IN_SCHEMAS: &[(&str, &str)] = &[
    (
        "CodebaseInvestigationReportSchema",
        include_str!("../../agents/schemas/CodebaseInvestigationReportSchema.json"),
    ),
    ("PlanSchema", include_str!("../../agents/schemas/PlanSchema.json")),
];

/// The agents of one directory, or the built-in ones.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The source of the agents, for messages.
    pub place: String,
    /// Definitions found, valid or invalid.
    pub files: Vec<String>,
    /// The schemas that the definitions may name.
    pub schemas: Vec<SchemaSource>,
    /// The checked definitions, with errors and warnings.
    pub checked: Checked,
}

/// The agents of a configuration: from the named directory, from `agents` if it exists, else the built-in ones.
///
/// # Errors
/// The directory cannot be listed. Errors in the definitions are part of the result.
pub fn agents(config: &Config) -> io::Result<Loaded> {
    directory(config).map_or_else(|| Ok(built_in()), |directory| agents_in(&directory, None))
}

/// The named directory, or `agents` if it exists.
fn directory(config: &Config) -> Option<PathBuf> {
    let default = || Some(PathBuf::from(DEFAULT_DIRECTORY)).filter(|directory| directory.is_dir());
    config.agents.clone().or_else(default)
}

/// The agents of a directory, and optionally one of its files that would otherwise be ignored (`also`). They may also
/// name the built-in schemas; a schema of the directory takes precedence over a built-in one of the same name.
///
/// Ignores hidden files, files that begin with `_`, `README.md`, files with another extension, and subdirectories.
///
/// # Errors
/// As [`agents`].
pub fn agents_in(directory: &Path, also: Option<&Path>) -> io::Result<Loaded> {
    let mut unreadable = Vec::new();
    let mut sources = Vec::new();
    for path in files(directory)? {
        let is_named = also.is_some_and(|also| also.file_name() == path.file_name());
        if let Some(form) = Form::of_path(&path).filter(|_| is_named || is_definition(&path)) {
            let file = path.display().to_string();
            let read = read(&path, &mut unreadable);
            sources.extend(read.map(|bytes| Source { file, form, bytes }));
        }
    }
    let mut schemas = Vec::new();
    let schema_directory = directory.join(SCHEMAS);
    if schema_directory.is_dir() {
        for path in files(&schema_directory)? {
            if let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".json")) {
                let (name, file) = (name.to_owned(), path.display().to_string());
                let read = read(&path, &mut unreadable);
                schemas.extend(read.map(|bytes| SchemaSource { name, file, bytes }));
            }
        }
    }
    let own: BTreeSet<String> = schemas.iter().map(|schema| schema.name.clone()).collect();
    schemas.extend(built_in_schemas().filter(|schema| !own.contains(&schema.name)));
    let mut checked = check(&sources, &schemas);
    let mut files: Vec<_> = sources.into_iter().map(|source| source.file).collect();
    files.extend(unreadable.iter().map(|error| error.file.clone()));
    checked.errors.splice(0..0, unreadable);
    Ok(Loaded {
        place: directory.display().to_string(),
        files,
        schemas,
        checked,
    })
}

/// The built-in agents.
fn built_in() -> Loaded {
    let sources: Vec<_> = BUILT_IN
        .iter()
        .map(|(file, text)| Source {
            file: format!("{file} (built in)"),
            form: Form::Markdown,
            bytes: text.as_bytes().to_vec(),
        })
        .collect();
    let schemas: Vec<_> = built_in_schemas().collect();
    Loaded {
        place: "built in".to_owned(),
        files: sources.iter().map(|source| source.file.clone()).collect(),
        checked: check(&sources, &schemas),
        schemas,
    }
}

/// The built-in schemas; any definition may name them.
fn built_in_schemas() -> impl Iterator<Item = SchemaSource> {
    BUILT_IN_SCHEMAS.iter().map(|(name, text)| SchemaSource {
        name: (*name).to_owned(),
        file: format!("{SCHEMAS}/{name}.json (built in)"),
        bytes: text.as_bytes().to_vec(),
    })
}

/// The files of a directory, without subdirectories, sorted by name.
fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    // The parent of a bare file name is the empty path.
    let listed = if directory.as_os_str().is_empty() {
        Path::new(".")
    } else {
        directory
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(listed)? {
        let path = directory.join(entry?.file_name());
        if !path.is_dir() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn is_definition(path: &Path) -> bool {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    !name.starts_with(['.', '_']) && !name.eq_ignore_ascii_case("README.md")
}

fn read(path: &Path, errors: &mut Vec<ReadError>) -> Option<Vec<u8>> {
    let read = || {
        // Reading a pipe would block until its other end writes.
        if !fs::metadata(path)?.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        let mut bytes = Vec::new();
        File::open(path)?.take(MOST_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    match read() {
        Ok(bytes) => Some(bytes),
        Err(error) => {
            errors.push(ReadError {
                file: path.display().to_string(),
                line: None,
                field: "the file".to_owned(),
                found: format!("that it cannot be read: {error}"),
                allowed: "a file that gavel may read".to_owned(),
            });
            None
        }
    }
}
