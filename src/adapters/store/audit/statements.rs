//! Every statement that writes the audit log.

use super::super::db::{Dialect, Sql};
use super::super::insert::Insert;

/// Number of subjects, or decisions, in one statement. If there are fewer, the last one is repeated.
pub(super) const MANY: usize = 32;

/// The statements, built once. Each comment lists the parameters, and after `→` the returned columns.
pub(in super::super) struct AuditStatements {
    /// → number and hash of the last row, and the time. Locks the chain until this transaction ends.
    pub(super) head: Sql,
    /// [`MANY`] subjects → subject and kind of their existing entries.
    pub(super) known: Sql,
    /// [`MANY`] decisions → decision, tenant, user, surface.
    pub(super) whose: Sql,
    /// A trigger moves the head along.
    pub(super) enter: Insert,
    /// secret: stores the key, if there is none.
    pub(super) keep_key: Sql,
    /// → the key.
    pub(super) key: Sql,
    /// → the id of the key of the last row.
    pub(super) last_key: Sql,
}

/// The columns of a row, in order.
pub(super) const ROW: &str = "number, format, at, kind, subject, tenant, actor, decision_id, action_id, tool, detail, key_id, \
     previous_hash, hash";

impl AuditStatements {
    pub(in super::super) fn new(dialect: Dialect) -> Self {
        let now = dialect.now();
        let lock = match dialect {
            Dialect::Sqlite => "",
            Dialect::Postgres => "FOR UPDATE",
        };
        let many = vec!["?"; MANY].join(", ");
        let text = |text: String| -> Sql { dialect.placeholders(&text).into() };
        Self {
            head: format!("SELECT number, hash, {now} FROM audit_head WHERE id = 1 {lock}").into(),
            known: text(format!("SELECT subject, kind FROM audit WHERE subject IN ({many})")),
            whose: text(format!(
                "SELECT id, tenant, user_id, surface FROM decision_log WHERE id IN ({many})"
            )),
            enter: Insert::new(
                dialect,
                &format!("INSERT INTO audit ({ROW})"),
                "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                "",
            ),
            keep_key: "INSERT INTO audit_key (id, secret) VALUES (1, $1) ON CONFLICT (id) DO NOTHING".into(),
            key: KEY.into(),
            last_key: "SELECT key_id FROM audit ORDER BY number DESC LIMIT 1".into(),
        }
    }
}

/// → the key that is stored in the database.
pub(super) const KEY: &str = "SELECT secret FROM audit_key WHERE id = 1";
