//! Finds where a row was written, if not where it is now.

use super::super::chain::{AuditRow, FORMAT};
use super::super::finding::Finding;
use super::Verifier;

/// Total number of positions tried for misplaced rows: about one second of work.
pub(super) const TRIES: i64 = 1 << 20;

impl Verifier {
    /// Whether the key that the row names made its hash. `None` if that key is missing.
    pub(super) fn genuine(&self, row: &AuditRow) -> Option<bool> {
        let key = self.keys.get(&row.key_id)?;
        Some(row.format == FORMAT && key.sign(row) == row.hash)
    }

    /// Reports an invalid row: it was moved, or `unless_moved` applies. A genuine row that follows its hash shows that
    /// gavel wrote it.
    pub(super) fn decide(&mut self, row: &AuditRow, unless_moved: Finding) {
        self.invalid = true;
        let number = row.number;
        let moved = self.written_as(row);
        self.find(moved.map_or(unless_moved, |written_as| Finding::Reordered { number, written_as }));
    }

    /// The position at which the row is genuine, if there is one; near positions first.
    fn written_as(&mut self, row: &AuditRow) -> Option<i64> {
        let key = self.keys.get(&row.key_id)?;
        let mut moved = row.clone();
        // A row cannot have been written much further away than the number of rows.
        for distance in 1..row.number.saturating_mul(2).max(4096) {
            let places = [row.number.saturating_sub(distance), row.number.saturating_add(distance)];
            for place in places.into_iter().filter(|place| *place >= 1) {
                if self.tries == 0 {
                    return None;
                }
                self.tries -= 1;
                moved.number = place;
                if key.sign(&moved) == row.hash {
                    return Some(place);
                }
            }
        }
        None
    }
}
