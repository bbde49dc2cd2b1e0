//! Which directories are the user's own. gavel also runs in those of others, such as a cloned repository, whose files must
//! not send a key of the user elsewhere, start a program, or permit something.

use std::path::Path;
use std::{env, fs, io};

/// The variable of the process that lists the trusted directories, separated as in `PATH`.
pub(super) const TRUST: &str = "GAVEL_TRUST";

/// Why a file of the working directory is refused, and what to do.
pub(super) const REMEDY: &str = "gavel uses this file only in a directory that you trust: set GAVEL_TRUST=\"$PWD\" in your \
                                 environment if it is yours, else run gavel in another one";

/// Larger files of a directory that is not trusted are not read.
const MOST: u64 = 1 << 20;

/// The text of a file of the working directory, which another person may have put there. In a directory that is not
/// trusted it must be small and regular: a link to a device would never end.
pub(super) fn read(file: &str) -> io::Result<String> {
    let about = fs::metadata(file)?;
    let is_small = about.is_dir() || (about.is_file() && about.len() <= MOST);
    if !is_small && !is_trusted() {
        return Err(io::Error::other(format!(
            "it is no file of at most 1 MiB, and {REMEDY}"
        )));
    }
    fs::read_to_string(file)
}

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
