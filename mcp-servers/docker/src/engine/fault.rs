//! Why a request to the engine failed.

use bollard::errors::Error;

/// What the engine answered instead of a result.
#[derive(Debug)]
pub(crate) enum EngineFault {
    /// No answer, or half of one: it is unknown what the request did.
    Unavailable,
    /// What the request names does not exist.
    Missing,
    /// The state of the container, or a name that is taken, does not permit it.
    Conflict,
    /// The engine refused the request, or failed at it.
    Failed,
    /// The engine failed because its disk is full. Nothing was done.
    Full,
}

impl From<Error> for EngineFault {
    fn from(error: Error) -> Self {
        match error {
            Error::DockerResponseServerError { status_code: 404, .. } => Self::Missing,
            Error::DockerResponseServerError { status_code: 409, .. } => Self::Conflict,
            // Podman's words for a container that has stopped, and for a name that is taken.
            Error::DockerResponseServerError {
                status_code: 500,
                message,
            } if message.contains("state improper") || message.contains("already in use") => Self::Conflict,
            // The words of the operating system, which both engines pass on.
            Error::DockerResponseServerError { message, .. } if message.contains("no space left on device") => {
                Self::Full
            }
            Error::DockerResponseServerError { status_code, message } => {
                // What the engine says may name paths of the host: it is for the log.
                tracing::warn!(status_code, message, "the container engine refused a request");
                Self::Failed
            }
            other => {
                tracing::debug!(error = %other, "the container engine did not answer");
                Self::Unavailable
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Podman answers a request to create a container.
    #[test]
    fn a_full_disk_of_the_engine_is_recognized() {
        let message = "container create: write /var/tmp/270707900: no space left on device".to_owned();
        let status_code = 500;
        let error = Error::DockerResponseServerError { status_code, message };
        assert!(matches!(EngineFault::from(error), EngineFault::Full));
    }
}
