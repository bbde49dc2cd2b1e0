//! What has an effect has it once under a key: the key is written down before Google is asked, the answer after.

use std::sync::atomic::{AtomicI64, Ordering};

use gavel_mcp_base::{Answer, Moment, key_reused};

use crate::error::Fault;
use crate::store::{Claim, Kept, Open, Store};

/// A call that has an effect. Without a key nothing is written down, and nobody can repeat it safely.
#[derive(Debug)]
pub(crate) struct Effect<'a> {
    pub(crate) store: &'a Store,
    pub(crate) claim: Option<Claim>,
    /// When the attempt began that this call makes, or found; as it is written down under the key, in microseconds since the epoch.
    attempted_at: AtomicI64,
}

/// How a call begins.
#[derive(Debug)]
pub(crate) enum Begin {
    /// For the first time.
    First,
    /// It was done; this was the answer.
    Answered(Answer),
    /// It was begun before, and it is not known what came of it.
    Unknown(Open),
}

impl<'a> Effect<'a> {
    pub(crate) fn new(store: &'a Store, claim: Option<Claim>) -> Self {
        Self {
            store,
            claim,
            attempted_at: AtomicI64::default(),
        }
    }

    /// What stands under the key. Where that cannot be read this call does nothing, but an earlier one may have.
    pub(crate) async fn begin(&self) -> Result<Begin, Fault> {
        let Some(claim) = &self.claim else {
            return Ok(Begin::First);
        };
        let kept = self.store.kept(claim, Moment::now()).await.map_err(|error| {
            tracing::error!(%error, "a key cannot be looked up");
            self.unsettled(
                "an earlier call with this key took effect",
                "the server's own database cannot be reached just now",
            )
        })?;
        Ok(match kept {
            None => Begin::First,
            Some(Kept::Answer(answer)) => Begin::Answered(answer),
            Some(Kept::Open(open)) => {
                self.begun(true, open.attempted_at);
                Begin::Unknown(open)
            }
            Some(Kept::Other) => return Err(key_reused().into()),
        })
    }

    /// The attempt is this call's, where it is anybody's.
    fn begun(&self, ours: bool, at: Moment) -> bool {
        if ours {
            self.attempted_at.store(at.0, Ordering::Relaxed);
        }
        ours
    }

    /// Before the first attempt. False where another call with this key was faster.
    pub(crate) async fn claim(&self, mailbox: &str) -> Result<bool, Fault> {
        match &self.claim {
            Some(claim) => {
                let now = Moment::now();
                let claimed = self.store.claim(claim, mailbox, now).await?;
                Ok(self.begun(claimed, now))
            }
            None => Ok(true),
        }
    }

    /// Before a further attempt. False where another call with this key was faster.
    pub(crate) async fn try_again(&self, open: &Open) -> Result<bool, Fault> {
        match &self.claim {
            Some(claim) => {
                let now = Moment::now();
                let taken = self.store.try_again(claim, open, now).await?;
                Ok(self.begun(taken, now))
            }
            None => Ok(true),
        }
    }

    /// After it was done. The answer stands also where it cannot be written down: then a repeated call looks it up.
    pub(crate) async fn done(&self, answer: Answer) -> Answer {
        if let Some(claim) = &self.claim
            && let Err(error) = self.store.answered(claim, &answer, Moment::now()).await
        {
            tracing::error!(%error, "an answer was not written down under its key");
        }
        answer
    }

    /// After it is certain that nothing was done, so that the key is free again: unless another process has begun a further
    /// attempt under it meanwhile.
    pub(crate) async fn undone(&self) {
        if let Some(claim) = &self.claim
            && let Err(error) = self
                .store
                .release(claim, Moment(self.attempted_at.load(Ordering::Relaxed)))
                .await
        {
            tracing::warn!(%error, "a key under which nothing was done stays in use for now");
        }
    }

    /// The error for a call of which nobody knows whether it had its effect.
    pub(crate) fn unsettled(&self, what: &str, why: &str) -> Fault {
        let then = match self.claim {
            Some(_) => "sent again with the same idempotency key it is looked up first, and takes effect once at most",
            None => "the call had no idempotency key, so do not send it again without looking",
        };
        Fault::Unsettled(format!("it is not known whether {what} ({why}); {then}"))
    }
}
