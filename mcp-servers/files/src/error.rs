//! Errors that a caller can read and act on, returned in band (`isError: true`), so that a model sees what failed and
//! what is allowed. System errors go to the log; no message names a place outside the root.

use std::io;

use rustix::io::Errno;
use serde::Serialize;

/// The closed set of error codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Code {
    InvalidArgument,
    InvalidPattern,
    OutsideRoot,
    NotFound,
    NotAFile,
    NotAFolder,
    NotReadable,
    PastTheEnd,
    TooSlow,
    Busy,
    Internal,
}

/// One error: a code for programs, a message for models and people.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ToolError {
    pub(crate) code: Code,
    pub(crate) message: String,
}

impl ToolError {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    pub(crate) fn too_slow() -> Self {
        Self::new(
            Code::TooSlow,
            "The call took too long and was stopped. Ask for less: a smaller folder, or an earlier part of the file.",
        )
    }

    pub(crate) fn internal() -> Self {
        Self::new(Code::Internal, "The files server failed. Its log has the details.")
    }

    /// Why `path` could not be opened or read.
    pub(crate) fn of(error: &io::Error, path: &str) -> Self {
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
            io::ErrorKind::InvalidFilename => (Code::InvalidArgument, "is longer than a name may be"),
            io::ErrorKind::TimedOut => return Self::too_slow(),
            _ => {
                tracing::error!(%error, path, "reading failed");
                (Code::NotReadable, "could not be read; the server's log says why")
            }
        };
        Self::new(code, format!("`{}` {rule}.", path.escape_debug()))
    }
}
