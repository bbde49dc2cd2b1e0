//! A listener on this machine for one request: the browser that returns from Google (RFC 8252, section 7.3).

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use url::form_urlencoded;

use crate::http::google::escaped;

/// The longest request head that is read, in bytes.
const MAX_HEAD: usize = 16 * 1024;
/// A silent connection must not block the browser's.
const HEAD_TIME: Duration = Duration::from_secs(5);

pub(super) struct Loopback {
    listener: TcpListener,
    port: u16,
}

/// The returned browser, which waits for an answer.
pub(super) struct Browser(TcpStream);

impl Loopback {
    pub(super) async fn listen(port: u16) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
        let listener = listener.with_context(|| format!("cannot listen on 127.0.0.1:{port}; name another --port"))?;
        let port = listener.local_addr()?.port();
        Ok(Self { listener, port })
    }

    pub(super) fn redirect_uri(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    /// Waits for the browser with this state. Without a code, the user declined. Other requests are rejected.
    pub(super) async fn returned(&self, state: &str) -> anyhow::Result<(Option<String>, Browser)> {
        loop {
            let (stream, _) = self.listener.accept().await.context("the listener failed")?;
            let mut browser = Browser(stream);
            let Ok(Some(target)) = tokio::time::timeout(HEAD_TIME, browser.target()).await else {
                continue;
            };
            let query = target.split_once('?').map_or("", |(_, query)| query);
            let given = |wanted: &str| {
                let mut values = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == wanted);
                values.next().map(|(_, value)| value.into_owned())
            };
            if given("state").as_deref() == Some(state) {
                return Ok((given("code"), browser));
            }
            browser.answer("404 Not Found", "There is nothing here.").await;
        }
    }
}

impl Browser {
    /// The target of its request; `None` if that is not a GET.
    async fn target(&mut self) -> Option<String> {
        let mut head = Vec::new();
        while !head.windows(4).any(|end| end == b"\r\n\r\n") {
            if head.len() > MAX_HEAD || self.0.read_buf(&mut head).await.ok()? == 0 {
                return None;
            }
        }
        let line = std::str::from_utf8(head.split(|byte| *byte == b'\r').next()?).ok()?;
        let target = line.strip_prefix("GET ")?.strip_suffix(" HTTP/1.1")?;
        Some(target.to_owned())
    }

    pub(super) async fn tell(self, words: &str) {
        self.answer("200 OK", words).await;
    }

    /// A browser that has disconnected misses nothing: the terminal shows the same.
    async fn answer(mut self, status: &str, words: &str) {
        // A user's name may contain any characters.
        let words = escaped(words);
        let body = format!("<!doctype html>\n<meta charset=\"utf-8\">\n<title>gavel</title>\n<p>{words}</p>\n");
        let answer = format!(
            "HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {}\r\ncache-control: no-store\r\n\
             content-security-policy: default-src 'none'; frame-ancestors 'none'\r\nreferrer-policy: no-referrer\r\n\
             connection: close\r\n\r\n{body}",
            body.len()
        );
        let sent = async {
            self.0.write_all(answer.as_bytes()).await?;
            self.0.shutdown().await
        };
        if let Err(error) = sent.await {
            tracing::debug!(%error, "the answer to the browser could not be sent");
        }
    }
}
