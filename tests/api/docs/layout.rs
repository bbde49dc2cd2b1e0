//! The pages can be read and found: their size, their links, and the index.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use regex::Regex;

use super::{page, pages};

/// The lines of a page outside of its code, with their numbers.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut fence: Option<&str> = None;
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let ticks = line.trim_start();
        let ticks = &ticks[..ticks.find(|c| c != '`').unwrap_or(ticks.len())];
        match fence {
            Some(open) if line.trim() == open => fence = None,
            Some(_) => {}
            None if ticks.len() >= 3 => fence = Some(ticks),
            None if line.starts_with("    ") => {}
            None => found.push((number + 1, line)),
        }
    }
    found
}

/// A page is read in one go, and its text in a terminal. A table has rows as long as they must be. A page of the command
/// line has the help of all commands of a group, in which a reader looks up one.
#[test]
fn no_page_is_long_and_no_line_is_wide() {
    let mut invalid = Vec::new();
    for (name, text) in pages() {
        let is_generated = name.starts_with("docs/reference/cli") || name == "docs/reference/views.md";
        if text.lines().count() > 200 && !is_generated {
            invalid.push(format!("{name} has {} lines", text.lines().count()));
        }
        for (number, line) in prose(&text) {
            let is_table = line.trim_start().starts_with('|');
            if !is_table && line.chars().count() > 120 {
                invalid.push(format!("{name}:{number} has {} characters", line.chars().count()));
            }
        }
    }
    assert!(invalid.is_empty(), "{}", invalid.join("\n"));
}

/// The anchors of a page: those of its headings, as GitHub makes them, and its own.
fn anchors(text: &str) -> BTreeSet<String> {
    let link = Regex::new(r"\[([^\]]*)\]\([^)]*\)").unwrap();
    let own = Regex::new(r#"<a id="([^"]+)">"#).unwrap();
    let mut found = BTreeSet::new();
    let mut used: BTreeMap<String, usize> = BTreeMap::new();
    for (_, line) in prose(text) {
        found.extend(own.captures_iter(line).map(|anchor| anchor[1].to_owned()));
        let Some(title) = line.strip_prefix('#').map(|rest| rest.trim_start_matches('#').trim()) else {
            continue;
        };
        let title = link.replace_all(title, "$1").to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let count = used.entry(anchor.clone()).or_default();
        found.insert(if *count == 0 {
            anchor.clone()
        } else {
            format!("{anchor}-{count}")
        });
        *count += 1;
    }
    found
}

/// `docs/how-to/../README.md` is `docs/README.md`.
fn normal(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => assert!(parts.pop(), "{} leads out", path.display()),
            other => parts.push(other),
        }
    }
    parts
}

/// The relative links of a page: the line, the path from the root of the project, and the anchor.
fn links(name: &str, text: &str) -> Vec<(usize, PathBuf, Option<String>)> {
    let link = Regex::new(r"\]\(([^)\s]+)\)").unwrap();
    let directory = Path::new(name).parent().unwrap();
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        for target in link.captures_iter(line).map(|link| link[1].to_owned()) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = target
                .split_once('#')
                .map_or((target.as_str(), None), |(path, anchor)| {
                    (path, Some(anchor.to_owned()))
                });
            let path = if path.is_empty() {
                PathBuf::from(name)
            } else {
                normal(&directory.join(path))
            };
            found.push((number, path, anchor));
        }
    }
    found
}

/// A reader who follows a link arrives.
#[test]
fn every_link_of_the_documentation_leads_to_a_file_and_a_heading() {
    let mut invalid = Vec::new();
    let mut checked = 0;
    let others = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| (name.to_owned(), page(name)));
    for (name, text) in pages().into_iter().chain(others) {
        for (number, path, anchor) in links(&name, &text) {
            checked += 1;
            let shown = format!("{name}:{number}: {}", path.display());
            if !super::root().join(&path).exists() {
                invalid.push(shown);
                continue;
            }
            let Some(anchor) = anchor else { continue };
            let target = page(path.to_str().unwrap());
            if !anchors(&target).contains(&anchor) {
                invalid.push(format!("{shown}#{anchor}"));
            }
        }
    }
    assert!(checked > 300, "{checked} links were found");
    assert!(invalid.is_empty(), "{}", invalid.join("\n"));
}

/// The index leads to every page, with one line for each.
#[test]
fn every_page_is_in_the_index() {
    let index = page("docs/README.md");
    let linked: BTreeSet<PathBuf> = links("docs/README.md", &index)
        .into_iter()
        .map(|(_, path, _)| path)
        .collect();
    let missing: Vec<_> = pages()
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| name != "docs/README.md" && !linked.contains(Path::new(name)))
        .collect();
    assert!(missing.is_empty(), "{missing:#?}");
}
