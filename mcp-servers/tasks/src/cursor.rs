//! The start of the next page of a list. A cursor names the last task shown rather than a count, so that pages neither
//! skip nor repeat a task when tasks are added or deleted. It is valid for one filter.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gavel_mcp_base::ToolError;
use sha2::{Digest, Sha256};

use crate::error::Code;
use crate::task::{Filter, Place};

type Fields = (i64, i64, i64, i64, String, u64, String);

pub(crate) fn write(filter: &Filter, place: &Place, position: u64) -> String {
    let fields: Fields = (
        place.group,
        place.time,
        place.priority,
        place.created_at,
        place.id.clone(),
        position,
        fingerprint(filter),
    );
    URL_SAFE_NO_PAD.encode(serde_json::json!(fields).to_string())
}

/// The place where the list continues, and the position of the task there.
pub(crate) fn read(filter: &Filter, cursor: &str) -> Result<(Place, u64), ToolError> {
    let refused = || {
        ToolError::new(
            Code::InvalidCursor,
            "`cursor` is not one that this list gave. Take `next_cursor` from the last answer and \
             repeat the same filters, or leave `cursor` out to begin again.",
        )
        .about("cursor")
    };
    let bytes = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| refused())?;
    let (group, time, priority, created_at, id, position, of): Fields =
        serde_json::from_slice(&bytes).map_err(|_| refused())?;
    if of != fingerprint(filter) || position > u64::from(u32::MAX) || id.contains('\0') {
        return Err(refused());
    }
    let place = Place {
        group,
        time,
        priority,
        created_at,
        id,
    };
    Ok((place, position))
}

fn fingerprint(filter: &Filter) -> String {
    let digest = Sha256::digest(format!("{filter:?}"));
    URL_SAFE_NO_PAD.encode(&digest[..6])
}
