//! Each effect happens at most once per idempotency key: the key is stored before Google is called, and the answer
//! after.

use std::sync::atomic::{AtomicI64, Ordering};

use gavel_mcp_base::{Answer, Fault, Moment, key_reused};
use gavel_mcp_store::Claim;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::error::not_done;
use crate::store::{Kept, Open, Store};

/// A call with an effect. Without a key nothing is stored, and the call cannot be repeated safely.
#[derive(Debug)]
pub(crate) struct Effect<'a> {
    pub(crate) store: &'a Store,
    pub(crate) claim: Option<Claim>,
    /// When the caller first sent this call, if it says that this is a further attempt.
    first_attempt: Option<Moment>,
    /// When the attempt began that this call makes or found, as stored under the key, in microseconds since the epoch.
    attempted_at: AtomicI64,
}

/// How a call begins.
#[derive(Debug)]
pub(crate) enum Begin {
    /// It was already done; this was the answer.
    Answered(Answer),
    /// It must be done, unless an earlier call did it.
    After(Earlier),
}

/// An earlier call with the key.
#[derive(Debug)]
pub(crate) enum Earlier {
    /// There was none.
    None,
    /// It was begun, and its outcome is unknown.
    Begun(Open),
    /// The caller says that there was one, but nothing is stored about it.
    Claimed {
        /// When it was begun.
        at: Moment,
        /// If it had reached this server, it would be stored here.
        never_came: bool,
    },
}

impl Earlier {
    /// May it have taken effect, as far as this server knows?
    pub(crate) fn is_open(&self) -> bool {
        match self {
            Self::None => false,
            Self::Begun(_) => true,
            Self::Claimed { never_came, .. } => !never_came,
        }
    }
}

/// Why a repeated call is not executed: neither this server nor Google has a record of the first one, but it may have
/// been executed.
pub(crate) const NOT_KEPT: &str = "this server's record of the first attempt is gone: the database was replaced, \
    or the attempt was more than a week ago";

impl<'a> Effect<'a> {
    pub(crate) fn new(store: &'a Store, claim: Option<Claim>, first_attempt: Option<Moment>) -> Self {
        Self {
            store,
            claim,
            first_attempt,
            attempted_at: AtomicI64::default(),
        }
    }

    /// Reads the state of the key. If that fails this call does nothing, but an earlier one may have taken effect.
    pub(crate) async fn begin(&self) -> Result<Begin, Fault> {
        let Some(claim) = &self.claim else {
            return Ok(Begin::After(Earlier::None));
        };
        let unreadable = |error: sqlx::Error| {
            tracing::error!(%error, "a key cannot be looked up");
            self.unsettled(
                "an earlier call with this key took effect",
                "the server's own database cannot be reached now",
            )
        };
        let now = Moment::now();
        Ok(match self.store.kept(claim, now).await.map_err(unreadable)? {
            None => Begin::After(match self.first_attempt {
                None => Earlier::None,
                Some(at) => Earlier::Claimed {
                    at,
                    never_came: self.store.keeps(at, now).await.map_err(unreadable)?,
                },
            }),
            Some(Kept::Answer(answer)) => Begin::Answered(answer),
            Some(Kept::Open(open)) => {
                self.attempted_at.store(open.attempted_at.0, Ordering::Relaxed);
                Begin::After(Earlier::Begun(open))
            }
            Some(Kept::Other) => return Err(key_reused().into()),
        })
    }

    /// Call before an attempt. Returns false if another call with this key was faster.
    pub(crate) async fn claim(&self, earlier: &Earlier, mailbox: &str) -> Result<bool, Fault> {
        let Some(claim) = &self.claim else {
            return Ok(true);
        };
        let now = Moment::now();
        let claimed = match earlier {
            Earlier::Begun(open) => self.store.try_again(claim, open, now).await,
            Earlier::None | Earlier::Claimed { .. } => self.store.claim(claim, mailbox, now).await,
        };
        let claimed = claimed.map_err(not_done)?;
        if claimed {
            self.attempted_at.store(now.0, Ordering::Relaxed);
        }
        Ok(claimed)
    }

    /// A name for what the call makes, the same for the same key, in the characters that Calendar accepts for ids.
    pub(crate) fn reference(&self) -> String {
        let Some(claim) = &self.claim else {
            return Uuid::new_v4().simple().to_string();
        };
        let mut digest = Sha256::new();
        for part in [claim.tool, claim.user.as_str(), &claim.key] {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        hex::encode(&digest.finalize()[..20])
    }

    /// Call after the effect. The answer is valid even if it cannot be stored: a repeated call then looks the effect
    /// up.
    pub(crate) async fn done(&self, answer: Answer) -> Answer {
        if let Some(claim) = &self.claim
            && let Err(error) = self.store.answered(claim, &answer, Moment::now()).await
        {
            tracing::error!(%error, "an answer could not be stored under its key");
        }
        answer
    }

    /// Call when it is certain that nothing was done. Frees the key, unless another process has begun a further attempt
    /// under it.
    pub(crate) async fn undone(&self) {
        if let Some(claim) = &self.claim
            && let Err(error) = self
                .store
                .release(claim, Moment(self.attempted_at.load(Ordering::Relaxed)))
                .await
        {
            tracing::warn!(%error, "an unused key could not be freed and stays in use for now");
        }
    }

    /// The error for a call whose outcome is unknown.
    pub(crate) fn unsettled(&self, what: &str, why: &str) -> Fault {
        let then = match self.claim {
            Some(_) => "sent again with the same idempotency key, it is looked up first and takes effect at most once",
            None => "the call had no idempotency key, so check before you send it again",
        };
        Fault::Unsettled(format!("it is unknown whether {what} ({why}); {then}"))
    }
}
