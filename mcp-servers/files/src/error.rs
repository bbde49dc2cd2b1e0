//! The errors of this server beyond the common ones. System errors go to the log; no message names a place outside the
//! root.

use std::io;

use gavel_mcp_base::{Code as Common, ToolError};
use rustix::io::Errno;
use strum::IntoStaticStr;

/// The closed set of this server's own error codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
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

pub(crate) fn too_slow() -> ToolError {
    ToolError::new(
        Code::TooSlow,
        "The call took too long and was stopped. Ask for less: a smaller folder, or an earlier part of the file.",
    )
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
            let words = format!("`{}` is longer than a name may be.", path.escape_debug());
            return ToolError::new(Common::InvalidArgument, words);
        }
        io::ErrorKind::TimedOut => return too_slow(),
        _ => {
            tracing::error!(%error, path, "reading failed");
            (Code::NotReadable, "could not be read; the server's log says why")
        }
    };
    ToolError::new(code, format!("`{}` {rule}.", path.escape_debug()))
}
