//! Errors, with their locations.

use std::fmt;

/// An error in one field, with enough detail to fix it without the documentation.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ReadError {
    /// The file name, or what else holds the field, such as a variable; empty if nothing does.
    pub file: String,
    /// The line, from 1; absent if the form has no lines.
    pub line: Option<u64>,
    /// The field as spelled in the file; for a missing field, its first spelling.
    pub field: String,
    /// What was found.
    pub found: String,
    /// What is allowed.
    pub allowed: String,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.file.is_empty() {
            f.write_str(": ")?;
        }
        write!(f, "{}: found {}; allowed: {}", self.field, self.found, self.allowed)
    }
}

impl std::error::Error for ReadError {}

/// The most errors of one file that are listed; the rest are counted.
pub const MOST_REPORTED: usize = 100;

/// The field of the entry that counts the rest.
const REST: &str = "the rest";

/// The longest texts of an error, in bytes. They may quote the whole file.
const LONGEST_FIELD: usize = 200;
const LONGEST_FOUND: usize = 500;
const LONGEST_ALLOWED: usize = 800;

impl ReadError {
    /// Cuts the texts to their limits.
    #[must_use]
    pub fn clipped(mut self) -> Self {
        let texts = [
            (&mut self.field, LONGEST_FIELD),
            (&mut self.found, LONGEST_FOUND),
            (&mut self.allowed, LONGEST_ALLOWED),
        ];
        for (text, most) in texts {
            if text.len() > most {
                text.truncate(text.floor_char_boundary(most));
                text.push('…');
            }
        }
        self
    }

    /// Whether this is the entry that counts the rest.
    pub fn is_rest(&self) -> bool {
        self.line.is_none() && self.field == REST && self.found.ends_with(" more errors")
    }

    /// The entry for `more` errors of one file that are not listed.
    fn more(file: &str, more: usize) -> Self {
        Self {
            file: file.to_owned(),
            line: None,
            field: REST.to_owned(),
            found: format!("{more} more errors"),
            allowed: format!("none; the first {MOST_REPORTED} are listed"),
        }
    }
}

/// Collects the errors of one file.
#[derive(Debug, Default)]
pub struct Errors {
    reported: Vec<ReadError>,
    more: usize,
}

impl Errors {
    /// Adds an error. Its texts are built only if it is listed: there may be as many errors as the file has
    /// bytes.
    pub fn add(&mut self, error: impl FnOnce() -> ReadError) {
        if self.reported.len() < MOST_REPORTED {
            let mut error = error().clipped();
            // A form without lines reports line 0 for everything.
            error.line = error.line.filter(|line| *line > 0);
            self.reported.push(error);
        } else {
            self.more += 1;
        }
    }

    /// Adds an error that is already built.
    pub fn push(&mut self, error: ReadError) {
        self.add(|| error);
    }

    /// The number of errors, listed or not.
    pub fn count(&self) -> usize {
        self.reported.len() + self.more
    }

    /// Whether there are no errors.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// The listed errors.
    pub fn listed(&self) -> &[ReadError] {
        &self.reported
    }

    /// The listed errors sorted by line, and the number of the rest.
    #[must_use]
    pub fn into_vec(self, file: &str) -> Vec<ReadError> {
        let mut reported = self.reported;
        reported.sort_by_key(|error| error.line);
        reported.extend((self.more > 0).then(|| ReadError::more(file, self.more)));
        reported
    }
}

/// The most letters of a name that are compared. No name is longer, and a longer text is not a misspelled name.
const MOST_LETTERS: usize = 64;

/// The most edits of a typing error. A name may be compared with hundreds, together with many others, so each pair must
/// be cheap.
const MOST_EDITS: usize = 4;

/// The candidate with the fewest edits from `name`, if that is at most a third of its letters. Letter case, `_` and `-`
/// do not count as a difference. A name with no letter in common is never similar, however short it is.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > 4 * MOST_LETTERS {
        return None;
    }
    let plain = plain(name);
    let most = (plain.len() / 3).clamp(1, MOST_EDITS);
    candidates
        .into_iter()
        .filter_map(|candidate| Some((edits(&plain, &self::plain(candidate), most)?, candidate)))
        .filter(|(edits, _)| *edits < plain.len())
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

fn plain(name: &str) -> Vec<char> {
    let letters = name.chars().filter(|c| !matches!(c, '_' | '-')).take(MOST_LETTERS);
    letters.flat_map(char::to_lowercase).collect()
}

/// Insertions, deletions, replacements and swaps of neighbors that turn `a` into `b`; `None` for more than `most`.
fn edits(a: &[char], b: &[char], most: usize) -> Option<usize> {
    if a.len().abs_diff(b.len()) > most {
        return None;
    }
    // Row i, column j: the edits that turn the first i letters of `a` into the first j of `b`. Only cells within `most`
    // of the diagonal can be small enough.
    let far = most + 1;
    let mut above = vec![far; b.len() + 1];
    let mut row: Vec<usize> = (0..=b.len()).map(|j| j.min(far)).collect();
    for i in 1..=a.len() {
        let two_above = std::mem::replace(&mut above, row);
        row = vec![far; b.len() + 1];
        row[0] = i.min(far);
        for j in i.saturating_sub(most).max(1)..=(i + most).min(b.len()) {
            let replaced = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(two_above[j - 2] + 1);
            }
            row[j] = least.min(far);
        }
        // A swap comes from two rows above.
        if row.iter().chain(&above).all(|edits| *edits == far) {
            return None;
        }
    }
    row.last().copied().filter(|edits| *edits <= most)
}

/// The most names that are listed if none is similar.
const MOST_NAMES: usize = 20;

/// What is allowed instead of the unknown `name`: the most similar name, or the first of all names.
pub fn unknown_name_message(name: &str, known: &[&str]) -> String {
    if let Some(near) = nearest(name, known.iter().copied()) {
        return format!("did you mean `{near}`?");
    }
    let listed = known[..known.len().min(MOST_NAMES)].join(", ");
    match known.len().saturating_sub(MOST_NAMES) {
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_slip_of_the_finger_finds_its_name() {
        let names = ["description", "tools", "approval", "max_turns"];
        assert_eq!(nearest("descripton", names), Some("description"));
        assert_eq!(nearest("tolos", names), Some("tools"));
        assert_eq!(nearest("maxTurns", names), Some("max_turns"));
        assert_eq!(nearest("colour", names), None);
        assert_eq!(nearest("", names), None);
        assert_eq!(nearest("x", ["r", "year"]), None);
        assert_eq!(nearest("R", ["r", "year"]), Some("r"));
        assert_eq!(nearest("yr", ["r", "year"]), Some("r"));
        assert_eq!(nearest("dscrptn", names), None);
    }

    #[test]
    fn a_name_among_hundreds_of_long_ones_is_found() {
        let names: Vec<_> = (0..512).map(|n| format!("{n:03}{}", "x".repeat(60))).collect();
        let slip = format!("01{}7", "x".repeat(60));
        assert_eq!(nearest(&slip, names.iter().map(String::as_str)), Some(&*names[1]));
    }

    proptest! {
        /// Skipping parts of the table does not change the result.
        #[test]
        fn edits_are_counted_as_in_the_whole_table(a in "[abc]{0,9}", b in "[abc]{0,9}", most in 1..5usize) {
            let (a, b): (Vec<_>, Vec<_>) = (a.chars().collect(), b.chars().collect());
            let whole = edits(&a, &b, a.len().max(b.len()));
            prop_assert_eq!(edits(&a, &b, most), whole.filter(|edits| *edits <= most));
        }
    }
}
