//! Which directories are the user's own. gavel also runs in those of others, such as a cloned repository, whose files must
//! not send a key of the user elsewhere, start a program, or permit something.

use std::env;
use std::path::Path;

/// The variable of the process that lists the trusted directories, separated as in `PATH`.
pub(super) const TRUST: &str = "GAVEL_TRUST";

/// Why a file of the working directory is refused, and what to do.
pub(super) const REMEDY: &str = "gavel uses this file only in a directory that you trust: set GAVEL_TRUST=\"$PWD\" in your \
                                 environment if it is yours, else run gavel in another one";

/// Whether the working directory is trusted: neither a parent of it counts, nor a relative path, which would be every
/// directory.
pub(super) fn is_trusted() -> bool {
    let here = Path::new(".").canonicalize();
    let is_here = |path: &Path| {
        path.canonicalize()
            .is_ok_and(|path| here.as_ref().is_ok_and(|here| path == *here))
    };
    env::var_os(TRUST).is_some_and(|listed| env::split_paths(&listed).any(|path| path.is_absolute() && is_here(&path)))
}
