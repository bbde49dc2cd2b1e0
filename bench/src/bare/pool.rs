//! Kept-alive connections to one upstream; the last used one is used next.

use std::sync::{Mutex, PoisonError};

use anyhow::ensure;
use bytes::Bytes;
use hyper::Uri;

use crate::client::Connection;
use crate::loopback::Loopback;

pub(super) struct Pool {
    to: Loopback,
    idle: Mutex<Vec<Connection>>,
}

impl Pool {
    pub(super) fn new(to: Loopback) -> Self {
        Self {
            to,
            idle: Mutex::default(),
        }
    }

    /// Posts JSON and returns the body of a successful response.
    pub(super) async fn post(&self, uri: &Uri, body: Bytes) -> anyhow::Result<Bytes> {
        let mut connection = match self.take() {
            Some(idle) => idle,
            None => Connection::open(self.to).await?,
        };
        // The upstream may have closed it since.
        if !connection.ready().await {
            connection = Connection::open(self.to).await?;
        }
        let (status, answer) = connection.post(uri, &[], body).await?;
        ensure!(
            status.is_success(),
            "{uri} answered {status}: {}",
            String::from_utf8_lossy(&answer)
        );
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(connection);
        Ok(answer)
    }

    fn take(&self) -> Option<Connection> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}
