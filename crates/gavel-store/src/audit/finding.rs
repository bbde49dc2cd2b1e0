//! What can be wrong with the audit log, as the operator reads it.

use std::fmt;

use serde::Serialize;

use super::chain::Head;
use super::triggers::TriggerDamage;

/// A problem in the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "finding", rename_all = "snake_case")]
pub enum Finding {
    /// Rows between others are missing.
    Missing {
        /// The first of them.
        from: i64,
        /// The last of them.
        to: i64,
    },
    /// In an export, a row follows one with a higher number, or follows itself: the export was assembled from several.
    OutOfOrder {
        /// The row.
        number: i64,
        /// The row before it.
        after: i64,
    },
    /// Rows at the end are missing: the head, or a head that was kept elsewhere, names them.
    CutOff {
        /// The first of them.
        from: i64,
        /// The last of them.
        to: i64,
    },
    /// The row is not what was written, though the next one follows it.
    Changed {
        /// The row.
        number: i64,
    },
    /// A row was written at another position.
    Reordered {
        /// Its position now.
        number: i64,
        /// Its position when it was written.
        written_as: i64,
    },
    /// The row was not written by gavel: no known key made its hash, and no row follows it.
    AddedOutside {
        /// The row.
        number: i64,
    },
    /// The last row is not what gavel wrote, and only the head in the same database names it. It was changed, or it was
    /// added together with that head. A head that was kept elsewhere decides which.
    ChangedOrAdded {
        /// The row.
        number: i64,
    },
    /// The row is genuine, but follows another row than the previous one: the previous one was replaced.
    DoesNotFollow {
        /// The row.
        number: i64,
    },
    /// The key that rows refer to is missing, so they cannot be verified.
    UnknownKey {
        /// The first of these rows.
        from: i64,
        /// The last of them.
        to: i64,
        /// Their number; other rows may be between them.
        rows: u64,
        /// The id of their key.
        key_id: String,
    },
    /// The head in the database does not match the last row.
    HeadMismatch {
        /// The head in the database.
        head: Head,
        /// The expected head.
        expected: Head,
    },
    /// The database has no head.
    NoHead,
    /// The row of a head that was kept elsewhere has another hash now: the chain was rewritten.
    Rewritten {
        /// The kept head.
        kept: Head,
        /// The hash of the row now.
        hash: String,
    },
    /// A side effect in the tool-call log has no audit entry.
    NotEntered {
        /// Its decision.
        decision_id: String,
        /// The tool call.
        action_id: String,
        /// Its status in the log.
        status: String,
    },
    /// The tool-call log and the audit log have different outcomes of a side effect.
    OutcomeMismatch {
        /// Its decision.
        decision_id: String,
        /// The tool call.
        action_id: String,
        /// Its status in the log.
        status: String,
    },
    /// The tool-call log and the audit log differ in other facts about a side effect.
    EffectDiffers {
        /// Its decision.
        decision_id: String,
        /// The tool call.
        action_id: String,
        /// The facts that differ.
        differs: Vec<&'static str>,
    },
    /// An approval request, or its resolution, differs from the audit log.
    ApprovalDiffers {
        /// The tool call.
        action_id: String,
        /// The facts that differ.
        differs: Vec<&'static str>,
    },
    /// A side effect started without a required approval, or under a grant that did not exist then or had been revoked.
    Unapproved {
        /// The row of its start.
        number: i64,
        /// The tool call.
        action_id: String,
    },
    /// A grant that was not created as its row says.
    GrantUnrecorded {
        /// The grant.
        grant_id: String,
    },
    /// A trigger that keeps the audit log append-only differs from the migration.
    Trigger(TriggerDamage),
}

impl fmt::Display for Finding {
    // Longer than a screen: a table, with one line for each finding.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = |from: &i64, to: &i64| match from == to {
            true => format!("row {from}"),
            false => format!("rows {from} to {to}"),
        };
        match self {
            Self::Missing { from, to } => write!(f, "missing: {}", rows(from, to)),
            Self::OutOfOrder { number, after } => {
                write!(
                    f,
                    "out of order: row {number} follows row {after}; verify each export separately"
                )
            }
            Self::CutOff { from, to } => write!(f, "cut off at the end: {}", rows(from, to)),
            Self::Changed { number } => write!(f, "changed: row {number} is not what was written"),
            Self::Reordered { number, written_as } => {
                write!(f, "reordered: row {number} was written as row {written_as}")
            }
            Self::AddedOutside { number } if *number < 1 => {
                f.write_str("added outside: a row with a number that gavel never uses")
            }
            Self::AddedOutside { number } => write!(f, "added outside: row {number} was not written by gavel"),
            Self::ChangedOrAdded { number } => write!(
                f,
                "changed, or added outside: the last row, {number}, is not what gavel wrote; the head in the same database \
                 is no proof"
            ),
            Self::DoesNotFollow { number } => {
                write!(f, "replaced: row {number} follows another row than the one before it")
            }
            Self::UnknownKey { from, to, key_id, .. } => write!(
                f,
                "cannot be verified: {} with the key {key_id}, which is missing; set it in audit.key or audit.old_keys. \
                 If gavel never had this key, gavel did not write these rows",
                rows(from, to)
            ),
            Self::HeadMismatch { head, expected } => {
                write!(
                    f,
                    "head mismatch: the head in the database is {head}, the last row is {expected}"
                )
            }
            Self::NoHead => write!(
                f,
                "head mismatch: there is no head; the table audit_head has lost its row, or the export its last line"
            ),
            Self::Rewritten { kept, hash } => write!(
                f,
                "rewritten: row {} had the hash {} when its head was kept, and has {hash} now",
                kept.number, kept.hash
            ),
            Self::NotEntered {
                decision_id,
                action_id,
                status,
            } => write!(
                f,
                "not entered: the side effect {action_id} of decision {decision_id} ({status}) has no entry"
            ),
            Self::OutcomeMismatch {
                decision_id,
                action_id,
                status,
            } => write!(
                f,
                "mismatch: in the tool-call log the side effect {action_id} of decision {decision_id} is {status}, but \
                 not in the audit log"
            ),
            Self::EffectDiffers {
                decision_id,
                action_id,
                differs,
            } => write!(
                f,
                "mismatch: the tool-call log and the audit log differ in {} of the side effect {action_id} of \
                 decision {decision_id}",
                differs.join(", ")
            ),
            Self::ApprovalDiffers { action_id, differs } => write!(
                f,
                "mismatch: the approval request for the call {action_id} and the audit log differ in {}",
                differs.join(", ")
            ),
            Self::Unapproved { number, action_id } => write!(
                f,
                "unapproved: row {number} starts the side effect {action_id}, which was neither approved nor covered by \
                 a valid grant"
            ),
            Self::GrantUnrecorded { grant_id } => write!(
                f,
                "grant unrecorded: the grant {grant_id} does not match its audit entries; revoke it: gavel approvals revoke \
                 {grant_id}"
            ),
            Self::Trigger(damage) => damage.fmt(f),
        }
    }
}
