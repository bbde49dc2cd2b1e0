//! Tables for a terminal.

use super::output::printable;

/// Aligns `rows` under `heads`. The last column is not padded; every cell is one line.
pub(super) fn table(heads: &[&str], rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|cell| single_line(cell)).collect())
        .collect();
    let widths: Vec<usize> = (0..heads.len())
        .map(|column| {
            let cells = rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count());
            cells.chain([heads[column].chars().count()]).max().unwrap_or(0)
        })
        .collect();
    let heads: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
    let mut text = String::new();
    for row in std::iter::once(&heads).chain(&rows) {
        let padded = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        text.push_str(padded.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// The first `most` characters; an ellipsis marks omitted text.
pub(super) fn clipped(text: &str, most: usize) -> String {
    let text = single_line(text);
    if text.chars().count() <= most {
        return text;
    }
    let mut clipped: String = text.chars().take(most.saturating_sub(1)).collect();
    clipped.push('…');
    clipped
}

/// The text on one line, as output shows it.
pub(super) fn single_line(text: &str) -> String {
    printable(text).replace(['\n', '\t'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_every_row_is_one_line() {
        let rows = [
            vec!["a".to_owned(), "two\nlines".to_owned()],
            vec!["longer".to_owned(), String::new()],
        ];
        assert_eq!(
            table(&["x", "what"], &rows),
            "x       what\na       two lines\nlonger\n"
        );
    }

    #[test]
    fn what_is_clipped_says_so() {
        assert_eq!(clipped("abcdef", 6), "abcdef");
        assert_eq!(clipped("abcdefg", 6), "abcde…");
        assert_eq!(clipped("ä\u{1b}ö", 9), "ä\\u001bö");
    }
}
