//! Whether each side effect that starts was approved or covered by a grant.

use uuid::Uuid;

use super::super::AuditKind;
use super::super::chain::AuditRow;
use super::super::entry::field;
use super::super::finding::Finding;
use super::Verifier;
use crate::domain::action::Resolution;

/// The calls that a grant covers, without their recipients; from the entry of a grant, or of a call that uses one.
#[derive(PartialEq, Eq)]
pub(super) struct GrantScope {
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
    pub(super) fn check_approval(&mut self, row: &AuditRow) {
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
