//! Real injection strings, from a directory beside the project.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// The strings for `carrier`, by id; `None` if the shared data is missing (an error in CI).
pub(crate) fn made_for(carrier: &str) -> Option<Vec<(String, String)>> {
    let shared = std::env::var_os("GAVEL_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"),
        PathBuf::from,
    );
    let Ok(lines) = std::fs::read_to_string(shared.join("injections/strings.jsonl")) else {
        assert!(
            std::env::var_os("CI").is_none(),
            "{} has no injections",
            shared.display()
        );
        eprintln!("skipped: {} has no injections", shared.display());
        return None;
    };
    let read = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| line[name].as_str().unwrap().to_owned();
        (line["carrier"] == carrier).then(|| (text("id"), text("text")))
    };
    let texts: Vec<_> = lines.lines().filter_map(read).collect();
    assert!(!texts.is_empty(), "no string is made for a {carrier}");
    Some(texts)
}
