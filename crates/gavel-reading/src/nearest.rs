//! The known name nearest to a mistyped one.

/// The most letters of a name that are compared. No name is longer, and a longer text is not a misspelled name.
const MOST_LETTERS: usize = 64;

/// The most edits of a typing error. A name may be compared with hundreds, together with many others, so each pair must
/// be cheap.
const MOST_EDITS: usize = 4;

/// The candidate with the fewest edits from `name`, if that is at most a third of its letters. Letter case, `_` and `-`
/// do not count as a difference. A name with no letter in common is never similar, however short it is.
#[must_use]
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
#[must_use]
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
