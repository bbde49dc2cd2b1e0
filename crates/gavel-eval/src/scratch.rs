//! A temporary directory for an evaluation, so that it changes no user's tasks and records.

use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::Context;
use serde_json::{Value, json};
use uuid::Uuid;

/// The directory; removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    directory: PathBuf,
}

impl Scratch {
    /// Creates the directory below that for temporary files.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn new() -> anyhow::Result<Self> {
        let directory = env::temp_dir().join(format!("gavel-eval-{}", Uuid::now_v7()));
        make(&directory).with_context(|| format!("{} cannot be created", directory.display()))?;
        Ok(Self { directory })
    }

    /// The URL of gavel's database in it.
    pub fn database_url(&self) -> String {
        self.sqlite("gavel.db")
    }

    /// Writes an mcp.json for the bundled task server, with tasks in this directory; `program` is gavel. With `root`
    /// also the files server on that directory, and the `github` server, if one is given. Returns its path.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn mcp_config(&self, program: &Path, root: Option<&Path>, github: Option<Value>) -> anyhow::Result<PathBuf> {
        let mut servers = json!({ "tasks": {
            "command": program,
            "args": ["mcp-server", "tasks"],
            "env": { "TASKS_DATABASE_URL": self.sqlite("tasks.db") },
            "gavel": { "trustHints": true },
        } });
        if let Some(root) = root {
            servers["files"] = json!({
                "command": program,
                "args": ["mcp-server", "files", "--root", root],
                "gavel": { "trustHints": true },
            });
        }
        if let Some(mut github) = github {
            github["command"] = json!(program);
            servers["github"] = github;
        }
        let path = self.directory.join("mcp.json");
        fs::write(&path, json!({ "mcpServers": servers }).to_string())
            .with_context(|| format!("{} cannot be written", path.display()))?;
        Ok(path)
    }

    fn sqlite(&self, name: &str) -> String {
        format!("sqlite://{}", self.directory.join(name).display())
    }
}

/// The directory contains an evaluation's messages, and its parent is open to all users, so only this user may read it.
/// Creation fails if it exists, so that no other user can provide it.
fn make(directory: &Path) -> std::io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    builder.create(directory)
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.directory) {
            tracing::warn!(%error, directory = %self.directory.display(), "the scratch directory could not be removed");
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn no_other_user_can_read_it_and_it_is_deleted_at_the_end() {
        let scratch = Scratch::new().unwrap();
        let directory = scratch.directory.clone();
        assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
        drop(scratch);
        assert!(!directory.exists());
    }
}
