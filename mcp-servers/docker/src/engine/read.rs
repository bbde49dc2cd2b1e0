//! Reading the engine's state.
//!
//! bollard's types have only Docker's words for a container's state. Podman has more, such as `stopped` between the end
//! of a container and the cleanup after it, and one such container would make the whole list unreadable.

use bollard::errors::Error;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::client::conn::http1::handshake;
use hyper::header::HOST;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::{Engine, EngineFault, REQUEST};

/// The engine's answer to a request that fails.
#[derive(Deserialize)]
struct Refusal {
    message: String,
}

impl Engine {
    /// The answer to a GET, at a path below the version of the API.
    pub(super) async fn read<T: DeserializeOwned>(&self, path: &str) -> Result<T, EngineFault> {
        let version = self.docker().await?.client_version();
        let uri = format!("/v{}.{}/{path}", version.major_version, version.minor_version);
        let (status_code, body) = match timeout(REQUEST, get(&self.socket, &uri)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                tracing::debug!(uri, %error, "the container engine did not answer");
                return Err(EngineFault::Unavailable);
            }
            Err(_) => {
                tracing::debug!(uri, "the container engine did not answer within {REQUEST:?}");
                return Err(EngineFault::Unavailable);
            }
        };
        if status_code != 200 {
            let refusal: Option<Refusal> = serde_json::from_slice(&body).ok();
            let message = refusal.map(|refusal| refusal.message).unwrap_or_default();
            return Err(Error::DockerResponseServerError { status_code, message }.into());
        }
        serde_json::from_slice(&body).map_err(|error| {
            tracing::warn!(uri, %error, "the answer of the container engine cannot be read");
            EngineFault::Failed
        })
    }
}

/// The status and the body.
async fn get(socket: &str, uri: &str) -> anyhow::Result<(u16, Bytes)> {
    let stream = UnixStream::connect(socket).await?;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    let request = Request::get(uri)
        .header(HOST, "localhost")
        .body(Empty::<Bytes>::new())?;
    let answer = async move {
        let response = sender.send_request(request).await?;
        let status = response.status().as_u16();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    };
    // The connection ends when the sender is dropped.
    let (answer, ()) = tokio::try_join!(answer, connection)?;
    Ok(answer)
}
