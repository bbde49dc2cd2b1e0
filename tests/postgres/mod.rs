//! A private PostgreSQL for tests: one server per test binary, one database per test.
//!
//! A small shell script runs the server; this process holds the script's standard input. However this process ends, the
//! script then reads end-of-file, stops the server and removes its directory. PostgreSQL refuses to run as root; then
//! the script runs as the user `postgres`, or `nobody`.
//!
//! Use it with `mod postgres;` (or `#[path]`), then `postgres::database().await`. A server that cannot be started fails
//! the test: nothing is skipped. `PG_BIN` names the directory of `initdb` if it is not found.
#![allow(dead_code, clippy::unwrap_used, clippy::disallowed_methods)]

#[path = "../ports/mod.rs"]
mod ports;

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub(crate) use self::ports::free_port;

/// Reads `start` and `stop` from its input, answers each with a line, and cleans up at its end.
const SCRIPT: &str = r#"
set -u
cd /
dir=$(mktemp -d "${TMPDIR:-/tmp}/gavel-pg.XXXXXX") || exit 1
finish() { "$BIN/pg_ctl" -D "$dir/data" -m immediate stop >/dev/null 2>&1; rm -rf "$dir"; }
trap finish EXIT
trap 'exit 1' HUP INT TERM
"$BIN/initdb" -D "$dir/data" -U gavel -A trust -E UTF8 --locale=C.UTF-8 --no-sync >"$dir/initdb.log" 2>&1 \
    || { echo "initdb: $(tr '\n' ' ' <"$dir/initdb.log")"; exit 1; }
while read -r word; do
    case $word in
        start)
            if "$BIN/pg_ctl" -D "$dir/data" -w -t 60 -l "$dir/log" -o "-p $PORT -k $dir -c listen_addresses=127.0.0.1 \
                -c fsync=off -c full_page_writes=off -c max_connections=500 -c shared_buffers=64MB \
                -c min_wal_size=32MB -c max_wal_size=64MB" start >/dev/null 2>&1
            then echo ok; else echo "start: $(tail -5 "$dir/log" | tr '\n' ' ')"; fi ;;
        stop)
            if "$BIN/pg_ctl" -D "$dir/data" -w -m immediate stop >/dev/null 2>&1; then echo ok; else echo "stop failed"; fi ;;
    esac
done
"#;

/// A dedicated server, for a test that stops it.
pub(crate) struct Server {
    port: u16,
    // Keeps the script's input open; dropping it ends the server.
    control: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
    _script: Child,
}

impl Server {
    /// Creates a new cluster on a free port and starts it.
    pub(crate) fn start_new() -> Self {
        let mut last = String::new();
        for _ in 0..5 {
            let server = Self::script(free_port());
            match server.tell("start") {
                Ok(()) => return server,
                // Another process took the port in between.
                Err(reason) => last = reason,
            }
        }
        panic!("PostgreSQL cannot be started, and without it this test shows nothing: {last}");
    }

    fn script(port: u16) -> Self {
        let mut command = as_unprivileged_user();
        let mut script = command
            .args(["sh", "-c", SCRIPT])
            .env("BIN", bin_directory())
            .env("PORT", port.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh, env and (for root) runuser are there");
        let control = (
            script.stdin.take().unwrap(),
            BufReader::new(script.stdout.take().unwrap()),
        );
        Self {
            port,
            control: Mutex::new(control),
            _script: script,
        }
    }

    fn tell(&self, word: &str) -> Result<(), String> {
        let mut control = self.control.lock().unwrap();
        writeln!(control.0, "{word}").map_err(|error| error.to_string())?;
        let mut answer = String::new();
        control.1.read_line(&mut answer).map_err(|error| error.to_string())?;
        match answer.trim() {
            "ok" => Ok(()),
            "" => Err("the server's script ended".into()),
            other => Err(other.to_owned()),
        }
    }

    /// Stops the server at once, as a crash would.
    pub(crate) fn stop(&self) {
        self.tell("stop").unwrap();
    }

    /// Starts it again.
    pub(crate) fn start(&self) {
        self.tell("start").unwrap();
    }

    /// Its port on 127.0.0.1.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// URL of a database by name.
    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://gavel@127.0.0.1:{}/{database}", self.port)
    }

    /// URL of a new, empty database.
    pub(crate) async fn database(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let mut admin = PgConnection::connect(&self.url("postgres")).await.unwrap();
        sqlx::query(AssertSqlSafe(format!("CREATE DATABASE {name}")))
            .execute(&mut admin)
            .await
            .unwrap();
        admin.close().await.unwrap();
        self.url(&name)
    }
}

/// URL of a new, empty database on this test binary's server.
pub(crate) async fn database() -> String {
    static SERVER: OnceLock<Server> = OnceLock::new();
    // Starting blocks for a second or two.
    let server = tokio::task::spawn_blocking(|| SERVER.get_or_init(Server::start_new))
        .await
        .unwrap();
    let url = server.database().await;
    MADE.with_borrow_mut(|made| made.0.push(url.clone()));
    url
}

/// Drops a database of [`database`] in the background, for a test that creates many.
pub(crate) fn drop_database(url: &str) {
    let Some((server, name)) = url.rsplit_once('/') else {
        return;
    };
    let (admin, drop) = (
        format!("{server}/postgres"),
        format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"),
    );
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            // A stopped server takes its databases with it.
            if let Ok(mut admin) = PgConnection::connect(&admin).await {
                let _ = sqlx::query(AssertSqlSafe(drop)).execute(&mut admin).await;
            }
        });
    });
}

/// The databases of one test, which has its own thread. Each takes 8 MB of disk, and there are many tests.
#[derive(Default)]
struct Made(Vec<String>);

impl Drop for Made {
    fn drop(&mut self) {
        self.0.iter().for_each(|url| drop_database(url));
    }
}

thread_local! {
    static MADE: RefCell<Made> = RefCell::default();
}

/// `env`, as a user for whom PostgreSQL agrees to run.
fn as_unprivileged_user() -> Command {
    if id(&["-u"]).as_deref() != Some("0") {
        return Command::new("env");
    }
    let user = ["postgres", "nobody"]
        .into_iter()
        .find(|user| id(&["-u", user]).is_some())
        .expect("PostgreSQL does not run as root, and there is no user postgres or nobody");
    let mut command = Command::new("runuser");
    command.args(["-u", user, "--", "env"]);
    command
}

fn id(arguments: &[&str]) -> Option<String> {
    let output = Command::new("id").args(arguments).output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The directory of the newest installed PostgreSQL.
fn bin_directory() -> PathBuf {
    if let Some(directory) = std::env::var_os("PG_BIN") {
        return directory.into();
    }
    let mut installed: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .filter(|(_, directory)| directory.join("initdb").is_file())
        .collect();
    installed.sort();
    if let Some((_, directory)) = installed.pop() {
        return directory;
    }
    std::env::var_os("PATH")
        .and_then(|path| std::env::split_paths(&path).find(|directory| is_postgres(directory)))
        .expect("no PostgreSQL is installed (initdb); on Debian: apt-get install postgresql")
}

fn is_postgres(directory: &Path) -> bool {
    directory.join("initdb").is_file() && directory.join("postgres").is_file()
}

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
