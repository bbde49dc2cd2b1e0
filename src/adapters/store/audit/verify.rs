//! The chain, read by somebody who does not believe it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::AuditKind;
use super::chain::{AuditRow, BEGINNING, FORMAT, Signer};
use super::entry::field;
use super::triggers::TriggerDamage;
use crate::domain::action::Resolution;

/// How many places are tried for rows that stand at a wrong one, all in all: a second of work or so.
const TRIES: i64 = 1 << 20;
/// Findings that are told; there may be as many as rows.
const TOLD: usize = 1000;

/// The last row of the chain: what is to be kept elsewhere. Prints and reads as `NUMBER:HASH`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// How many rows there are.
    pub number: i64,
    /// The hash of the last.
    pub hash: String,
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.number, self.hash)
    }
}

impl FromStr for Head {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "give NUMBER:HASH, as `gavel audit head` prints it".to_owned();
        let (number, hash) = text.trim().split_once(':').ok_or_else(wrong)?;
        let number = number.parse().ok().filter(|number| *number >= 0).ok_or_else(wrong)?;
        let is_hash = hash.len() == BEGINNING.len() && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        let hash = is_hash.then(|| hash.to_ascii_lowercase()).ok_or_else(wrong)?;
        Ok(Self { number, hash })
    }
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "finding", rename_all = "snake_case")]
pub enum Finding {
    /// Rows between others are gone.
    Missing {
        /// The first of them.
        from: i64,
        /// The last of them.
        to: i64,
    },
    /// A row stands in an export after one with a higher number, or after itself: it was put together.
    OutOfOrder {
        /// Which.
        number: i64,
        /// The row before it.
        after: i64,
    },
    /// Rows at the end are gone: the head, or one that was kept elsewhere, knows them.
    CutOff {
        /// The first of them.
        from: i64,
        /// The last of them.
        to: i64,
    },
    /// The row is not what was written, though the next one follows it.
    Changed {
        /// Which.
        number: i64,
    },
    /// A row was written at another place.
    Reordered {
        /// Where it stands.
        number: i64,
        /// Where it was written.
        written_as: i64,
    },
    /// The row was not written by gavel: no key of ours made its hash, and nothing follows it.
    AddedOutside {
        /// Which.
        number: i64,
    },
    /// The last row is not what gavel wrote, and nobody but the head beside it knows it: it was changed, or was added together with
    /// that head. A head that was kept elsewhere tells.
    ChangedOrAdded {
        /// Which.
        number: i64,
    },
    /// The row is genuine and follows another one than the one before it: that one was replaced.
    DoesNotFollow {
        /// Which.
        number: i64,
    },
    /// The key that rows name is not there, so nobody can say.
    UnknownKey {
        /// The first of these rows.
        from: i64,
        /// The last of them.
        to: i64,
        /// How many there are; there may be others between them.
        rows: u64,
        /// Their key.
        key_id: String,
    },
    /// The head in the database is not that of the last row.
    WrongHead {
        /// What stands there.
        head: Head,
        /// What would be right.
        expected: Head,
    },
    /// There is no head in the database.
    NoHead,
    /// The row that was kept elsewhere has another hash now: the chain was written anew.
    Rewritten {
        /// What was kept.
        kept: Head,
        /// The hash of the row today.
        hash: String,
    },
    /// A side effect of the log of tools that the audit does not know.
    NotEntered {
        /// Of which decision.
        decision_id: String,
        /// Which call.
        action_id: String,
        /// What the log says of it.
        status: String,
    },
    /// The log of tools tells another end of a side effect than the audit.
    ToldOtherwise {
        /// Of which decision.
        decision_id: String,
        /// Which call.
        action_id: String,
        /// What the log says of it.
        status: String,
    },
    /// The log of tools tells other things of a side effect than the audit.
    EffectDiffers {
        /// Of which decision.
        decision_id: String,
        /// Which call.
        action_id: String,
        /// Which things.
        differs: Vec<&'static str>,
    },
    /// A question to a person, or its answer, is another one than the audit has.
    QuestionDiffers {
        /// Of which call.
        action_id: String,
        /// What of it.
        differs: Vec<&'static str>,
    },
    /// A side effect that a person was asked about, and that was begun though nobody had said yes; or by standing leave that nobody
    /// had given then, or that was taken back.
    WithoutLeave {
        /// The row by which it was begun.
        number: i64,
        /// Which call.
        action_id: String,
    },
    /// Standing leave that no person gave as it stands there.
    NotGiven {
        /// Which.
        grant_id: String,
    },
    /// A trigger that keeps the audit append-only is not as gavel made it.
    Trigger(TriggerDamage),
}

impl fmt::Display for Finding {
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
                    "out of order: row {number} stands after row {after}; verify each export by itself"
                )
            }
            Self::CutOff { from, to } => write!(f, "cut off at the end: {}", rows(from, to)),
            Self::Changed { number } => write!(f, "changed: row {number} is not what was written"),
            Self::Reordered { number, written_as } => {
                write!(f, "reordered: row {number} was written as row {written_as}")
            }
            Self::AddedOutside { number } if *number < 1 => {
                f.write_str("added outside: a row with a number that gavel gives to none")
            }
            Self::AddedOutside { number } => write!(f, "added outside: row {number} was not written by gavel"),
            Self::ChangedOrAdded { number } => write!(
                f,
                "changed, or added outside: row {number}, the last, is not what gavel wrote; that the head beside it names it proves nothing"
            ),
            Self::DoesNotFollow { number } => {
                write!(f, "replaced: row {number} follows another row than the one before it")
            }
            Self::UnknownKey { from, to, key_id, .. } => write!(
                f,
                "cannot be verified: {} by the key {key_id}, which is not there; give it in audit.key, or among audit.old_keys. If \
                 gavel never had it, somebody else wrote this",
                rows(from, to)
            ),
            Self::WrongHead { head, expected } => {
                write!(f, "wrong head: the database says {head}, the last row is {expected}")
            }
            Self::NoHead => write!(
                f,
                "wrong head: there is none; audit_head has lost its row, or an export its last line"
            ),
            Self::Rewritten { kept, hash } => write!(
                f,
                "written anew: row {} had the hash {} when its head was kept, and has {hash} now",
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
            Self::ToldOtherwise {
                decision_id,
                action_id,
                status,
            } => write!(
                f,
                "told otherwise: the log says that the side effect {action_id} of decision {decision_id} is {status}, and \
                 the audit does not"
            ),
            Self::EffectDiffers {
                decision_id,
                action_id,
                differs,
            } => write!(
                f,
                "told otherwise: the log and the audit differ in {} of the side effect {action_id} of decision {decision_id}",
                differs.join(", ")
            ),
            Self::QuestionDiffers { action_id, differs } => write!(
                f,
                "told otherwise: the question about the call {action_id} and the audit differ in {}",
                differs.join(", ")
            ),
            Self::WithoutLeave { number, action_id } => write!(
                f,
                "without leave: row {number} begins the side effect {action_id}, and no person had said yes to it, nor given leave for good \
                 that stood"
            ),
            Self::NotGiven { grant_id } => write!(
                f,
                "not given: the standing leave {grant_id} is not as a person gave it; take it back: gavel approvals revoke {grant_id}"
            ),
            Self::Trigger(damage) => damage.fmt(f),
        }
    }
}

/// The calls that standing leave is for, but for their recipients; of a row that gives it, or of a call that begins by it.
#[derive(PartialEq, Eq)]
struct LeaveFor {
    tenant: String,
    tool: Option<String>,
    rest: [Option<String>; 3],
}

impl LeaveFor {
    fn of(row: &AuditRow) -> Self {
        Self {
            tenant: row.tenant.clone(),
            tool: row.tool.clone(),
            rest: ["user", "server", "tool_digest"].map(|name| field(&row.detail, name)),
        }
    }
}

/// Reads rows in their order, one after another, and remembers the last.
pub struct Verifier {
    keys: BTreeMap<String, Signer>,
    /// What the database says of its last row; `Some(None)` where it has lost that.
    head: Option<Option<Head>>,
    kept: HashMap<i64, Vec<Head>>,
    /// What the first row follows.
    after: Head,
    /// What the next row follows.
    last: Head,
    /// Is it known that the last row is wrong?
    wrong: bool,
    /// The rows of each key that is not there: the first, the last, how many.
    unknown: BTreeMap<String, (i64, i64, u64)>,
    /// The first row that a key of ours made.
    first_genuine: Option<i64>,
    /// A row that no key made, until the next one says whether it follows it.
    doubtful: Option<AuditRow>,
    /// Calls that people were asked about, and that they have not approved.
    unapproved: HashSet<Uuid>,
    /// Standing leave that a person has given, while it stands: for which calls.
    grants: HashMap<Uuid, Option<LeaveFor>>,
    tries: i64,
    rows: u64,
    found: u64,
    findings: Vec<Finding>,
}

impl Verifier {
    /// With these keys, what the database says of its head, and heads that were kept elsewhere.
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
            wrong: false,
            unknown: BTreeMap::new(),
            first_genuine: None,
            doubtful: None,
            unapproved: HashSet::new(),
            grants: HashMap::new(),
            tries: TRIES,
            rows: 0,
            found: 0,
            findings: Vec::new(),
        }
    }

    /// The rows are a part of the chain: what follows this one. The part says that of itself, so what a head that was kept shows to
    /// be before it is missing.
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

    /// Is it known that nothing is missing before the first row: it is the first of all, or follows a head that was kept?
    #[must_use]
    pub fn joins(&self) -> bool {
        let kept = self.kept.get(&self.after.number);
        self.after.number == 0 || kept.is_some_and(|kept| kept.contains(&self.after))
    }

    /// The next row.
    pub(super) fn row(&mut self, row: &AuditRow) {
        self.rows += 1;
        if let Some(before) = self.doubtful.take() {
            let followed = row.previous_hash == before.hash && self.genuine(row) == Some(true);
            let unless_moved = match followed {
                true => Finding::Changed { number: before.number },
                false => Finding::AddedOutside { number: before.number },
            };
            self.judge(&before, unless_moved);
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
            Some(false) => self.doubtful = Some(row.clone()),
            Some(true) => {
                self.first_genuine.get_or_insert(number);
                self.join(row, gap);
            }
        }
        self.leave(row);
        self.last = Head {
            number,
            hash: row.hash.clone(),
        };
        self.compare();
    }

    /// Where a person was asked, is what begins approved, or under standing leave that a person gave and nobody took back? Of a part of
    /// the chain it is not known what was given before it.
    fn leave(&mut self, row: &AuditRow) {
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
                self.grants.insert(action, Some(LeaveFor::of(row)));
            }
            Some(AuditKind::GrantRevoked) => {
                self.grants.insert(action, None);
            }
            Some(AuditKind::EffectIntended) => {
                let asked = self.unapproved.remove(&action);
                let without = match field(&row.detail, "grant_id") {
                    Some(grant) => match Uuid::parse_str(&grant).ok().and_then(|grant| self.grants.get(&grant)) {
                        Some(given) => given.as_ref() != Some(&LeaveFor::of(row)),
                        None => self.after.number == 0,
                    },
                    None => asked,
                };
                if without {
                    self.find(Finding::WithoutLeave {
                        number: row.number,
                        action_id: row.subject.clone(),
                    });
                }
            }
            _ => {}
        }
    }

    /// Does the row follow the one before it? What follows a row that is wrong is told of that one.
    fn join(&mut self, row: &AuditRow, gap: bool) {
        if row.previous_hash != self.last.hash && !gap && !self.wrong {
            self.find(Finding::DoesNotFollow { number: row.number });
        }
        self.wrong = false;
    }

    /// The last row, with what the database and others say of it.
    fn compare(&mut self) {
        let expected = self.last.clone();
        if let Some(Some(head)) = self.head.clone()
            && head.number == expected.number
            && head.hash != expected.hash
        {
            self.find(Finding::WrongHead {
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

    /// There are no more rows.
    pub(super) fn end(&mut self) {
        for (key_id, (from, to, rows)) in std::mem::take(&mut self.unknown) {
            self.find(Finding::UnknownKey { from, to, rows, key_id });
        }
        let beside = || self.head.iter().flatten();
        let kept = || self.kept.values().flatten();
        let known = beside().chain(kept()).map(|head| head.number).max();
        if let Some(last) = self.doubtful.clone() {
            let number = last.number;
            let names = |head: &Head| head.number == number && head.hash == last.hash;
            let unless_moved = if kept().any(names) {
                Finding::Changed { number }
            } else if beside().any(names) {
                Finding::ChangedOrAdded { number }
            } else {
                Finding::AddedOutside { number }
            };
            self.judge(&last, unless_moved);
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

    /// Something that the chain itself does not show.
    pub(super) fn find(&mut self, finding: Finding) {
        self.found += 1;
        if self.findings.len() < TOLD {
            self.findings.push(finding);
        }
    }

    /// The last row that was read.
    #[must_use]
    pub fn last(&self) -> &Head {
        &self.last
    }

    /// What the first row that was read follows: number 0 at the beginning of the chain.
    #[must_use]
    pub fn after(&self) -> &Head {
        &self.after
    }

    /// How many rows were read.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// How much is wrong.
    #[must_use]
    pub fn found(&self) -> u64 {
        self.found
    }

    /// Is nothing else wrong than that keys are not there, as when one was lost? What was written with that is the beginning of the
    /// chain: a row of a key that nobody knows after one that is genuine was put there.
    #[must_use]
    pub fn lacks_keys_alone(&self) -> bool {
        let lacking = |finding: &Finding| match finding {
            Finding::UnknownKey { to, .. } => self.first_genuine.is_none_or(|first| *to < first),
            _ => false,
        };
        self.found > 0 && self.found == self.findings.len() as u64 && self.findings.iter().all(lacking)
    }

    /// What is wrong, the first thousand.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Did the key that the row names make its hash? `None` where that key is not there.
    fn genuine(&self, row: &AuditRow) -> Option<bool> {
        let key = self.keys.get(&row.key_id)?;
        Some(row.format == FORMAT && key.sign(row) == row.hash)
    }

    /// Says what became of a row that no key made: it was moved, or what its neighbours tell. What follows its hash, if that is
    /// genuine, shows that gavel wrote it.
    fn judge(&mut self, row: &AuditRow, unless_moved: Finding) {
        self.wrong = true;
        let number = row.number;
        let moved = self.written_as(row);
        self.find(moved.map_or(unless_moved, |written_as| Finding::Reordered { number, written_as }));
    }

    /// The place at which the row is genuine, if it is so anywhere: near ones first.
    fn written_as(&mut self, row: &AuditRow) -> Option<i64> {
        let key = self.keys.get(&row.key_id)?;
        let mut moved = row.clone();
        // Nothing was written much further away than there are rows.
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
