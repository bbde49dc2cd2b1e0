//! What every request that starts work carries, and how its errors are named.

use std::sync::Arc;

use chrono_tz::Tz;
use tracing::Span;

use crate::api::problem::FieldError;
use crate::domain::budget::Exceeded;
use crate::domain::definition::quoted;
use crate::domain::ids::{DecisionId, TenantId, UserId};
use crate::engine::trace;
pub use crate::ports::claims::Claim;
use crate::ports::records::{OpenDecision, Surface};

/// The metadata of a request, from the HTTP layer.
#[derive(Clone, Debug)]
pub struct RequestMeta {
    /// The request's id, as the HTTP layer assigned it.
    pub request_id: Arc<str>,
    /// W3C `traceparent`, if the caller sent one.
    pub traceparent: Option<String>,
    /// `Idempotency-Key`, if the caller sent one.
    pub idempotency: Option<Claim>,
    /// True if the caller does not wait for what begins.
    pub background: bool,
    /// The HTTP layer has no capacity for the answer: the request is rejected as overload, and the rejection is
    /// recorded.
    pub shed: Option<Exceeded>,
}

impl RequestMeta {
    /// The decision that this request opens, with what the request says of it. The surface adds what it is about.
    pub(super) fn open(
        &self,
        (tenant, user): (TenantId, UserId),
        surface: Surface,
        id: DecisionId,
        created_at: i64,
    ) -> OpenDecision {
        OpenDecision {
            id,
            tenant,
            surface,
            user,
            conversation: id.into(),
            message: Arc::default(),
            definition_hash: Arc::default(),
            requested_model: Arc::default(),
            agent_id: None,
            time_zone: None,
            tools_subset: None,
            history_entries: 0,
            trace_id: trace::traceparent(&Span::current())
                .as_deref()
                .or(self.traceparent.as_deref())
                .and_then(|traceparent| traceparent.split('-').nth(1))
                .map(Arc::from),
            request_id: Arc::clone(&self.request_id),
            created_at,
        }
    }

    /// The same, for a caller that does not wait if `background`.
    #[must_use]
    pub fn background(self, background: bool) -> Self {
        Self { background, ..self }
    }
}

/// What a time zone may be, for errors.
pub const NAME_OF_ZONE: &str = "the IANA name of a time zone, such as \"Europe/Berlin\"";

/// The time zone of a user, if the caller named it.
///
/// # Errors
/// What it is, and what is allowed.
pub fn time_zone(name: Option<&str>) -> Result<Option<Tz>, String> {
    let zone = |name: &str| {
        name.parse()
            .map_err(|_| format!("is {}; allowed: {NAME_OF_ZONE}", quoted(name)))
    };
    name.map(zone).transpose()
}

/// The longest prompt, in bytes.
pub const MAX_PROMPT: usize = 32 * 1024;

/// The error of a prompt at this place, if it has one.
pub(super) fn prompt_error(pointer: &str, prompt: &str) -> Option<FieldError> {
    let detail = match prompt.len() {
        _ if prompt.trim().is_empty() => "must not be empty".to_owned(),
        bytes if bytes > MAX_PROMPT => format!("has {bytes} bytes; at most {MAX_PROMPT} are allowed"),
        _ => return None,
    };
    Some(FieldError::new(pointer, detail))
}
