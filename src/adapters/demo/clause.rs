//! The words of a clause without quotes and courtesy, and the rule that they match.

use regex::Captures;

use super::english::english;
use super::language::Act;

/// Longest message in bytes that the patterns are tried on. No request that this model knows is longer.
pub(super) const MAX_MESSAGE: usize = 2_000;

/// Normalizes quotes, apostrophes and white space.
pub(super) fn normal(text: &str) -> String {
    let text: String = text
        .chars()
        .map(|c| match c {
            '’' | '‘' | '`' => '\'',
            '“' | '”' | '„' | '«' | '»' => '"',
            c => c,
        })
        .collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Removes courtesy from a clause.
pub(super) fn trimmed(clause: &str) -> &str {
    let mut rest = clause.trim();
    while let Some(found) = english().lead.find(rest).filter(|found| !found.is_empty()) {
        rest = rest[found.end()..].trim_start();
    }
    while let Some(found) = english().trail.find(rest).filter(|found| !found.is_empty()) {
        rest = rest[..found.start()].trim_end();
    }
    rest
}

pub(super) fn rule(clause: &str) -> Option<(Act, Captures<'_>)> {
    english()
        .rules
        .iter()
        .find_map(|(act, rule)| rule.captures(clause).map(|captures| (*act, captures)))
}

pub(super) fn unquoted(text: &str) -> &str {
    text.trim().trim_matches(['"', '\'']).trim()
}
