//! One call: its session, its key, and its time.

use std::time::Duration;

use gavel_mcp_base::{Fault, Moment, ToolError};
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use crate::error::{Code, engine_unavailable, unsettled};

/// The data of a call beside its arguments.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// What the call creates belongs to its session, else to its user, and it sees nothing of another one.
    pub(crate) owner: Option<String>,
    /// In a session, all containers are one group.
    pub(crate) session: Option<String>,
    pub(crate) user: Option<String>,
    /// Calls with the same key are one call.
    pub(crate) key: Option<String>,
    /// The same for the same arguments.
    pub(crate) digest: String,
    /// When the caller's time ends.
    pub(crate) deadline: Option<Moment>,
    /// Whether the caller sent the call before.
    pub(crate) is_repeated: bool,
    /// Cancelled when the caller does not wait any more.
    pub(crate) dropped: CancellationToken,
}

impl Call {
    pub(crate) fn parse<A>(call: &gavel_mcp_base::Call<A>) -> Result<Self, ToolError> {
        let meta = &call.meta;
        Ok(Self {
            owner: meta.owner()?,
            session: meta.session_id()?,
            user: meta.user()?.map(|user| user.as_str().to_owned()),
            key: meta.idempotency_key()?,
            digest: call.digest.clone(),
            deadline: meta.deadline()?,
            is_repeated: meta.first_attempt()?.is_some(),
            dropped: call.dropped.clone(),
        })
    }

    /// A name for the call that is safe in paths and in the engine: always the same for the same key, random without
    /// one.
    pub(crate) fn id(&self) -> String {
        let Some(key) = &self.key else {
            return format!("{:032x}", fastrand::u128(..));
        };
        let owner = self.owner.as_deref().unwrap_or_default();
        hex::encode(&Sha256::digest(format!("{owner}\n{key}"))[..16])
    }

    /// The shorter of this and what is left of the caller's time.
    pub(crate) fn limited(&self, most: Duration) -> Result<Duration, ToolError> {
        let Some(deadline) = self.deadline else {
            return Ok(most);
        };
        let left = u64::try_from(deadline.0 - Moment::now().0).unwrap_or_default();
        if left == 0 {
            let words = "Nothing was started: the time of the session has ended.";
            return Err(ToolError::new(Code::DeadlinePassed, words));
        }
        Ok(most.min(Duration::from_micros(left)))
    }

    /// The fault of an engine that could not be asked. Only on a first attempt it means that nothing was done.
    pub(crate) fn not_asked(&self) -> Fault {
        match self.is_repeated {
            false => Fault::Refused(engine_unavailable()),
            true => unsettled("the container engine does not answer"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(owner: Option<&str>, key: Option<&str>) -> Call {
        Call {
            owner: owner.map(str::to_owned),
            session: None,
            user: None,
            key: key.map(str::to_owned),
            digest: String::new(),
            deadline: None,
            is_repeated: false,
            dropped: CancellationToken::new(),
        }
    }

    #[test]
    fn a_key_names_one_call_of_one_owner() {
        let id = |owner, key| call(owner, Some(key)).id();
        assert_eq!(id(Some("s"), "../k"), id(Some("s"), "../k"));
        assert_ne!(id(Some("s"), "k"), id(Some("t"), "k"));
        assert_ne!(call(None, None).id(), call(None, None).id());
        assert!(id(None, "../k").chars().all(|c| c.is_ascii_hexdigit()));
    }

    #[test]
    fn a_deadline_shortens_the_call_or_prevents_it() {
        let mut call = call(None, None);
        let most = Duration::from_secs(60);
        assert_eq!(call.limited(most).expect("time"), most);
        call.deadline = Some(Moment(Moment::now().0 + 5_000_000));
        assert!(call.limited(most).expect("time") <= Duration::from_secs(5));
        call.deadline = Some(Moment(Moment::now().0 - 1));
        assert_eq!(call.limited(most).expect_err("no time").code(), "deadline_passed");
    }
}
