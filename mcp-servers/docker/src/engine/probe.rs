//! What the operator should know of the engine.

use super::{Engine, EngineFault};

/// The engine behind a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineInfo {
    /// Such as `Podman Engine`; empty if the engine does not say.
    pub name: String,
    /// Such as `4.3.1`.
    pub version: String,
    /// The version of its API, such as `1.41`.
    pub api_version: String,
    /// Root in a container is root on the host: the engine runs as root and maps no users. What escapes from a
    /// container then has the whole host.
    pub root_is_host_root: bool,
}

impl Engine {
    /// Asks the engine about itself.
    pub(crate) async fn info(&self) -> Result<EngineInfo, EngineFault> {
        let docker = self.docker().await?;
        let version = docker.version().await?;
        let options = docker.info().await?.security_options.unwrap_or_default();
        let maps = ["name=rootless", "name=userns"];
        let name = version.components.into_iter().flatten().next().map(|part| part.name);
        Ok(EngineInfo {
            name: name.unwrap_or_default(),
            version: version.version.unwrap_or_default(),
            api_version: version.api_version.unwrap_or_default(),
            root_is_host_root: !options
                .iter()
                .any(|option| maps.iter().any(|map| option.split(',').any(|part| part == *map))),
        })
    }
}
