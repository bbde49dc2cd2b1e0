//! A connection to PostgreSQL that falls silent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A connection to PostgreSQL that can fall silent without closing.
pub(crate) struct Wire {
    pub(crate) url: String,
    silence: Arc<watch::Sender<Silence>>,
    connections: Arc<AtomicU32>,
}

/// Which connections are silenced.
#[derive(Default)]
struct Silence {
    all: bool,
    /// Those with a lower number.
    before: u32,
    /// Those that answer a COMMIT.
    committed: bool,
}

impl Wire {
    pub(crate) async fn to(url: &str) -> Self {
        let (before, rest) = url.split_once("127.0.0.1:").unwrap();
        let (port, database) = rest.split_once('/').unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = listener.local_addr().unwrap().port();
        let silence = Arc::new(watch::Sender::new(Silence::default()));
        let connections = Arc::new(AtomicU32::new(0));
        let (there, switch, count) = (
            format!("127.0.0.1:{port}"),
            Arc::clone(&silence),
            Arc::clone(&connections),
        );
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let number = count.fetch_add(1, Ordering::SeqCst);
                let server = TcpStream::connect(&there).await.unwrap();
                let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
                tokio::spawn(carry(from_client, to_server, number, switch.subscribe()));
                tokio::spawn(carry(from_server, to_client, number, switch.subscribe()));
            }
        });
        Self {
            url: format!("{before}127.0.0.1:{here}/{database}"),
            silence,
            connections,
        }
    }

    pub(crate) fn silence(&self, silent: bool) {
        self.silence.send_modify(|silence| silence.all = silent);
    }

    /// Commits succeed, and their answers are lost.
    pub(crate) fn lose_commits(&self, lose: bool) {
        self.silence.send_modify(|silence| silence.committed = lose);
    }

    /// Existing connections fall silent, and new ones work, as when a standby takes over.
    pub(crate) fn lose(&self) {
        let number = self.connections.load(Ordering::SeqCst);
        self.silence.send_modify(|silence| silence.before = number);
    }
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, number: u32, mut silence: watch::Receiver<Silence>) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read) = from.read(&mut buffer).await {
        let received = |silence: &Silence| !silence.all && number >= silence.before;
        if read == 0 || silence.wait_for(received).await.is_err() {
            return;
        }
        // The tag of a completed command (PostgreSQL manual, "Message Formats").
        let commits = buffer[..read].windows(7).any(|tag| tag == b"COMMIT\0");
        if commits && silence.wait_for(|silence| !silence.committed).await.is_err() {
            return;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
