//! A git server: `git http-backend` behind HTTP. Every request needs Basic credentials with the right token, as those
//! of a private repository at GitHub do.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{HeaderMap, Request, Response};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::process::Command;

use crate::github::serve;

/// The server, with one repository: acme/dates.
pub struct GitServer {
    /// Scheme, host and port.
    pub url: String,
    repository: PathBuf,
    pushes: Arc<Mutex<u32>>,
    _root: TempDir,
}

impl GitServer {
    /// With these files on the branch main.
    pub async fn start(token: &'static str, files: &[(&str, &str)]) -> Self {
        let root = tempfile::tempdir().unwrap();
        let work = root.path().join("work");
        for (path, text) in files {
            let file = work.join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        let repository = root.path().join("acme/dates.git");
        git(&work, &["init", "--quiet", "--initial-branch=main", "."]);
        git(&work, &["add", "--all"]);
        git(&work, &["commit", "--quiet", "--message=First"]);
        let to = repository.display().to_string();
        git(&work, &["clone", "--quiet", "--bare", ".", &to]);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let pushes = Arc::<Mutex<u32>>::default();
        let at = (root.path().to_owned(), pushes.clone());
        serve(listener, move |request| {
            let (root, pushes) = at.clone();
            async move { Some(answer(request, &root, token, &pushes).await) }
        });
        Self {
            url,
            repository,
            pushes,
            _root: root,
        }
    }

    /// What git says of the repository.
    pub fn git(&self, arguments: &[&str]) -> String {
        git(&self.repository, arguments)
    }

    /// How many pushes were accepted.
    pub fn pushes(&self) -> u32 {
        *self.pushes.lock().unwrap()
    }
}

/// Without the configuration of the machine.
fn git(directory: &Path, arguments: &[&str]) -> String {
    let output = std::process::Command::new("git")
        .args(["-c", "user.name=ann", "-c", "user.email=ann@gavel.invalid"])
        .args(arguments)
        .current_dir(directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The password of Basic credentials.
fn password(headers: &HeaderMap) -> Option<String> {
    let given = headers.get("authorization")?.to_str().ok()?.strip_prefix("Basic ")?;
    let pair = String::from_utf8(STANDARD.decode(given).ok()?).ok()?;
    pair.split_once(':').map(|(_, password)| password.to_owned())
}

async fn answer(request: Request<Incoming>, root: &Path, token: &str, pushes: &Mutex<u32>) -> Response<Full<Bytes>> {
    let (parts, body) = request.into_parts();
    if password(&parts.headers).as_deref() != Some(token) {
        let refused = Response::builder().status(401);
        let refused = refused.header("www-authenticate", "Basic realm=\"git\"");
        return refused.body(Full::default()).unwrap();
    }
    let body = body.collect().await.unwrap().to_bytes();
    let header = |name: &str| {
        parts
            .headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    let path = parts.uri.path();
    let mut backend = Command::new("git")
        .args(["-c", "safe.directory=*", "http-backend"])
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("REQUEST_METHOD", parts.method.as_str())
        .env("PATH_INFO", path)
        .env("QUERY_STRING", parts.uri.query().unwrap_or_default())
        .env("CONTENT_TYPE", header("content-type"))
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("GIT_PROTOCOL", header("git-protocol"))
        // With a user, pushing is allowed.
        .env("REMOTE_USER", "robot")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = backend.stdin.take().unwrap();
    let write = async {
        // It may answer without reading all of it.
        let _ = input.write_all(&body).await;
        drop(input);
    };
    let (output, ()) = tokio::join!(backend.wait_with_output(), write);
    let output = output.unwrap().stdout;
    let end = output.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let mut response = Response::builder();
    let mut status = 200;
    for line in std::str::from_utf8(&output[..end]).unwrap().lines() {
        let (name, value) = line.split_once(": ").unwrap();
        match name {
            "Status" => status = value[..3].parse().unwrap(),
            name => response = response.header(name, value),
        }
    }
    if path.ends_with("/git-receive-pack") && status == 200 && parts.method == "POST" && body.len() > 4 {
        *pushes.lock().unwrap() += 1;
    }
    let body = Bytes::copy_from_slice(&output[end + 4..]);
    response.status(status).body(Full::new(body)).unwrap()
}
