//! Where the description comes from.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

use super::Description;

const PACKAGE: &str = "@octokit/openapi@23.0.2";
const FILE: &str = "generated/api.github.com.json";

/// The description. `None` if the package is not available; in CI that fails.
pub(crate) fn description() -> Option<&'static Description> {
    static DESCRIPTION: OnceLock<Option<Description>> = OnceLock::new();
    let found = DESCRIPTION.get_or_init(|| match installed() {
        Ok(file) => {
            let text = std::fs::read_to_string(file).expect("a description");
            Some(Description {
                document: serde_json::from_str(&text).expect("JSON"),
                validators: Mutex::default(),
            })
        }
        Err(why) if std::env::var_os("CI").is_some() => panic!("{PACKAGE} is not available: {why}"),
        Err(why) => {
            eprintln!("not checked, since {PACKAGE} is not available ({why}): requests by GitHub's API description");
            None
        }
    });
    found.as_ref()
}

/// Unpacks the description below the target directory. It is completed under another name first, since test programs
/// may run in parallel.
fn installed() -> Result<PathBuf, String> {
    // A directory of cargo's in the target directory, so that all tests of the workspace share it.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .expect("a target directory");
    let tools = target.join("github-api");
    let directory = tools.join(PACKAGE.trim_start_matches('@').replace(['@', '/'], "-"));
    let file = directory.join(FILE);
    if file.exists() {
        return Ok(file);
    }
    std::fs::create_dir_all(&tools).map_err(|error| error.to_string())?;
    let scratch = tempfile::tempdir_in(&tools).map_err(|error| error.to_string())?;
    run(Command::new("npm")
        .args(["pack", "--silent", "--pack-destination"])
        .arg(scratch.path())
        .arg(PACKAGE)
        .current_dir(scratch.path()))?;
    let packed = std::fs::read_dir(scratch.path()).map_err(|error| error.to_string())?;
    let packed = packed.filter_map(Result::ok).map(|entry| entry.path());
    let packed = packed
        .into_iter()
        .find(|path| path.extension().is_some_and(|extension| extension == "tgz"));
    run(Command::new("tar")
        .arg("-xzf")
        .arg(packed.ok_or("npm packed nothing")?)
        .arg("-C")
        .arg(scratch.path())
        .arg(format!("package/{FILE}")))?;
    match std::fs::rename(scratch.path().join("package"), &directory) {
        Err(error) if !file.exists() => Err(error.to_string()),
        _ => Ok(file),
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(said.lines().last().unwrap_or("it failed").to_owned())
}
