//! One PostgreSQL server for the whole test program, one database for each test.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

struct Server {
    directory: PathBuf,
    psql: PathBuf,
    /// The keeper stops the server when this program's end of its standard input closes, however the program ends.
    _holder: Child,
}

/// The URL of a new, empty database. Panics, and so fails the test, if PostgreSQL cannot be started.
pub(crate) fn new_database() -> String {
    static SERVER: OnceLock<Server> = OnceLock::new();
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let server = SERVER.get_or_init(start);
    let name = format!("test_{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let created = psql(server, &format!("CREATE DATABASE {name}"));
    assert!(created, "CREATE DATABASE {name} failed");
    format!("postgres://tester@localhost/{name}?host={}", server.directory.display())
}

const HOLDER: &str = r#"
"$@" >"$DIRECTORY/log" 2>&1 &
server=$!
cat >/dev/null
kill -INT $server
wait $server
rm -rf "$DIRECTORY"
"#;

fn start() -> Server {
    let programs = programs();
    let directory = tempfile::Builder::new()
        .prefix("tasks-pg-")
        .tempdir()
        .expect("a temporary directory")
        .keep();
    let data = directory.join("data");
    // PostgreSQL refuses to run as root.
    let root = fs::metadata(&directory).expect("metadata").uid() == 0;
    if root {
        run(Command::new("chown").arg("postgres").arg(&directory));
    }
    run(as_postgres(root, &programs.join("initdb"))
        .args(["--no-sync", "--auth=trust", "--username=tester"])
        .args(["--encoding=UTF8", "--locale=C.UTF-8", "-D"])
        .arg(&data)
        .current_dir(&directory));
    let server = as_postgres(root, &programs.join("postgres"));
    let holder = Command::new("sh")
        .args(["-c", HOLDER, "keeper"])
        .arg(server.get_program())
        .args(server.get_args())
        .arg("-D")
        .arg(&data)
        .arg("-k")
        .arg(&directory)
        .args(["-c", "listen_addresses="])
        .args(["-c", "fsync=off"])
        .args(["-c", "max_connections=300"])
        .env("DIRECTORY", &directory)
        .current_dir(&directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .expect("the keeper of PostgreSQL starts");
    let server = Server {
        psql: programs.join("psql"),
        directory,
        _holder: holder,
    };
    for _ in 0..300 {
        if psql(&server, "SELECT 1") {
            return server;
        }
        thread::sleep(Duration::from_millis(100));
    }
    let log = fs::read_to_string(server.directory.join("log")).unwrap_or_default();
    panic!("PostgreSQL did not start:\n{log}");
}

fn programs() -> PathBuf {
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let installed = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|version| version.path().join("bin"));
    let is_complete = |place: &PathBuf| {
        let needed = ["initdb", "postgres", "psql"];
        needed.iter().all(|program| place.join(program).exists())
    };
    std::env::split_paths(&on_path)
        .chain(installed)
        .find(is_complete)
        .expect("PostgreSQL (initdb, postgres, psql) must be installed to run these tests")
}

fn as_postgres(root: bool, program: &Path) -> Command {
    if !root {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=postgres", "--regid=postgres", "--init-groups"])
        .arg(program);
    command
}

fn psql(server: &Server, statement: &str) -> bool {
    Command::new(&server.psql)
        .arg("-h")
        .arg(&server.directory)
        .args(["-U", "tester", "-d", "postgres", "-qc", statement])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn run(command: &mut Command) {
    let output = command.output().expect("the command starts");
    assert!(
        output.status.success(),
        "{command:?} failed:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
