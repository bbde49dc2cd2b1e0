//! Traverses directories in the order of their paths. Links are not followed; `.git` and the paths that [`Ignores`]
//! names are left out.

use std::ffi::OsString;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use cap_std::fs::Dir;
use gavel_mcp_base::ToolError;

use crate::budget::Budget;
use crate::error;
use crate::ignores::Ignores;
use crate::path::InnerPath;
use crate::root::Root;

const MAX_DEPTH: usize = 64;
const MAX_ENTRIES: usize = 500_000;

/// A file found by the walk.
#[derive(Debug)]
pub(crate) struct Found<'a> {
    pub(crate) directory: &'a Dir,
    pub(crate) name: &'a Path,
    /// Relative to the root.
    pub(crate) path: &'a Path,
}

/// The result of a walk.
#[derive(Debug, Default)]
pub(crate) struct Walked {
    /// Directories that could not be read.
    pub(crate) unreadable: usize,
    /// Why the walk is incomplete.
    pub(crate) incomplete: Option<String>,
}

/// Why a walk ends early, as text for the answer.
pub(crate) type Enough = ControlFlow<String>;

/// Passes every file in `start` to `visit`.
pub(crate) fn walk(
    root: &Root,
    start: &InnerPath,
    hidden: bool,
    budget: &Budget,
    visit: &mut dyn FnMut(Found<'_>) -> Enough,
) -> Result<Walked, ToolError> {
    let directory = root.directory(start)?;
    let mut walk = Walk {
        hidden,
        budget,
        ignores: Ignores::default(),
        entries: 0,
        walked: Walked::default(),
        visit,
    };
    for above in above(start) {
        walk.ignores.enter(&root.directory(&above)?, above.as_path());
    }
    // A caller gets an error if the requested directory itself cannot be read.
    directory
        .entries()
        .map_err(|error| error::of(&error, &start.to_string()))?;
    if let ControlFlow::Break(why) = walk.directory(&directory, start.as_path(), 0) {
        walk.walked.incomplete = Some(why);
    }
    Ok(walk.walked)
}

/// The directories from the root to the parent of `path`.
fn above(path: &InnerPath) -> Vec<InnerPath> {
    let mut folders: Vec<_> = path.as_path().ancestors().skip(1).map(InnerPath::from_inside).collect();
    folders.reverse();
    folders
}

struct Walk<'a> {
    hidden: bool,
    budget: &'a Budget,
    ignores: Ignores,
    entries: usize,
    walked: Walked,
    visit: &'a mut dyn FnMut(Found<'_>) -> Enough,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Directory,
}

impl Walk<'_> {
    fn directory(&mut self, directory: &Dir, path: &Path, depth: usize) -> Enough {
        self.ignores.enter(directory, path);
        let walked = self.entries_of(directory, path, depth);
        self.ignores.leave();
        walked
    }

    fn entries_of(&mut self, directory: &Dir, path: &Path, depth: usize) -> Enough {
        let Some(names) = self.names(directory)? else {
            self.walked.unreadable += 1;
            return ControlFlow::Continue(());
        };
        for name in names {
            self.check()?;
            let Some(kind) = kind(directory, &name) else {
                continue;
            };
            let path = path.join(&name);
            if self.ignores.leaves_out(&path, kind == Kind::Directory) {
                continue;
            }
            let name = Path::new(&name);
            match kind {
                Kind::File => (self.visit)(Found {
                    directory,
                    name,
                    path: &path,
                })?,
                Kind::Directory if depth == MAX_DEPTH => {
                    self.walked.incomplete = Some(format!("Folders more than {MAX_DEPTH} deep were left out."));
                }
                Kind::Directory => match directory.open_dir(name) {
                    Ok(inner) => self.directory(&inner, &path, depth + 1)?,
                    Err(error) => self.count(&error),
                },
            }
        }
        ControlFlow::Continue(())
    }

    /// The names in a directory, sorted; `None` if it cannot be read.
    fn names(&mut self, directory: &Dir) -> ControlFlow<String, Option<Vec<OsString>>> {
        let Ok(entries) = directory.entries() else {
            return ControlFlow::Continue(None);
        };
        let mut names = Vec::new();
        for entry in entries {
            self.check()?;
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                return ControlFlow::Break(format!(
                    "Stopped after {MAX_ENTRIES} entries of folders. Give path, to look at less."
                ));
            }
            let Ok(entry) = entry else {
                return ControlFlow::Continue(None);
            };
            let name = entry.file_name();
            let is_hidden = name.as_encoded_bytes().starts_with(b".");
            if name != ".git" && (self.hidden || !is_hidden) {
                names.push(name);
            }
        }
        names.sort_unstable();
        ControlFlow::Continue(Some(names))
    }

    fn check(&self) -> Enough {
        if self.budget.is_exhausted() {
            return ControlFlow::Break("Stopped since it took too long. Give path, to look at less.".to_owned());
        }
        ControlFlow::Continue(())
    }

    /// An entry that was removed in the meantime is not counted.
    fn count(&mut self, error: &io::Error) {
        if error.kind() != io::ErrorKind::NotFound {
            self.walked.unreadable += 1;
        }
    }
}

/// `None` for links, for other kinds, and for removed entries.
fn kind(directory: &Dir, name: &OsString) -> Option<Kind> {
    let metadata = directory.symlink_metadata(name).ok()?;
    if metadata.is_file() {
        Some(Kind::File)
    } else {
        metadata.is_dir().then_some(Kind::Directory)
    }
}
