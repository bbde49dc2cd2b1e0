//! The options of a container, parsed once. What weakens a container is refused by name, before the engine is asked.

use std::collections::BTreeMap;

use gavel_mcp_base::{ToolError, invalid, within};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::Code;
use crate::settings::{Limits, Reference};

const WORKDIR: &str = "/work";
const VARIABLES: usize = 100;
const ENVIRONMENT: usize = 32 * 1024;
/// Below these, a working directory would hide what a container needs, or could not be read.
const RESERVED: [&str; 6] = ["/proc", "/sys", "/dev", "/run/gavel", "/var/lib/gavel", "/tmp"];

/// The options that a caller may set.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "")]
pub(super) struct Options {
    /// The image, such as docker.io/library/python:3.13.
    #[schemars(length(min = 1, max = 255))]
    image: String,
    /// A name for people.
    #[schemars(length(min = 1, max = 63))]
    name: Option<String>,
    /// A group to clean up together. In a session it is always the session's id.
    #[schemars(length(min = 1, max = 128))]
    group: Option<String>,
    /// The directory that scripts run in. /work when left out.
    #[schemars(length(min = 1, max = 1024))]
    workdir: Option<String>,
    /// Environment variables of its processes. No secrets: they can be read from outside.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// The most memory, in MiB.
    #[schemars(range(min = 1))]
    memory_mb: Option<u32>,
    /// The number of processors.
    #[schemars(range(min = 1))]
    cpus: Option<u32>,
    /// The most processes.
    #[schemars(range(min = 1))]
    pids: Option<u32>,
}

/// Valid options.
#[derive(Debug)]
pub(super) struct Valid {
    pub(super) image: Reference,
    pub(super) name: Option<String>,
    pub(super) group: Option<String>,
    pub(super) workdir: String,
    /// `NAME=value`.
    pub(super) env: Vec<String>,
    pub(super) memory_mb: u32,
    pub(super) cpus: u32,
    pub(super) pids: u32,
}

impl Options {
    pub(super) fn parse(self, limits: &Limits) -> Result<Valid, ToolError> {
        let rule = "has to be the name of an image, such as docker.io/library/python:3.13";
        let number = |name, given, least, most| Ok::<_, ToolError>(within(name, given, least, most)?.unwrap_or(most));
        Ok(Valid {
            image: Reference::parse(&self.image).ok_or_else(|| invalid("image", rule))?,
            name: self.name,
            group: self.group,
            workdir: workdir(self.workdir)?,
            env: env(self.env)?,
            memory_mb: number("memoryMb", self.memory_mb, 16, limits.memory_mb)?,
            cpus: number("cpus", self.cpus, 1, limits.cpus)?,
            pids: number("pids", self.pids, 16, limits.pids)?,
        })
    }
}

/// The error for an option that there is not.
pub(super) fn unknown(name: &str, allowed: &[&str]) -> ToolError {
    if !allowed.contains(&"image") {
        return gavel_mcp_base::unknown(name, allowed);
    }
    let words = format!(
        "The option `{}` is not one that can be set; nothing was created. Allowed are: {}. Network, mounts and \
         privileges are the operator's choice.",
        name.escape_debug(),
        allowed.join(", ")
    );
    let error = ToolError::new(Code::OptionRefused, words).with("option", name);
    error.with("allowed", allowed.to_vec())
}

fn workdir(given: Option<String>) -> Result<String, ToolError> {
    let Some(path) = given else {
        return Ok(WORKDIR.to_owned());
    };
    let parts = path.strip_prefix('/').into_iter().flat_map(|path| path.split('/'));
    let is_plain = path.starts_with('/')
        && !path.chars().any(char::is_control)
        && parts.clone().all(|part| !["", ".", ".."].contains(&part));
    let is_reserved = RESERVED
        .iter()
        .any(|reserved| std::path::Path::new(&path).starts_with(reserved));
    match is_plain && !is_reserved {
        true => Ok(path),
        false => Err(invalid(
            "workdir",
            "has to be an absolute path such as /work, and not below /proc, /sys, /dev, /tmp, /run/gavel or
  /var/lib/gavel",
        )),
    }
}

fn env(given: BTreeMap<String, String>) -> Result<Vec<String>, ToolError> {
    let mut env = Vec::new();
    for (name, value) in given {
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !name.starts_with("GAVEL_");
        if !is_name {
            return Err(invalid(
                "env",
                "has to be an object of texts by name; a name has letters, digits and _, and does not begin with
  GAVEL_",
            ));
        }
        env.push(format!("{name}={value}"));
    }
    let bytes: usize = env.iter().map(String::len).sum();
    match env.len() <= VARIABLES && bytes <= ENVIRONMENT {
        true => Ok(env),
        false => Err(invalid("env", "has to have at most 100 variables and 32 KiB")),
    }
}
