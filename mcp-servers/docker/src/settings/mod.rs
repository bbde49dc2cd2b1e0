//! Combines the options; rejects those that are invalid or unsafe.

mod images;
pub(crate) mod mounts;

use anyhow::{Context, ensure};
use gavel_mcp_base::settings::{self, given};

use crate::args::Args;
pub(crate) use images::{Images, Reference};

/// Consistent settings.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The path of the engine's socket.
    pub(crate) socket: String,
    pub(crate) images: Images,
    pub(crate) network: String,
    /// In the form of the engine: `/source:/target:ro`.
    pub(crate) mounts: Vec<String>,
    /// Whether a missing image is pulled.
    pub(crate) pulls: bool,
    pub(crate) limits: Limits,
}

/// The limits of a container, and of their number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) memory_mb: u32,
    pub(crate) cpus: u32,
    pub(crate) pids: u32,
    pub(crate) per_session: usize,
    pub(crate) in_all: usize,
}

impl TryFrom<Args> for Settings {
    type Error = anyhow::Error;

    fn try_from(args: Args) -> anyhow::Result<Self> {
        let socket = socket(given(&args.host))?;
        let mounts = mounts::parse(given(&args.mounts).unwrap_or_default())?;
        mounts::check(&mounts, &socket)?;
        let images = Images::parse(given(&args.images).context(
            "DOCKER_IMAGES is missing: set the images that containers may be created from, such as \
             docker.io/library/python:3.*",
        )?)?;
        let count = |name, text, unset, allowed| settings::number::<u32>(name, text, unset, allowed);
        let limits = Limits {
            memory_mb: count("DOCKER_MEMORY_MB", &args.memory_mb, 2048, 64..=1_048_576)?,
            cpus: count("DOCKER_CPUS", &args.cpus, 2, 1..=256)?,
            pids: count("DOCKER_PIDS", &args.pids, 512, 32..=32_768)?,
            per_session: count("DOCKER_SESSION_CONTAINERS", &args.session_containers, 5, 1..=1000)? as usize,
            in_all: count("DOCKER_CONTAINERS", &args.containers, 20, 1..=1000)? as usize,
        };
        let pulls = [("never", false), ("missing", true)];
        Ok(Self {
            socket,
            images,
            network: network(given(&args.network).unwrap_or("none"))?,
            mounts,
            pulls: settings::choice("DOCKER_PULL", &args.pull, &pulls)?,
            limits,
        })
    }
}

/// The path of the socket. An engine over TCP is refused: it is access to its host for all who reach the port.
pub(crate) fn socket(host: Option<&str>) -> anyhow::Result<String> {
    let host = host.context("DOCKER_HOST is missing: set the engine's socket, such as unix:///var/run/docker.sock")?;
    let path = host
        .strip_prefix("unix://")
        .filter(|path| path.starts_with('/') && path.len() > 1);
    let path = path.context("DOCKER_HOST must be a unix socket, such as unix:///var/run/docker.sock")?;
    Ok(path.to_owned())
}

/// `none`, `bridge`, `host`, or a name. The network of another container is not a network of the operator.
fn network(name: &str) -> anyhow::Result<String> {
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c));
    ensure!(
        plain,
        "DOCKER_NETWORK must be none, bridge, host, or the name of a network"
    );
    Ok(name.to_owned())
}
