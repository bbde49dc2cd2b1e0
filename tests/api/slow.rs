//! Many readers that hardly read (promise: bounded faults): unread data is not buffered separately for each of them.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Notify;

use crate::agents::processes::Place;
use crate::gemini::{Gemini, Reply};
use crate::harness::until;

const READERS: usize = 500;
/// Services that read on the users' behalf; each may have 64 streams open.
const SERVICES: usize = 8;
/// Number of readers that connect at the same time.
const AT_ONCE: usize = 20;
/// The model's output: this many chunks of this many bytes.
const PIECES: usize = 12;
const PIECE: usize = 64 * 1024;
/// The memory that all readers together may cost, beyond that of the run itself. Separate buffers would take 400 MB and more.
const MOST: u64 = 200 << 20;
/// The ticks of half a second in which the process does nothing for its readers.
const AT_REST: u64 = 3;

/// Resident memory of a process, in bytes.
pub fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// Processor time of a process, in ticks.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit(')').next().unwrap();
    fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|field| field.parse::<u64>().unwrap())
        .sum()
}

/// Sends a request with a very small receive buffer for the response.
async fn ask(url: &str, request: &str) -> BufReader<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let host = url.strip_prefix("http://").unwrap();
    let mut stream = socket.connect(host.parse().unwrap()).await.unwrap();
    stream
        .write_all(request.replace("HOST", host).as_bytes())
        .await
        .unwrap();
    BufReader::with_capacity(1024, stream)
}

/// The next line that contains this.
async fn line_with(reader: &mut BufReader<TcpStream>, what: &str) -> String {
    let (mut line, mut before) = (String::new(), String::new());
    loop {
        line.clear();
        assert!(
            reader.read_line(&mut line).await.unwrap() > 0,
            "it ended before {what}: {before}"
        );
        if line.contains(what) {
            return line;
        }
        before.extend(line.chars().take(200));
    }
}

/// A reader that resumes receives the whole text, and the process stays small while no client reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_slow_readers_cost_little_memory_and_miss_nothing() {
    // One after the other, because the measurement covers the whole process.
    for postgres in [false, true] {
        hardly_read(Place::on(postgres).await).await;
    }
}

async fn hardly_read(place: Place) {
    let piece: &'static str = Box::leak("0123456789abcde\n".repeat(PIECE / 16).into_boxed_str());
    let pieces: &'static [&'static str] = Box::leak(vec![piece; PIECES].into_boxed_slice());
    let go = Arc::new(Notify::new());
    let gemini = {
        let words = Reply::Words(Duration::from_millis(40), pieces);
        Gemini::scripted(vec![Reply::Held(Arc::clone(&go), Box::new(words))]).await
    };
    let names: Vec<_> = (0..SERVICES).map(|n| format!("reader-{n}")).collect();
    let keys = names
        .iter()
        .map(|name| json!({"name": name, "sha256": hex::encode(Sha256::digest(name)), "tenant": "default"}));
    let keys = Value::from_iter(keys).to_string();
    let settings = [("GAVEL_AUTH_MODE", "api_key"), ("GAVEL_AUTH_KEYS", keys.as_str())];
    let process = place.start_set(&gemini, &settings).await;
    let pid = process.child.0.id();
    let body = json!({"prompt": "Tell me a lot."}).to_string();
    let say = format!(
        "POST /api/agent/run/stream HTTP/1.1\r\nhost: HOST\r\nconnection: close\r\nx-api-key: reader-0\r\nx-gavel-user: ann\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut said = ask(&process.url, &say).await;
    let first: Value = serde_json::from_str(&line_with(&mut said, "\"status\"").await).unwrap();
    let run = first["runId"].as_str().unwrap().to_owned();
    let before = resident(pid);
    let watch = |n: usize| {
        let key = &names[n % SERVICES];
        format!("GET /api/agent/runs/{run}/events HTTP/1.1\r\nhost: HOST\r\nx-api-key: {key}\r\n\r\n")
    };
    let mut readers = Vec::new();
    while readers.len() + 1 < READERS {
        let (come, more) = (readers.len(), AT_ONCE.min(READERS - 1 - readers.len()));
        for n in come..come + more {
            readers.push(ask(&process.url, &watch(n)).await);
        }
        for reader in &mut readers[come..] {
            line_with(reader, "200 OK").await;
        }
    }
    go.notify_one();
    let most = Cell::new(0);
    let look = || most.set(most.get().max(resident(pid).saturating_sub(before)));
    let path = format!("{}/api/agent/runs/{run}", process.url);
    until("the run to end, whatever clients read", || async {
        look();
        let asked = reqwest::Client::new().get(&path).header("x-api-key", "reader-0");
        let run: Value = asked.send().await.unwrap().json().await.unwrap();
        run["status"] == "completed"
    })
    .await;
    // Each reader now receives as much as its connection takes, and then the process is at rest.
    let used = Cell::new(ticks(pid));
    until("the process to be at rest", || async {
        for _ in 0..10 {
            look();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let before = used.replace(ticks(pid));
        used.get() - before <= AT_REST
    })
    .await;
    let most = most.get();
    assert!(most < MOST, "{READERS} readers cost {} MiB", most >> 20);
    // A reader that resumes gets all of it.
    for reader in [&said, &readers[0]] {
        let socket = socket2::SockRef::from(reader.get_ref());
        socket.set_recv_buffer_size(4 << 20).unwrap();
    }
    let mut rest = Vec::new();
    let both = async {
        tokio::join!(
            said.read_to_end(&mut rest),
            line_with(&mut readers[0], "\"type\":\"end\"")
        )
    };
    let both = tokio::time::timeout(Duration::from_secs(150), both).await;
    let (_, end) = both.expect("both reach their end");
    let text = String::from_utf8_lossy(&rest);
    assert!(
        text.contains("\"type\":\"result\""),
        "{} bytes: {}",
        rest.len(),
        text.chars().take(400).collect::<String>()
    );
    assert!(end.contains("abcde"));
}
