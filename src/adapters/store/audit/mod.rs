//! The audit (R-18; DESIGN.md section 7): what was done, by whom, in rows that the database refuses to change and that a chain of
//! HMACs ties together, so that whoever changes them all the same is found out.
//!
//! An `entry` says what happened. The ops of a batch put theirs into its `trail`, which goes to the end of the chain as the last
//! thing in their own transaction: what an entry tells and the entry are there together, or neither is. All writers wait for
//! each other at the head, so it is locked last and nothing is waited for while it is held. A transaction that has nothing to
//! enter does not touch it. `chain` says what is hashed and with which key, `keys` where the key comes from; `verify` reads the
//! chain as somebody who does not believe it, `compare` what other tables tell of the same, and `log` is the audit for those who
//! only read. `triggers` has the database refuse changes, and notices when it no longer does.

mod chain;
mod compare;
mod entry;
mod keys;
mod log;
mod statements;
mod trail;
mod triggers;
mod verify;

pub use chain::AuditRow;
pub use entry::AuditKind;
pub use keys::{AuditSecrets, KEY_IN_DATABASE, KeyPlace};
pub use log::{AuditFilter, AuditKeys, AuditLog};
pub use triggers::{TriggerDamage, TriggerState};
pub use verify::{Finding, Head, Verifier};

pub(super) use chain::Signer;
pub(super) use entry::{Entry, Whose, field};
pub(super) use keys::signer;
pub(super) use statements::AuditStatements;
pub(super) use trail::Trail;
pub(super) use triggers::restore as restore_triggers;
