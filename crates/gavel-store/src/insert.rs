//! Multi-row inserts with few distinct texts, so that each is prepared once: 13 rows become one statement of 8 rows,
//! one of 4 and one of 1.

use super::db::{Conn, Value};

/// Maximum rows of a statement. Larger statements were no faster when measured, and cost memory.
const MAX_ROWS: usize = 32;

/// One insert, in every size.
pub(super) struct Insert {
    /// Indexed by the logarithm of the size.
    texts: Vec<String>,
    columns: usize,
}

impl Insert {
    /// `head VALUES row, row … tail`; `row` has one `?` for each value.
    pub(super) fn new(head: &str, row: &str, tail: &str) -> Self {
        let text = |log: u32| format!("{head} VALUES {} {tail}", vec![row; 1_usize << log].join(", "));
        Self {
            texts: (0..=MAX_ROWS.ilog2()).map(text).collect(),
            columns: row.matches('?').count(),
        }
    }

    pub(super) fn rows(&self, values: &[Value]) -> usize {
        values.len() / self.columns
    }

    /// Inserts `values`, row after row; returns how many rows were inserted or updated.
    pub(super) async fn run(&'static self, conn: &mut Conn, values: Vec<Value>) -> Result<u64, sqlx::Error> {
        debug_assert_eq!(values.len() % self.columns, 0, "whole rows");
        let mut rows = self.rows(&values);
        let mut values = values.into_iter();
        let mut changed = 0;
        while rows > 0 {
            let log = rows.min(MAX_ROWS).ilog2();
            let size = 1_usize << log;
            let chunk = values.by_ref().take(size * self.columns).collect();
            changed += conn.execute(self.texts[log as usize].as_str(), chunk).await?;
            rows -= size;
        }
        Ok(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_text_for_each_power_of_two() {
        let insert = Insert::new("INSERT INTO t (a, b)", "(?, ?)", "ON CONFLICT DO NOTHING");
        assert_eq!(insert.texts.len(), 6);
        assert_eq!(
            insert.texts[1],
            "INSERT INTO t (a, b) VALUES (?, ?), (?, ?) ON CONFLICT DO NOTHING"
        );
        assert_eq!(insert.columns, 2);
    }
}
