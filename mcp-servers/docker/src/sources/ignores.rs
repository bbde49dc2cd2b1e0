//! What `.gitignore` files exclude.

use std::collections::BTreeMap;

use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// The rules of each directory that has any.
#[derive(Debug, Default)]
pub(super) struct Ignores(BTreeMap<String, Gitignore>);

impl Ignores {
    /// Takes up the rules of the file at this path.
    pub(super) fn add(&mut self, path: &str, text: &str) {
        let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
        let mut builder = GitignoreBuilder::new(format!("/{directory}"));
        for line in text.lines() {
            // As in git, a line that is no rule has no effect.
            builder.add_line(None, line).ok();
        }
        if let Ok(rules) = builder.build() {
            self.0.insert(directory.to_owned(), rules);
        }
    }

    /// Whether a file is excluded, by a rule for itself or for a directory above it.
    pub(super) fn exclude(&self, path: &str) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let ends = path.match_indices('/').map(|(end, _)| (end, true));
        ends.chain([(path.len(), false)])
            .any(|(end, is_directory)| self.exclude_itself(&path[..end], is_directory))
    }

    /// The rules of the nearest directory come first.
    fn exclude_itself(&self, path: &str, is_directory: bool) -> bool {
        let mut directory = path;
        while !directory.is_empty() {
            directory = directory.rsplit_once('/').map_or("", |(above, _)| above);
            if let Some(rules) = self.0.get(directory) {
                let found = rules.matched(format!("/{path}"), is_directory);
                if !found.is_none() {
                    return found.is_ignore();
                }
            }
        }
        false
    }
}
