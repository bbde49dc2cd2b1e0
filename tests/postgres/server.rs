//! A server: a script that runs it, and the databases in it.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::oneshot;

use super::administrator::Administrator;
use super::ports::free_port;

/// Reads `start` and `stop` from its input, answers each with a line, and cleans up at its end.
const SCRIPT: &str = r#"
set -u
cd /
parent=${TMPDIR:-/tmp}
free=$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print $4 }')
[ "${free:-0}" -lt 2000000 ] || parent=/dev/shm
dir=$(mktemp -d "$parent/gavel-pg.XXXXXX") || exit 1
finish() { "$BIN/pg_ctl" -D "$dir/data" -m immediate stop >/dev/null 2>&1; rm -rf "$dir"; }
trap finish EXIT
trap 'exit 1' HUP INT TERM
"$BIN/initdb" -D "$dir/data" -U gavel -A trust -E UTF8 --locale=C.UTF-8 --no-sync >"$dir/initdb.log" 2>&1 \
    || { echo "initdb: $(tr '\n' ' ' <"$dir/initdb.log")"; exit 1; }
while read -r word; do
    case $word in
        start)
            if "$BIN/pg_ctl" -D "$dir/data" -w -t 60 -l "$dir/log" -o "-p $PORT -k $dir -c listen_addresses=127.0.0.1 \
                -c fsync=off -c full_page_writes=off -c autovacuum=off -c jit=off -c max_connections=500 -c shared_buffers=64MB \
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
    creating: Administrator,
    dropping: Administrator,
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
        let admin = url(port, "postgres");
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
            creating: Administrator::of(admin.clone()),
            dropping: Administrator::of(admin),
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
        url(self.port, database)
    }

    /// URL of a new, empty database.
    pub(crate) async fn database(&self) -> String {
        self.url(&self.create("").await)
    }

    /// The name of a new database with these options.
    pub(super) async fn create(&self, options: &str) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let (done, created) = oneshot::channel();
        self.creating
            .order(format!("CREATE DATABASE {name} {options}"), Some(done));
        created.await.unwrap().unwrap();
        name
    }

    /// Drops a database in the background.
    pub(super) fn drop_database(&self, name: &str) {
        let drop = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
        self.dropping.order(drop, None);
    }
}

fn url(port: u16, database: &str) -> String {
    format!("postgres://gavel@127.0.0.1:{port}/{database}")
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
