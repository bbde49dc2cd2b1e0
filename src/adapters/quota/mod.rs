//! Quota. `local` counts in this process alone; `leased` shares each user's bucket of tokens with the other replicas, a
//! `block` of them at a time, and is as `local` while the buckets do not answer (`outage`).

mod block;
mod leased;
mod local;
mod outage;

pub use leased::LeasedQuota;
pub use local::LocalQuota;

use crate::domain::ids::{TenantId, UserId};

/// Whose requests are counted together; hashed once per request.
type Key = (TenantId, UserId);
