//! Command line options. Numbers are text here, since an empty variable counts as unset: `mcp.json` passes on every
//! variable.

/// Options of the Docker server.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Args {
    /// The unix socket of the container engine: unix:///var/run/docker.sock
    ///
    /// Access to the socket is access to the whole host. Only this server gets it, never a container.
    #[arg(long, value_name = "ADDRESS", env = "DOCKER_HOST")]
    pub host: Option<String>,

    /// The images that containers may be created from, separated by commas: docker.io/library/python:3.*
    ///
    /// A * matches within one part of a name. A pattern without a tag permits every tag.
    #[arg(long, value_name = "PATTERNS", env = "DOCKER_IMAGES")]
    pub images: Option<String>,

    /// The network of every container: none, bridge, host, or the name of a network [default: none]
    #[arg(long, value_name = "NETWORK", env = "DOCKER_NETWORK")]
    pub network: Option<String>,

    /// Directories of the host that every container sees, separated by commas: /srv/cache:/cache, or with :rw
    #[arg(long, value_name = "MOUNTS", env = "DOCKER_MOUNTS")]
    pub mounts: Option<String>,

    /// Whether an image that is missing is pulled: never, or missing [default: never]
    #[arg(long, value_name = "WHEN", env = "DOCKER_PULL")]
    pub pull: Option<String>,

    /// The memory of a container, at most and by default [default: 2048]
    #[arg(long, value_name = "MEBIBYTES", env = "DOCKER_MEMORY_MB")]
    pub memory_mb: Option<String>,

    /// The processors of a container, at most and by default [default: 2]
    #[arg(long, value_name = "NUMBER", env = "DOCKER_CPUS")]
    pub cpus: Option<String>,

    /// The processes of a container, at most and by default [default: 512]
    #[arg(long, value_name = "NUMBER", env = "DOCKER_PIDS")]
    pub pids: Option<String>,

    /// How many containers a session may have at once [default: 5]
    #[arg(long, value_name = "NUMBER", env = "DOCKER_SESSION_CONTAINERS")]
    pub session_containers: Option<String>,

    /// How many containers there may be at once [default: 20]
    #[arg(long, value_name = "NUMBER", env = "DOCKER_CONTAINERS")]
    pub containers: Option<String>,
}

impl Args {
    /// Examples for the end of a help text.
    pub const EXAMPLES: &'static str = "\
Examples:
  Containers of two images, without a network:
    export DOCKER_HOST=unix:///var/run/docker.sock
    export DOCKER_IMAGES='docker.io/library/python:3.*,localhost/build'
    gavel-mcp-docker

  With a network of its own, whose ways out a proxy controls:
    export DOCKER_NETWORK=agents
    gavel-mcp-docker

Every setting is read from the environment too. RUST_LOG sets what is logged to standard error (default: \
info,rmcp=warn).";
}
