//! The service behind the tool.

use crate::calls::{Runner, blocking, sweep};
use crate::job::Sandbox;
use crate::launcher::Launcher;
use crate::level::Level;
use crate::probe::choose;
use crate::settings::Settings;

/// What runs commands, and how.
#[derive(Debug)]
pub(crate) struct Shell {
    pub(crate) runner: Runner,
    pub(crate) sandbox: Sandbox,
    pub(crate) settings: Settings,
}

impl Shell {
    pub(crate) async fn new(settings: Settings, launcher: Launcher) -> anyhow::Result<Self> {
        let (runner, sandbox) = choose(&settings, launcher).await?;
        match sandbox.level {
            Level::Host => tracing::warn!(
                "SHELL_SANDBOX is host: commands run without a sandbox and can read and change what their user can"
            ),
            level => tracing::info!(%level, network = sandbox.network, "commands run in a sandbox"),
        }
        let root = runner.root().clone();
        blocking(move || sweep(&root)).await?;
        Ok(Self {
            runner,
            sandbox,
            settings,
        })
    }
}
