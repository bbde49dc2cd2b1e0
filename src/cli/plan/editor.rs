//! The user's editor, and the file that it edits.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use tokio::process::Command;

use crate::cli::interrupt::Signals;

/// The most files of one name, such as those kept after earlier edits.
const MOST_FILES: u32 = 1000;

/// Writes a text to a new file in the directory for temporary files, which only its owner can read.
///
/// # Errors
/// It cannot be written.
pub(super) fn new_file(name: &str, text: &str) -> anyhow::Result<PathBuf> {
    let directory = env::temp_dir();
    for number in 0..MOST_FILES {
        let file = match number {
            0 => format!("{name}.json"),
            _ => format!("{name}-{number}.json"),
        };
        let path = directory.join(file);
        let mut options = OpenOptions::new();
        // A file or link that is already there is not used.
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        match options.open(&path) {
            Ok(mut file) => {
                let written = file.write_all(text.as_bytes());
                written.with_context(|| format!("{} cannot be written", path.display()))?;
                return Ok(path);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(|| format!("{} cannot be written", path.display())),
        }
    }
    anyhow::bail!("{} has too many files of the name {name}", directory.display())
}

/// Opens the file in the user's editor, and returns its text once the editor has ended.
///
/// # Errors
/// The editor cannot be started or fails; the file cannot be read.
pub(super) async fn edited(path: &Path) -> anyhow::Result<String> {
    let editor = name(env::var("VISUAL").ok(), env::var("EDITOR").ok());
    // Ctrl-C is for the editor.
    let signals = Signals::listen()?;
    let status = command(&editor, path).status().await;
    drop(signals);
    let status = status.with_context(|| format!("the editor {editor:?} cannot be started; set EDITOR"))?;
    ensure!(status.success(), "the editor {editor:?} ended with {status}");
    fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))
}

/// `VISUAL`, else `EDITOR`, else what every system has.
fn name(visual: Option<String>, editor: Option<String>) -> String {
    let named = [visual, editor].into_iter().flatten();
    let mut named = named.filter(|name| !name.trim().is_empty());
    let default = if cfg!(windows) { "notepad" } else { "vi" };
    named.next().unwrap_or_else(|| default.to_owned())
}

/// The editor's name may have arguments, as in `code --wait`; a shell reads it, as it does for other programs.
#[cfg(unix)]
fn command(editor: &str, path: &Path) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &format!("{editor} \"$@\""), editor]).arg(path);
    command
}

#[cfg(not(unix))]
fn command(editor: &str, path: &Path) -> Command {
    let mut words = editor.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or(editor));
    command.args(words).arg(path);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_visual_editor_comes_first_and_a_blank_one_is_none() {
        let named = |name: &str| Some(name.to_owned());
        assert_eq!(name(named("code --wait"), named("nano")), "code --wait");
        assert_eq!(name(named(" "), named("nano")), "nano");
        assert!(!name(None, None).is_empty());
    }

    #[test]
    fn a_file_that_is_there_is_not_overwritten() {
        let name = format!("gavel-plan-test-{}", std::process::id());
        let first = new_file(&name, "one").unwrap();
        let second = new_file(&name, "two").unwrap();
        assert_ne!(first, second);
        assert_eq!(fs::read_to_string(&first).unwrap(), "one");
        for path in [first, second] {
            fs::remove_file(path).unwrap();
        }
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn an_editor_with_arguments_gets_the_file_as_one_more() {
        let name = format!("gavel plan test {}", std::process::id());
        let path = new_file(&name, "before").unwrap();
        let status = command("printf %s after >\"$1\"; :", &path).status().await.unwrap();
        assert!(status.success());
        assert_eq!(fs::read_to_string(&path).unwrap(), "after");
        fs::remove_file(path).unwrap();
    }
}
