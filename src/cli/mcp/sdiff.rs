//! Two texts side by side, with equal lines in one row.

use similar::{Algorithm, capture_diff_slices};

use crate::cli::table::clipped;

/// The longest left side, in characters. A longer line is clipped if the right side shows it in full; otherwise it
/// pushes the right side out.
const MOST_LEFT: usize = 60;

/// Lays out `left` and `right` side by side under their heads.
pub(super) fn side_by_side(left_head: &str, left: &str, right_head: &str, right: &str) -> String {
    let (before, after): (Vec<_>, Vec<_>) = (left.lines().collect(), right.lines().collect());
    let longest = before
        .iter()
        .chain([&left_head])
        .map(|line| line.chars().count())
        .max()
        .unwrap_or(0);
    let width = longest.min(MOST_LEFT);
    let mut text = format!("  {left_head:<width$}   {right_head}\n");
    for (one, other) in rows(&before, &after) {
        let mark = match (one, other) {
            (Some(one), Some(other)) if one == other => ' ',
            (Some(_), Some(_)) => '|',
            (Some(_), None) => '<',
            (None, _) => '>',
        };
        let left = match mark {
            ' ' => clipped(one.unwrap_or_default(), width),
            _ => one.unwrap_or_default().to_owned(),
        };
        let row = format!("  {left:<width$} {mark} {}", other.unwrap_or_default());
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

type Row<'a> = (Option<&'a str>, Option<&'a str>);

/// Pairs equal lines, and the lines of a change as far as both sides have one.
fn rows<'a>(before: &[&'a str], after: &[&'a str]) -> Vec<Row<'a>> {
    let mut rows = Vec::new();
    for change in capture_diff_slices(Algorithm::Myers, before, after) {
        let (left, right) = (&before[change.old_range()], &after[change.new_range()]);
        rows.extend((0..left.len().max(right.len())).map(|row| (left.get(row).copied(), right.get(row).copied())));
    }
    rows
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn same_lines_share_a_row_and_changes_are_marked() {
        let text = side_by_side("left", "{\n a\n b\n c\n}", "right", "{\n b\n d\n}");
        assert_eq!(
            text,
            "  left   right\n  {      {\n   a   <\n   b      b\n   c   |  d\n  }      }\n"
        );
        let text = side_by_side("l", "a", "r", "a\nb");
        assert_eq!(text, "  l   r\n  a   a\n    > b\n");
    }

    proptest! {
        #[test]
        fn no_line_is_lost_or_moved(before in "([ab]\n){0,8}", after in "([abc]\n){0,8}") {
            let (left, right): (Vec<_>, Vec<_>) = (before.lines().collect(), after.lines().collect());
            let rows = rows(&left, &right);
            prop_assert_eq!(rows.iter().filter_map(|row| row.0).collect::<Vec<_>>(), left);
            prop_assert_eq!(rows.iter().filter_map(|row| row.1).collect::<Vec<_>>(), right);
        }
    }
}
