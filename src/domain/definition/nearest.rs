//! The known name nearest to a mistyped one.

/// The candidate with the fewest edits from `name`, if that is at most a third of its letters.
/// Letter case, `_` and `-` do not count as a difference. A name with no letter in common is not near, however short it is.
pub(crate) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = plain(name);
    let most = (plain.len() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (edits(&plain, &self::plain(candidate)), candidate))
        .filter(|(edits, _)| *edits <= most && *edits < plain.len())
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

fn plain(name: &str) -> Vec<char> {
    // A longer name is no misspelling of a field, and the table below is quadratic.
    let letters = name.chars().filter(|c| !matches!(c, '_' | '-')).take(64);
    letters.flat_map(char::to_lowercase).collect()
}

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
fn edits(a: &[char], b: &[char]) -> usize {
    // Row i, column j: the edits that turn the first i letters of `a` into the first j of `b`.
    let mut rows: Vec<Vec<usize>> = (0..=a.len()).map(|i| (i..=i + b.len()).collect()).collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = least;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

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
    }
}
