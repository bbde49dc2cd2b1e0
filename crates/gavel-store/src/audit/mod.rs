//! The audit log: every action with its actor. The database rejects changes of its rows, and a chain of HMACs
//! links them, so that a change by other means is detected.
//!
//! An `entry` describes an event. The ops of a batch add their entries to its `trail`, which `append` adds to the
//! chain as the last step of their transaction: an event and its entry are committed together, or neither is. All writers
//! contend for the head of the chain. So it is locked last, and no writer waits for anything else while it holds the
//! lock. A transaction without entries does not touch it.
//!
//! `chain` defines what is hashed and with which key, `keys` where the key comes from. `verify` checks the chain
//! without trusting it and lists each `finding`, `compare` checks it against other tables, and `log` provides read-only
//! access, as `columns` reads rows. `triggers` makes
//! the database reject changes, and detects when it no longer does.

mod append;
mod chain;
mod columns;
mod compare;
mod entry;
mod export;
mod finding;
mod keys;
mod log;
mod trail;
mod triggers;
mod verify;

pub use self::chain::Head;
pub use chain::AuditRow;
pub use entry::AuditKind;
pub use finding::Finding;
pub use keys::{AuditSecrets, KEY_IN_DATABASE, KeyPlace};
pub use log::{AuditFilter, AuditKeys, AuditLog};
pub use triggers::{TriggerDamage, TriggerState};
pub use verify::Verifier;

pub(super) use chain::Signer;
pub(super) use entry::{Entry, Whose, field};
pub(super) use keys::signer;
pub(super) use trail::Trail;
pub(super) use triggers::restore as restore_triggers;
