//! A stand-in for GitHub with one repository, behind as much of GitHub's API as the bundled github server uses of one
//! repository. So agents work with the real server and its real tools, and need no account.

mod repository;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

pub use self::repository::Repository;

/// A status and a body, which GitHub answers.
type Answer = (u16, Value);

/// The stand-in; it ends when dropped.
#[derive(Debug)]
pub struct GitHub {
    address: SocketAddr,
    repository: Arc<Mutex<Repository>>,
    _served: JoinSet<()>,
}

impl GitHub {
    /// Starts it on a free loopback port, without files.
    ///
    /// # Errors
    /// No port is free.
    pub async fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let repository = Arc::new(Mutex::new(Repository::default()));
        let mut served = JoinSet::new();
        served.spawn(serve(listener, Arc::clone(&repository)));
        Ok(Self {
            address,
            repository,
            _served: served,
        })
    }

    /// The base of its API.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on this is the repository.
    pub fn hold(&self, repository: Repository) {
        *self.repository.lock().unwrap_or_else(PoisonError::into_inner) = repository;
    }
}

async fn serve(listener: TcpListener, repository: Arc<Mutex<Repository>>) {
    // Dropped, and so ended, with this task.
    let mut connections = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(connections.spawn(connection(stream, Arc::clone(&repository)))),
            Err(error) => {
                tracing::warn!(%error, "the stand-in for GitHub accepts no further connection");
                return;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(stream: TcpStream, repository: Arc<Mutex<Repository>>) {
    let service = service_fn(|request| answer(request, &repository));
    let served = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection to the stand-in for GitHub ended");
    }
}

async fn answer(
    request: Request<Incoming>,
    repository: &Mutex<Repository>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let given = match body.collect().await.map(|body| body.to_bytes()) {
        Ok(bytes) if bytes.is_empty() => Ok(Value::Null),
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let (status, body) = match given {
        Ok(given) => {
            let mut repository = repository.lock().unwrap_or_else(PoisonError::into_inner);
            repository.answer(head.method.as_str(), head.uri.path(), head.uri.query(), &given)
        }
        Err(error) => (400, json!({"message": error})),
    };
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = hyper::StatusCode::from_u16(status).unwrap_or(hyper::StatusCode::INTERNAL_SERVER_ERROR);
    Ok(response)
}
