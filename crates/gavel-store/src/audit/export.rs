//! Verifies an export of the audit log, line by line.

use std::io::BufRead;

use super::AuditRow;
use super::chain::Head;
use super::log::AuditKeys;
use super::verify::Verifier;

/// An export: one row per line, and the head on the last line.
impl Verifier {
    /// Verifies an export with these keys. `open` starts a new read: the export is read twice, first for its head.
    ///
    /// # Errors
    /// The export cannot be read, or a line is not one of an export.
    pub fn of_export<R: BufRead>(
        keys: &AuditKeys,
        kept: Vec<Head>,
        open: impl Fn() -> std::io::Result<R>,
    ) -> std::io::Result<Self> {
        let (mut head, mut follows) = (None, None);
        let mut misplaced = None;
        each_line(open()?, |line| match line {
            Line::Head { head: found, after } => {
                misplaced = misplaced.or(head
                    .replace(found)
                    .is_some()
                    .then_some("more than one line with a head"));
                follows = after;
            }
            Line::Row(_) => {
                misplaced = misplaced.or(head.is_some().then_some("rows after its head"));
            }
        })?;
        if let Some(misplaced) = misplaced {
            let problem = format!("it has {misplaced}, so it is not a single export; verify each export separately");
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, problem));
        }
        let mut verifier = Self::new(keys.0.clone(), Some(head), kept);
        if let Some(after) = follows {
            verifier.follows(after);
        }
        each_line(open()?, |line| {
            if let Line::Row(row) = line {
                verifier.row(&row);
            }
        })?;
        verifier.end();
        Ok(verifier)
    }
}

/// A line of an export.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Line {
    Head {
        head: Head,
        /// What the first row follows, if the export is a part.
        after: Option<Head>,
    },
    Row(Box<AuditRow>),
}

fn each_line(reader: impl BufRead, mut take: impl FnMut(Line)) -> std::io::Result<()> {
    for (n, line) in (1..).zip(reader.lines()) {
        let line = line?;
        let line = serde_json::from_str(&line).map_err(|error| {
            let problem = format!("line {n} is not a line of an audit export: {error}");
            std::io::Error::new(std::io::ErrorKind::InvalidData, problem)
        })?;
        take(line);
    }
    Ok(())
}
