//! Opens a page in the user's browser, if there is one.

use std::env;
use std::process::{Command, Stdio};

/// Tries to open `url`. The address was printed before, so a failure loses nothing.
pub(super) fn open(url: &str) {
    let remote = env::var_os("SSH_CONNECTION").is_some();
    let opener = if cfg!(target_os = "macos") {
        "open"
    } else if env::var_os("DISPLAY").is_some() || env::var_os("WAYLAND_DISPLAY").is_some() {
        "xdg-open"
    } else {
        return;
    };
    if remote {
        return;
    }
    let started = Command::new(opener)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    if let Err(error) = started {
        tracing::debug!(%error, opener, "no browser was opened");
    }
}
