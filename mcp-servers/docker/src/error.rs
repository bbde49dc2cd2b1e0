//! The errors of this server beyond the common ones. An in-band error means that nothing was done. If that is
//! uncertain, the answer is a protocol error ([`Fault::Unsettled`]).

use gavel_mcp_base::{Fault, ToolError};
use strum::IntoStaticStr;

use crate::engine::EngineFault;

/// The closed set of this server's own error codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Code {
    /// The container engine does not answer, or reports its own failure.
    EngineUnavailable,
    /// The operator does not permit the image.
    ImageNotAllowed,
    /// The engine does not have the image.
    ImageMissing,
    /// Containers of the image do not run, or lack a program that scripts need.
    ImageUnusable,
    /// An option that no caller may set.
    OptionRefused,
    /// The session, or all together, have as many containers as are allowed.
    TooManyContainers,
    /// There is no such container or file, or it belongs to another session.
    NotFound,
    /// The container has stopped.
    NotRunning,
    /// A path that is not read.
    PathRefused,
    /// More than this tool returns.
    TooLarge,
    /// A file that is not text.
    NotText,
    /// The disk of the container, or of the engine, is full.
    DiskFull,
    /// The caller's time has ended.
    DeadlinePassed,
}

pub(crate) fn unsettled(why: &str) -> Fault {
    Fault::Unsettled(format!(
        "it is unknown whether this call took effect: {why}; sent again with the same idempotency key, it takes effect \
         only once"
    ))
}

pub(crate) fn engine_unavailable() -> ToolError {
    ToolError::new(
        Code::EngineUnavailable,
        "The container engine does not answer, or reports a failure of its own. Try again later.",
    )
}

/// The same for what never was there, what is gone, and what belongs to another session.
pub(crate) fn container_not_found() -> ToolError {
    ToolError::new(
        Code::NotFound,
        "There is no such container. listContainers lists those of this session; createContainer creates one.",
    )
}

pub(crate) fn not_running() -> ToolError {
    ToolError::new(
        Code::NotRunning,
        "The container has stopped. Destroy it with destroyContainer and create another one.",
    )
}

/// What an engine's fault means for a call that did nothing yet.
pub(crate) fn engine_error(fault: &EngineFault) -> ToolError {
    match fault {
        EngineFault::Missing => container_not_found(),
        EngineFault::Conflict => not_running(),
        EngineFault::Full => engine_disk_full(),
        EngineFault::Unavailable | EngineFault::Failed => engine_unavailable(),
    }
}

pub(crate) fn disk_full() -> ToolError {
    ToolError::new(
        Code::DiskFull,
        "The script was not started: the container's disk is full, or its user cannot write to it. Destroy it and \
         create another one.",
    )
}

pub(crate) fn engine_disk_full() -> ToolError {
    ToolError::new(
        Code::DiskFull,
        "Nothing was done: the disk of the container engine is full. Destroy containers that are no longer needed, or \
         tell the user.",
    )
}
