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
    /// When the caller began with this call, where it says that this is a further attempt.
    first_attempt: Option<Moment>,
    /// When the attempt began that this call makes, or found; as it is written down under the key, in microseconds since the epoch.
    attempted_at: AtomicI64,
}

/// How a call begins.
#[derive(Debug)]
pub(crate) enum Begin {
    /// It was done; this was the answer.
    Answered(Answer),
    /// It is to be done, unless an earlier one did.
    After(Earlier),
}

/// An earlier call with the key.
#[derive(Debug)]
pub(crate) enum Earlier {
    /// There was none.
    None,
    /// It was begun, and it is not known what came of it.
    Begun(Open),
    /// The caller says that there was one, and nothing is written down of it.
    Told {
        /// When it was begun.
        at: Moment,
        /// It would be written down here, had it come here.
        never_came: bool,
    },
}

impl Earlier {
    /// May it have had its effect, as far as is known here?
    pub(crate) fn is_open(&self) -> bool {
        match self {
            Self::None => false,
            Self::Begun(_) => true,
            Self::Told { never_came, .. } => !never_came,
        }
    }
}

/// Why a repeated call is not made: neither this server nor Google knows of the first one, and it may have been made all the same.
pub(crate) const NOT_KEPT: &str = "what this server had written down of the first attempt is gone: its database is another one \
    than then, or it was more than a week ago";

impl<'a> Effect<'a> {
    pub(crate) fn new(store: &'a Store, claim: Option<Claim>, first_attempt: Option<Moment>) -> Self {
        Self {
            store,
            claim,
            first_attempt,
            attempted_at: AtomicI64::default(),
        }
    }

    /// What stands under the key. Where that cannot be read this call does nothing, but an earlier one may have.
    pub(crate) async fn begin(&self) -> Result<Begin, Fault> {
        let Some(claim) = &self.claim else {
            return Ok(Begin::After(Earlier::None));
        };
        let unreadable = |error: sqlx::Error| {
            tracing::error!(%error, "a key cannot be looked up");
            self.unsettled(
                "an earlier call with this key took effect",
                "the server's own database cannot be reached just now",
            )
        };
        let now = Moment::now();
        Ok(match self.store.kept(claim, now).await.map_err(unreadable)? {
            None => Begin::After(match self.first_attempt {
                None => Earlier::None,
                Some(at) => Earlier::Told {
                    at,
                    never_came: self.store.keeps(at, now).await.map_err(unreadable)?,
                },
            }),
            Some(Kept::Answer(answer)) => Begin::Answered(answer),
            Some(Kept::Open(open)) => {
                self.begun(true, open.attempted_at);
                Begin::After(Earlier::Begun(open))
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

    /// Before an attempt. False where another call with this key was faster.
    pub(crate) async fn claim(&self, earlier: &Earlier, mailbox: &str) -> Result<bool, Fault> {
        match earlier {
            Earlier::Begun(open) => self.try_again(open).await,
            Earlier::None | Earlier::Told { .. } => self.claim_first(mailbox).await,
        }
    }

    async fn claim_first(&self, mailbox: &str) -> Result<bool, Fault> {
        match &self.claim {
            Some(claim) => {
                let now = Moment::now();
                let claimed = self.store.claim(claim, mailbox, now).await?;
                Ok(self.begun(claimed, now))
            }
            None => Ok(true),
        }
    }

    async fn try_again(&self, open: &Open) -> Result<bool, Fault> {
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
