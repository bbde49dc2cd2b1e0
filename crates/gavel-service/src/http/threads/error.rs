//! The problems of messages.

use crate::http::error::{Code, Error, ProblemParts};
use crate::surfaces::threads::MessageError;

impl From<MessageError> for Error {
    fn from(error: MessageError) -> Self {
        match error {
            MessageError::Run(error) => error.into(),
            MessageError::NoAnswerer(why) => {
                let detail = format!(
                    "No agent answers here, since the setting runs.agent is invalid: {why}. Tell the operator."
                );
                ProblemParts::new(Code::AgentUnavailable, detail).into()
            }
        }
    }
}
