//! Verifies the chain without trusting its contents.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;
use uuid::Uuid;

use super::chain::{AuditRow, BEGINNING, FORMAT, Head, Signer};
use super::triggers::TriggerDamage;
use super::{AuditKind, TEXTS, field};
use crate::domain::action::Resolution;
use crate::domain::canonical::hash;

/// Maximum number of reported findings; there may be as many as rows.
const MOST_REPORTED: usize = 1000;

/// Reads rows in order, one by one, and remembers the last.
pub struct Verifier {
    keys: BTreeMap<String, Signer>,
    /// The head in the database; `Some(None)` if the database has lost it.
    head: Option<Option<Head>>,
    kept: HashMap<i64, Vec<Head>>,
    /// What the first row follows: number 0 at the beginning of the chain.
    pub after: Head,
    /// The last row that was read, which the next one follows.
    pub last: Head,
    /// Whether the last row is known to be invalid.
    invalid: bool,
    /// For each missing key: its first row, its last row, and their number.
    unknown: BTreeMap<String, (i64, i64, u64)>,
    /// The first row with a valid hash of a known key.
    first_genuine: Option<i64>,
    /// A row without a valid hash, until the next row shows whether it follows it.
    in_doubt: Option<AuditRow>,
    /// Calls that required approval and are not approved.
    unapproved: HashSet<Uuid>,
    /// Grants and the calls that they cover; `None` for a revoked one.
    grants: HashMap<Uuid, Option<GrantScope>>,
    tries: i64,
    /// How many rows were read.
    pub rows: u64,
    /// The number of findings.
    pub found: u64,
    /// The findings, at most the first 1,000.
    pub findings: Vec<Finding>,
}

impl Verifier {
    /// Creates a verifier with keys, the head in the database, and heads that were kept elsewhere.
    pub(super) fn new(keys: Vec<Signer>, head: Option<Option<Head>>, heads: Vec<Head>) -> Self {
        let mut kept: HashMap<i64, Vec<Head>> = HashMap::new();
        for head in heads {
            kept.entry(head.number).or_default().push(head);
        }
        let beginning = Head {
            number: 0,
            hash: BEGINNING.to_owned(),
        };
        Self {
            keys: keys.into_iter().map(|key| (key.id().to_owned(), key)).collect(),
            head,
            kept,
            after: beginning.clone(),
            last: beginning,
            invalid: false,
            unknown: BTreeMap::new(),
            first_genuine: None,
            in_doubt: None,
            unapproved: HashSet::new(),
            grants: HashMap::new(),
            tries: TRIES,
            rows: 0,
            found: 0,
            findings: Vec::new(),
        }
    }

    /// Declares the rows as the part of the chain that follows `after`. The part itself claims that, so rows between an
    /// earlier kept head and `after` count as missing.
    pub(super) fn follows(&mut self, after: Head) {
        let before = self.kept.keys().copied();
        if let Some(kept) = before.filter(|kept| *kept < after.number).max() {
            let (from, to) = (kept + 1, after.number);
            self.find(Finding::Missing { from, to });
        }
        self.last = after.clone();
        self.after = after;
        self.compare();
    }

    /// Whether nothing can be missing before the first row: the chain starts here, or the row follows a kept head.
    pub fn joins(&self) -> bool {
        let kept = self.kept.get(&self.after.number);
        self.after.number == 0 || kept.is_some_and(|kept| kept.contains(&self.after))
    }

    /// Reads the next row.
    pub(super) fn row(&mut self, row: &AuditRow) {
        self.rows += 1;
        if let Some(before) = self.in_doubt.take() {
            let followed = row.previous_hash == before.hash && self.genuine(row) == Some(true);
            let unless_moved = match followed {
                true => Finding::Changed { number: before.number },
                false => Finding::AddedOutside { number: before.number },
            };
            self.decide(&before, unless_moved);
        }
        let number = row.number;
        let gap = Some(number) != self.last.number.checked_add(1);
        if number < 1 {
            self.find(Finding::AddedOutside { number });
            return;
        }
        if number <= self.last.number {
            let after = self.last.number;
            self.find(Finding::OutOfOrder { number, after });
        } else if gap {
            let (from, to) = (self.last.number.saturating_add(1), number.saturating_sub(1));
            self.find(Finding::Missing { from, to });
        }
        let outside = matches!(&self.head, Some(Some(head)) if number > head.number);
        match self.genuine(row) {
            _ if outside => self.find(Finding::AddedOutside { number }),
            None => {
                let (_, to, rows) = self.unknown.entry(row.key_id.clone()).or_insert((number, number, 0));
                (*to, *rows) = (number, *rows + 1);
                self.join(row, gap);
            }
            Some(false) => self.in_doubt = Some(row.clone()),
            Some(true) => {
                self.first_genuine.get_or_insert(number);
                self.join(row, gap);
            }
        }
        self.check_approval(row);
        self.last = Head {
            number,
            hash: row.hash.clone(),
        };
        self.compare();
    }

    /// Checks that the row follows the previous one. If the previous row is invalid, that row is already reported.
    fn join(&mut self, row: &AuditRow, gap: bool) {
        if row.previous_hash != self.last.hash && !gap && !self.invalid {
            self.find(Finding::DoesNotFollow { number: row.number });
        }
        self.invalid = false;
    }

    /// Compares the last row with the heads in the database and elsewhere.
    fn compare(&mut self) {
        let expected = self.last.clone();
        if let Some(Some(head)) = self.head.clone()
            && head.number == expected.number
            && head.hash != expected.hash
        {
            self.find(Finding::HeadMismatch {
                head,
                expected: expected.clone(),
            });
        }
        let kept = self.kept.get(&expected.number).into_iter().flatten();
        let others: Vec<_> = kept.filter(|kept| kept.hash != expected.hash).cloned().collect();
        for kept in others {
            let hash = expected.hash.clone();
            self.find(Finding::Rewritten { kept, hash });
        }
    }

    /// Ends the rows and reports the remaining findings.
    pub(super) fn end(&mut self) {
        for (key_id, (from, to, rows)) in std::mem::take(&mut self.unknown) {
            self.find(Finding::UnknownKey { from, to, rows, key_id });
        }
        let beside = || self.head.iter().flatten();
        let kept = || self.kept.values().flatten();
        let known = beside().chain(kept()).map(|head| head.number).max();
        if let Some(last) = self.in_doubt.clone() {
            let number = last.number;
            let names = |head: &Head| head.number == number && head.hash == last.hash;
            let unless_moved = if kept().any(names) {
                Finding::Changed { number }
            } else if beside().any(names) {
                Finding::ChangedOrAdded { number }
            } else {
                Finding::AddedOutside { number }
            };
            self.decide(&last, unless_moved);
        }
        let from = self.last.number.saturating_add(1);
        if let Some(to) = known.filter(|to| *to >= from) {
            self.find(Finding::CutOff { from, to });
        }
        if self.last.number == 0 {
            self.compare();
        }
        if self.head == Some(None) {
            self.find(Finding::NoHead);
        }
    }

    /// Adds a finding.
    pub(super) fn find(&mut self, finding: Finding) {
        self.found += 1;
        if self.findings.len() < MOST_REPORTED {
            self.findings.push(finding);
        }
    }

    /// Whether missing keys are the only finding, as after the loss of a key. Their rows must be at the beginning of
    /// the chain: a row with an unknown key after a genuine one was inserted.
    pub fn lacks_keys_alone(&self) -> bool {
        let lacking = |finding: &Finding| match finding {
            Finding::UnknownKey { to, .. } => self.first_genuine.is_none_or(|first| *to < first),
            _ => false,
        };
        self.found > 0 && self.found == self.findings.len() as u64 && self.findings.iter().all(lacking)
    }
}

// Whether each side effect that starts was approved or covered by a grant.

/// The calls that a grant covers, without their recipients; from the entry of a grant, or of a call that uses one.
#[derive(PartialEq, Eq)]
struct GrantScope {
    tenant: String,
    tool: Option<String>,
    rest: [Option<String>; 3],
}

impl GrantScope {
    fn of(row: &AuditRow) -> Self {
        Self {
            tenant: row.tenant.clone(),
            tool: row.tool.clone(),
            rest: ["user", "server", "tool_digest"].map(|name| field(&row.detail, name)),
        }
    }
}

impl Verifier {
    /// Whether a side effect that starts is approved, or covered by a grant that was created and not revoked. For a
    /// part of the chain, earlier grants are unknown.
    fn check_approval(&mut self, row: &AuditRow) {
        let Ok(action) = Uuid::parse_str(&row.subject) else {
            return;
        };
        let approves =
            || field(&row.detail, "decision").is_some_and(|decision| decision != Resolution::Reject.as_str());
        match AuditKind::parse(&row.kind) {
            Some(AuditKind::ApprovalRequested | AuditKind::ApprovalExpired) => {
                self.unapproved.insert(action);
            }
            Some(AuditKind::ApprovalResolved) if approves() => {
                self.unapproved.remove(&action);
            }
            Some(AuditKind::GrantCreated) => {
                self.grants.insert(action, Some(GrantScope::of(row)));
            }
            Some(AuditKind::GrantRevoked) => {
                self.grants.insert(action, None);
            }
            Some(AuditKind::EffectIntended) => {
                let asked = self.unapproved.remove(&action);
                let without = match field(&row.detail, "grant_id") {
                    Some(grant) => match Uuid::parse_str(&grant).ok().and_then(|grant| self.grants.get(&grant)) {
                        Some(given) => given.as_ref() != Some(&GrantScope::of(row)),
                        None => self.after.number == 0,
                    },
                    None => asked,
                };
                if without {
                    self.find(Finding::Unapproved {
                        number: row.number,
                        action_id: row.subject.clone(),
                    });
                }
            }
            _ => {}
        }
    }
}

// Finds where a row was written, if not where it is now.

/// Total number of positions tried for misplaced rows: about one second of work.
const TRIES: i64 = 1 << 20;

impl Verifier {
    /// Whether the key that the row names made its hash. `None` if that key is missing.
    fn genuine(&self, row: &AuditRow) -> Option<bool> {
        let key = self.keys.get(&row.key_id)?;
        let are_entered = row
            .texts
            .as_ref()
            .is_none_or(|texts| field(&row.detail, TEXTS).as_deref() == Some(&*hash(texts)));
        Some(row.format == FORMAT && are_entered && key.sign(&unsigned(row)) == row.hash)
    }

    /// Reports an invalid row: it was moved, or `unless_moved` applies. A genuine row that follows its hash shows that
    /// gavel wrote it.
    fn decide(&mut self, row: &AuditRow, unless_moved: Finding) {
        self.invalid = true;
        let number = row.number;
        let moved = self.written_as(row);
        self.find(moved.map_or(unless_moved, |written_as| Finding::Reordered { number, written_as }));
    }

    /// The position at which the row is genuine, if there is one; near positions first.
    fn written_as(&mut self, row: &AuditRow) -> Option<i64> {
        let key = self.keys.get(&row.key_id)?;
        let mut moved = unsigned(row);
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

/// The row as it was signed.
fn unsigned(row: &AuditRow) -> AuditRow {
    AuditRow {
        hash: String::new(),
        texts: None,
        ..row.clone()
    }
}

/// A problem in the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "finding", rename_all = "snake_case")]
pub enum Finding {
    /// Rows between others are missing.
    #[error("missing: {}", range(*from, *to))]
    Missing {
        /// The first of them.
        from: i64,
        /// The last of them.
        to: i64,
    },
    /// In an export, a row follows one with a higher number, or follows itself: the export was assembled from several.
    #[error("out of order: row {number} follows row {after}; verify each export separately")]
    OutOfOrder {
        /// The row.
        number: i64,
        /// The row before it.
        after: i64,
    },
    /// Rows at the end are missing: the head, or a head that was kept elsewhere, names them.
    #[error("cut off at the end: {}", range(*from, *to))]
    CutOff {
        /// The first of them.
        from: i64,
        /// The last of them.
        to: i64,
    },
    /// The row is not what was written, though the next one follows it.
    #[error("changed: row {number} is not what was written")]
    Changed {
        /// The row.
        number: i64,
    },
    /// A row was written at another position.
    #[error("reordered: row {number} was written as row {written_as}")]
    Reordered {
        /// Its position now.
        number: i64,
        /// Its position when it was written.
        written_as: i64,
    },
    /// The row was not written by gavel: no known key made its hash, and no row follows it.
    #[error("added outside: {}", outside(*number))]
    AddedOutside {
        /// The row.
        number: i64,
    },
    /// The last row is not what gavel wrote, and only the head in the same database names it. It was changed, or it was
    /// added together with that head. A head that was kept elsewhere decides which.
    #[error(
        "changed, or added outside: the last row, {number}, is not what gavel wrote; the head in the same database \
             is no proof"
    )]
    ChangedOrAdded {
        /// The row.
        number: i64,
    },
    /// The row is genuine, but follows another row than the previous one: the previous one was replaced.
    #[error("replaced: row {number} follows another row than the one before it")]
    DoesNotFollow {
        /// The row.
        number: i64,
    },
    /// The key that rows refer to is missing, so they cannot be verified.
    #[error("cannot be verified: {} with the key {key_id}, which is missing; set it in audit.key or audit.old_keys. \
         If gavel never had this key, gavel did not write these rows", range(*from, *to))]
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
    #[error("head mismatch: the head in the database is {head}, the last row is {expected}")]
    HeadMismatch {
        /// The head in the database.
        head: Head,
        /// The expected head.
        expected: Head,
    },
    /// The database has no head.
    #[error("head mismatch: there is no head; the table audit_head has lost its row, or the export its last line")]
    NoHead,
    /// The row of a head that was kept elsewhere has another hash now: the chain was rewritten.
    #[error("rewritten: row {} had the hash {} when its head was kept, and has {hash} now", kept.number, kept.hash)]
    Rewritten {
        /// The kept head.
        kept: Head,
        /// The hash of the row now.
        hash: String,
    },
    /// A side effect in the tool-call log has no audit entry.
    #[error("not entered: the side effect {action_id} of decision {decision_id} ({status}) has no entry")]
    NotEntered {
        /// Its decision.
        decision_id: String,
        /// The tool call.
        action_id: String,
        /// Its status in the log.
        status: String,
    },
    /// The tool-call log and the audit log have different outcomes of a side effect.
    #[error(
        "mismatch: in the tool-call log the side effect {action_id} of decision {decision_id} is {status}, but \
         not in the audit log"
    )]
    OutcomeMismatch {
        /// Its decision.
        decision_id: String,
        /// The tool call.
        action_id: String,
        /// Its status in the log.
        status: String,
    },
    /// The tool-call log and the audit log differ in other facts about a side effect.
    #[error("mismatch: the tool-call log and the audit log differ in {} of the side effect {action_id} of \
         decision {decision_id}", differs.join(", "))]
    EffectDiffers {
        /// Its decision.
        decision_id: String,
        /// The tool call.
        action_id: String,
        /// The facts that differ.
        differs: Vec<&'static str>,
    },
    /// An approval request, or its resolution, differs from the audit log.
    #[error("mismatch: the approval request for the call {action_id} and the audit log differ in {}", differs.join(", "))]
    ApprovalDiffers {
        /// The tool call.
        action_id: String,
        /// The facts that differ.
        differs: Vec<&'static str>,
    },
    /// A side effect started without a required approval, or under a grant that did not exist then or had been revoked.
    #[error(
        "unapproved: row {number} starts the side effect {action_id}, which was neither approved nor covered by a valid grant"
    )]
    Unapproved {
        /// The row of its start.
        number: i64,
        /// The tool call.
        action_id: String,
    },
    /// A grant that was not created as its row says.
    #[error(
        "grant unrecorded: the grant {grant_id} does not match its audit entries; revoke it: gavel approvals revoke {grant_id}"
    )]
    GrantUnrecorded {
        /// The grant.
        grant_id: String,
    },
    /// A trigger that keeps the audit log append-only differs from the migration.
    #[error("{0}")]
    Trigger(TriggerDamage),
}

fn range(from: i64, to: i64) -> String {
    match from == to {
        true => format!("row {from}"),
        false => format!("rows {from} to {to}"),
    }
}

fn outside(number: i64) -> String {
    match number < 1 {
        true => "a row with a number that gavel never uses".to_owned(),
        false => format!("row {number} was not written by gavel"),
    }
}
