//! What has an effect has it once under a key: the key is written down before Google is asked, the answer after.

use gavel_mcp_base::{Answer, Moment, key_reused};

use crate::error::Fault;
use crate::store::{Claim, Kept, Open, Store};

/// A call that has an effect. Without a key nothing is written down, and nobody can repeat it safely.
#[derive(Debug)]
pub(crate) struct Effect<'a> {
    pub(crate) store: &'a Store,
    pub(crate) claim: Option<Claim>,
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

impl Effect<'_> {
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
            Some(Kept::Open(open)) => Begin::Unknown(open),
            Some(Kept::Other) => return Err(key_reused().into()),
        })
    }

    /// Before the first attempt. False where another call with this key was faster.
    pub(crate) async fn claim(&self, mailbox: &str) -> Result<bool, Fault> {
        match &self.claim {
            Some(claim) => Ok(self.store.claim(claim, mailbox, Moment::now()).await?),
            None => Ok(true),
        }
    }

    /// Before a further attempt. False where another call with this key was faster.
    pub(crate) async fn try_again(&self, open: &Open) -> Result<bool, Fault> {
        match &self.claim {
            Some(claim) => Ok(self.store.try_again(claim, open, Moment::now()).await?),
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

    /// After it is certain that nothing was done, so that the key is free again.
    pub(crate) async fn undone(&self) {
        if let Some(claim) = &self.claim
            && let Err(error) = self.store.release(claim).await
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
