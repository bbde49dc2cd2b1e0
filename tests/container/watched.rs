//! A socket in front of the engine's. It passes everything on, and keeps what the engine was asked to do.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

/// Something that was done, and when it was asked for.
pub type Done = (Instant, &'static str);

/// The socket, for one gavel.
pub struct Watched {
    /// `DOCKER_HOST`.
    pub host: String,
    asked: Arc<Mutex<Vec<(Instant, String)>>>,
    _directory: TempDir,
}

impl Watched {
    /// In front of the engine at this `DOCKER_HOST`.
    pub async fn start(engine: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("engine");
        let host = format!("unix://{}", socket.display());
        let listener = UnixListener::bind(socket).unwrap();
        let asked = Arc::<Mutex<Vec<_>>>::default();
        let (engine, kept) = (engine.strip_prefix("unix://").unwrap().to_owned(), asked.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (engine, kept) = (engine.clone(), kept.clone());
                tokio::spawn(async move {
                    let engine = UnixStream::connect(engine).await.unwrap();
                    let (mut from_client, mut to_client) = client.into_split();
                    let (mut from_engine, mut to_engine) = engine.into_split();
                    let there = async {
                        let mut bytes = [0; 64 * 1024];
                        while let Ok(read @ 1..) = from_client.read(&mut bytes).await {
                            let text = String::from_utf8_lossy(&bytes[..read]).into_owned();
                            kept.lock().unwrap().push((Instant::now(), text));
                            if to_engine.write_all(&bytes[..read]).await.is_err() {
                                break;
                            }
                        }
                        to_engine.shutdown().await.ok();
                    };
                    // A connection that either side cuts ends in an error.
                    let back = async {
                        tokio::io::copy(&mut from_engine, &mut to_client).await.ok();
                        to_client.shutdown().await.ok();
                    };
                    tokio::join!(there, back);
                });
            }
        });
        Self {
            host,
            asked,
            _directory: directory,
        }
    }

    /// What the engine was asked to do, in order. Reading is left out, and a script counts once, however often its
    /// result was asked for.
    pub fn done(&self) -> Vec<Done> {
        let mut keys = Vec::new();
        let mut done: Vec<Done> = Vec::new();
        for (at, text) in self.asked.lock().unwrap().iter() {
            let is_deletion = text.starts_with("DELETE ") && text.contains("/containers/");
            let what = match text {
                text if text.starts_with("POST ") && text.contains("/containers/create") => "createContainer",
                _ if is_deletion => "cleanupGroupContainers",
                text if text.contains("user.email") => "configureGitClientInContainer",
                text if text.contains("Starts a script in the container") => "executeScript",
                _ => continue,
            };
            if what == "executeScript" {
                let key = key(text);
                if keys.contains(&key) {
                    continue;
                }
                keys.push(key);
            }
            done.push((*at, what));
        }
        done
    }
}

/// The key of a script: the first argument of the code that starts it.
fn key(text: &str) -> String {
    let rest = text.split_once("\"gavel\",\"").map_or("", |(_, rest)| rest);
    rest.chars().take_while(char::is_ascii_hexdigit).collect()
}
