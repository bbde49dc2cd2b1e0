//! Quota. `local` counts in this process only. `leased` shares each user's token bucket with the other replicas, a
//! `block` at a time, and behaves as `local` while the buckets are unavailable (`outage`).

mod block;
mod leased;
mod local;

pub use leased::LeasedQuota;
pub use local::LocalQuota;

use crate::domain::ids::{TenantId, UserId};

/// The user whose requests are counted together; hashed once per request.
type Key = (TenantId, UserId);
