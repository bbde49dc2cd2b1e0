//! The options of a container, parsed once. What weakens a container is refused by name, before the engine is asked.

use gavel_mcp_base::{Arguments, ToolError, invalid, missing};

use crate::error::Code;
use crate::settings::{Limits, Reference};

/// The options that a caller may set.
pub(super) const ALLOWED: [&str; 8] = ["image", "name", "group", "workdir", "env", "memoryMb", "cpus", "pids"];

const WORKDIR: &str = "/work";
const NAME: usize = 63;
const GROUP: usize = 128;
const VARIABLES: usize = 100;
const ENVIRONMENT: usize = 32 * 1024;
/// Below these, a working directory would hide what a container needs, or could not be read.
const RESERVED: [&str; 6] = ["/proc", "/sys", "/dev", "/run/gavel", "/var/lib/gavel", "/tmp"];

/// Valid options.
#[derive(Debug)]
pub(super) struct Options {
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
    pub(super) fn parse(arguments: &Arguments, limits: &Limits) -> Result<Self, ToolError> {
        let given = arguments.object("options")?.ok_or_else(|| missing("options"))?;
        if let Some(refused) = given.keys().find(|name| !ALLOWED.contains(&name.as_str())) {
            return Err(option_refused(refused));
        }
        let options = Arguments::new(Some(given.clone()), &ALLOWED)?;
        let image = options.visible_text("image", 255)?.ok_or_else(|| missing("image"))?;
        let image = Reference::parse(&image).ok_or_else(|| {
            invalid(
                "image",
                "has to be the name of an image, such as docker.io/library/python:3.13",
            )
        })?;
        Ok(Self {
            image,
            name: options.visible_text("name", NAME)?,
            group: options.visible_text("group", GROUP)?,
            workdir: workdir(&options)?,
            env: env(&options)?,
            memory_mb: options
                .integer("memoryMb", 16, limits.memory_mb)?
                .unwrap_or(limits.memory_mb),
            cpus: options.integer("cpus", 1, limits.cpus)?.unwrap_or(limits.cpus),
            pids: options.integer("pids", 16, limits.pids)?.unwrap_or(limits.pids),
        })
    }
}

fn option_refused(name: &str) -> ToolError {
    let shown: String = name.chars().take(60).collect();
    let words = format!(
        "The option `{}` is not one that can be set; nothing was created. Allowed are: {}. Network, mounts and \
         privileges are the operator's choice.",
        shown.escape_debug(),
        ALLOWED.join(", ")
    );
    ToolError::new(Code::OptionRefused, words)
        .with("option", shown)
        .with("allowed", ALLOWED.to_vec())
}

fn workdir(options: &Arguments) -> Result<String, ToolError> {
    let Some(path) = options.visible_text("workdir", 1024)? else {
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

fn env(options: &Arguments) -> Result<Vec<String>, ToolError> {
    let Some(given) = options.object("env")? else {
        return Ok(Vec::new());
    };
    let mut env = Vec::new();
    for (name, value) in given {
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !name.starts_with("GAVEL_");
        let value = value.as_str().filter(|value| !value.contains('\0'));
        let Some(value) = value.filter(|_| is_name) else {
            return Err(invalid(
                "env",
                "has to be an object of texts by name; a name has letters, digits and _, and does not begin with
  GAVEL_",
            ));
        };
        env.push(format!("{name}={value}"));
    }
    let bytes: usize = env.iter().map(String::len).sum();
    match env.len() <= VARIABLES && bytes <= ENVIRONMENT {
        true => Ok(env),
        false => Err(invalid("env", "has to have at most 100 variables and 32 KiB")),
    }
}
