//! A temporary directory for an evaluation, so that it changes no user's tasks and records.

use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::Context;
use serde_json::{Value, json};

use crate::app::BUILT_IN_SERVERS;
use crate::config::Config;
use crate::domain::ids::InstanceId;

/// The directory; removed when dropped.
pub(in crate::cli) struct Scratch {
    directory: PathBuf,
}

impl Scratch {
    pub(in crate::cli) fn make() -> anyhow::Result<Self> {
        let directory = env::temp_dir().join(format!("gavel-eval-{}", InstanceId::new()));
        make(&directory).with_context(|| format!("{} cannot be created", directory.display()))?;
        Ok(Self { directory })
    }

    /// The configuration with its database in this directory. Unless other servers are configured, it uses the bundled
    /// task server with tasks in this directory.
    pub(in crate::cli) fn apply(&self, config: Config) -> anyhow::Result<Config> {
        self.apply_with(config, None, None)
    }

    /// Like [`Scratch::apply`], but adds the bundled files server on `root`, and the bundled github server on the API at
    /// `github`.
    pub(in crate::cli) fn apply_with(
        &self,
        mut config: Config,
        root: Option<&Path>,
        github: Option<&str>,
    ) -> anyhow::Result<Config> {
        config.database_url = self.sqlite("gavel.db").into();
        if config.mcp_config.is_none() {
            let program = env::current_exe().context("this program's path is unknown")?;
            let mut servers = json!({ "mcpServers": { "tasks": {
                "command": program,
                "args": ["mcp-server", "tasks"],
                "env": { "TASKS_DATABASE_URL": self.sqlite("tasks.db") },
                "gavel": { "trustHints": true },
            } } });
            if let Some(root) = root {
                servers["mcpServers"]["files"] = json!({
                    "command": program,
                    "args": ["mcp-server", "files", "--root", root],
                    "gavel": { "trustHints": true },
                });
            }
            if let Some(api) = github {
                let built_in: Value = serde_json::from_str(BUILT_IN_SERVERS).context("the built-in mcp.json")?;
                let mut entry = built_in["mcpServers"]["github"].clone();
                entry["command"] = json!(program);
                let url = config.planning.github.as_str().trim_end_matches('/');
                entry["env"] = json!({ "GITHUB_TOKEN": "none-is-needed", "GITHUB_API_URL": api, "GITHUB_URL": url });
                servers["mcpServers"]["github"] = entry;
            }
            let path = self.directory.join("mcp.json");
            fs::write(&path, servers.to_string()).with_context(|| format!("{} cannot be written", path.display()))?;
            config.mcp_config = Some(path);
        }
        Ok(config)
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
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn no_other_user_can_read_it_and_it_is_deleted_at_the_end() {
        let scratch = Scratch::make().unwrap();
        let directory = scratch.directory.clone();
        assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
        drop(scratch);
        assert!(!directory.exists());
    }
}
