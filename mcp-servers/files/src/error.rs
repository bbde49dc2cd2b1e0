//! The errors of this server beyond the common ones. System errors go to the log; no message names a place outside the
//! root.

use std::io;

use gavel_mcp_base::{Code as Common, ToolError};
use rustix::io::Errno;

/// The closed set of this server's own error codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    InvalidPattern,
    OutsideRoot,
    NotFound,
    NotAFile,
    NotAFolder,
    NotReadable,
    PastTheEnd,
    TooSlow,
    Busy,
}

impl From<Code> for &'static str {
    fn from(code: Code) -> Self {
        match code {
            Code::InvalidPattern => "invalid_pattern",
            Code::OutsideRoot => "outside_root",
            Code::NotFound => "not_found",
            Code::NotAFile => "not_a_file",
            Code::NotAFolder => "not_a_folder",
            Code::NotReadable => "not_readable",
            Code::PastTheEnd => "past_the_end",
            Code::TooSlow => "too_slow",
            Code::Busy => "busy",
        }
    }
}

pub(crate) fn invalid_argument(message: impl Into<String>) -> ToolError {
    ToolError::new(Common::InvalidArgument, message)
}

pub(crate) fn too_slow() -> ToolError {
    ToolError::new(
        Code::TooSlow,
        "The call took too long and was stopped. Ask for less: a smaller folder, or an earlier part of the file.",
    )
}

pub(crate) fn internal() -> ToolError {
    ToolError::new(Common::Internal, "The files server failed. Its log has the details.")
}

/// Why `path` could not be opened or read.
pub(crate) fn of(error: &io::Error, path: &str) -> ToolError {
    let (code, rule) = match error.kind() {
        // cap-std itself rejects a path that leads out, so the error has no system error number.
        io::ErrorKind::PermissionDenied if error.raw_os_error().is_none() => (
            Code::OutsideRoot,
            "leads out of the folder that is served. Only what lies inside it can be read, also through links",
        ),
        io::ErrorKind::PermissionDenied => (Code::NotReadable, "may not be read by this server"),
        io::ErrorKind::NotFound => (
            Code::NotFound,
            "does not exist. Paths are relative to the folder that is served; ls shows what there is",
        ),
        io::ErrorKind::NotADirectory => (
            Code::NotAFolder,
            "is not a folder, or leads through something that is not one",
        ),
        _ if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            (Code::NotFound, "is a link that leads nowhere, since it leads to itself")
        }
        io::ErrorKind::InvalidFilename => {
            return invalid_argument(format!("`{}` is longer than a name may be.", path.escape_debug()));
        }
        io::ErrorKind::TimedOut => return too_slow(),
        _ => {
            tracing::error!(%error, path, "reading failed");
            (Code::NotReadable, "could not be read; the server's log says why")
        }
    };
    ToolError::new(code, format!("`{}` {rule}.", path.escape_debug()))
}
