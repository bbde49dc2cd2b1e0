//! The rules of `.gitignore`, `.ignore` and `.git/info/exclude`, read as in ripgrep with two differences: they also
//! apply without a surrounding repository, and nothing outside the root is read (no global excludes).

use std::io::{self, Read};
use std::path::Path;

use cap_std::fs::Dir;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::root::open_file;

/// Larger than any list that users write by hand.
const MAX_BYTES: u64 = 256 * 1024;

/// The rules from the root down to one directory.
#[derive(Debug, Default)]
pub(crate) struct Ignores(Vec<Level>);

#[derive(Debug)]
struct Level {
    /// `.ignore`, which takes precedence over any `.gitignore`.
    own: Gitignore,
    git: Gitignore,
    /// Where a repository begins, the rules of an outer one end.
    is_repository: bool,
}

impl Ignores {
    /// Adds the rules of `directory`, whose path is `path`.
    pub(crate) fn enter(&mut self, directory: &Dir, path: &Path) {
        self.0.push(Level {
            own: rules(directory, path, &[".ignore"]),
            // Of two rules, the later one wins.
            git: rules(directory, path, &[".git/info/exclude", ".gitignore"]),
            is_repository: directory.symlink_metadata(".git").is_ok(),
        });
    }

    pub(crate) fn leave(&mut self) {
        self.0.pop();
    }

    pub(crate) fn leaves_out(&self, path: &Path, is_directory: bool) -> bool {
        let inner_first = || self.0.iter().rev();
        let own = inner_first().map(|level| level.own.matched(path, is_directory));
        let repository = inner_first().position(|level| level.is_repository);
        let git = inner_first()
            .take(repository.map_or(usize::MAX, |last| last + 1))
            .map(|level| level.git.matched(path, is_directory));
        own.chain(git)
            .find(|found| !found.is_none())
            .is_some_and(|found| matches!(found, Match::Ignore(_)))
    }
}

fn rules(directory: &Dir, path: &Path, names: &[&str]) -> Gitignore {
    let mut builder = GitignoreBuilder::new(path);
    for name in names {
        for line in text(directory, name).lines() {
            if let Err(error) = builder.add_line(None, line) {
                // As in git, a rule that cannot be parsed matches nothing.
                tracing::debug!(%error, name, "a rule to ignore files cannot be read");
            }
        }
    }
    builder.build().unwrap_or_else(|error| {
        tracing::warn!(%error, "the ignore rules are too large and are not applied, so ignored files are shown");
        Gitignore::empty()
    })
}

/// The text of a list of rules; empty if there is none.
fn text(directory: &Dir, name: &str) -> String {
    let mut bytes = Vec::new();
    let read = open_file(directory, Path::new(name)).and_then(|opened| match opened {
        Some((file, _)) => file.take(MAX_BYTES).read_to_end(&mut bytes),
        None => Ok(0),
    });
    match read {
        Err(error) if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            tracing::warn!(%error, name, "a list of files to ignore cannot be read");
        }
        _ => {}
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
