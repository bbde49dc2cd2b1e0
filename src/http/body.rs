//! A request's body, with a limit on its size and on the time it may take.

use std::sync::Arc;
use std::time::Duration;

use actix_web::web::{Bytes, Payload};

use super::error::{Code, Problem};

/// Most bytes of a body.
pub const MAX_BODY: usize = 1024 * 1024;
/// A client that takes longer to send its body is turned away.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Reads it whole.
pub(super) async fn read(payload: Payload, request_id: &Arc<str>) -> Result<Bytes, Problem> {
    match tokio::time::timeout(TIMEOUT, payload.to_bytes_limited(MAX_BODY)).await {
        Ok(Ok(Ok(body))) => Ok(body),
        Ok(Ok(Err(error))) => Err(Problem::new(
            Code::InvalidRequest,
            format!("the body could not be read: {error}"),
            request_id,
        )),
        Ok(Err(_over)) => Err(Problem::new(
            Code::BodyTooLarge,
            format!("at most {MAX_BODY} bytes are allowed"),
            request_id,
        )),
        Err(_late) => {
            let detail = format!("the body did not arrive within {} s", TIMEOUT.as_secs());
            Err(Problem::new(Code::RequestTimeout, detail, request_id))
        }
    }
}
