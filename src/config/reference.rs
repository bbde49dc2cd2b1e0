//! The reference page of all settings.

use std::fmt::Write;

use super::settings::{SETTINGS, Setting};

/// All settings as a Markdown table: what `gavel config --reference` prints.
#[must_use]
pub fn reference() -> String {
    let mut page = String::from(
        "| gavel.toml | environment | flag | default | allowed | what for |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    for setting in SETTINGS {
        // Writing to a String cannot fail.
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {} | {} | {} |",
            setting.key,
            environment(setting),
            setting.flag.map(|flag| format!("`{flag}`")).unwrap_or_default(),
            setting
                .default
                .map_or_else(|| setting.absent.to_owned(), |default| format!("`{default}`")),
            setting.allowed,
            setting.about,
        );
    }
    page
}

fn environment(setting: &Setting) -> String {
    let names = setting
        .environment
        .iter()
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(" or ");
    if setting.in_file() {
        format!("{names}, `…_FILE`")
    } else {
        names
    }
}
