//! What every record needs of a database is tried before anything runs: an encoding that holds every text, a session that
//! is kept, a database that can be written and has room.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gavel::adapters::store::{AtStart, Store, StoreConfig, StoreError};
use gavel::domain::ids::InstanceId;

use crate::postgres::{self, Server};
use crate::support::TestDb;

/// The three commands that try a database: `serve`, `migrate` and `doctor`.
async fn tried(url: &str) -> Vec<Result<(), StoreError>> {
    let config = StoreConfig {
        at_start: AtStart::Background,
        ..StoreConfig::new(url, InstanceId::new())
    };
    let opened = match Store::open(config).await {
        Ok(store) => {
            store.shutdown().await;
            Ok(())
        }
        Err(error) => Err(error),
    };
    vec![opened, Store::migrate(url).await.map(drop), Store::try_write(url).await]
}

async fn assert_refused(url: &str, words: &[&str]) {
    for refused in tried(url).await {
        let refused = refused.unwrap_err();
        assert!(matches!(refused, StoreError::Unfit(_)), "{refused:?}");
        let text = refused.to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    }
}

/// The record of an effect would fail after the effect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_cannot_hold_every_text_is_refused_with_the_remedy() {
    for encoding in ["LATIN1", "SQL_ASCII", "EUC_JP"] {
        let options = format!("ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0");
        let url = postgres::database_with(&options).await;
        assert_refused(&url, &[encoding, "ENCODING 'UTF8'", "TEMPLATE template0"]).await;
    }
    for ok in tried(&postgres::empty_database().await).await {
        ok.unwrap();
    }
}

/// pgbouncer in front of a server; it ends with the test.
struct Pooler {
    process: Child,
    directory: PathBuf,
    port: u16,
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Pooler {
    /// `None` if pgbouncer is not installed.
    fn start(server: &Server, settings: &str) -> Option<Self> {
        let program = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"]
            .into_iter()
            .find(|path| Path::new(path).exists())?;
        let port = postgres::free_port();
        let directory = std::env::temp_dir().join(format!("gavel-pooler-{port}"));
        std::fs::create_dir(&directory).unwrap();
        let users = directory.join("users");
        std::fs::write(&users, "\"gavel\" \"\"\n").unwrap();
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = trust\nauth_file = {}\nignore_startup_parameters = extra_float_digits\n\
             max_client_conn = 500\n{settings}\n",
            server.port(),
            users.display()
        );
        let file = directory.join("pgbouncer.ini");
        std::fs::write(&file, text).unwrap();
        let open = Command::new("chmod").args(["-R", "a+rX"]).arg(&directory).status();
        assert!(open.unwrap().success());
        // `runuser` would stay between: killed, it leaves the pooler behind, with every file that it inherited.
        let process = Command::new("setpriv")
            .args(["--reuid=postgres", "--regid=postgres", "--clear-groups", program, "-q"])
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let pooler = Self {
            process,
            directory,
            port,
        };
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < Duration::from_secs(10), "pgbouncer does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(pooler)
    }

    /// The same database through the pooler.
    fn url(&self, of: &str) -> String {
        format!(
            "postgres://gavel@127.0.0.1:{}/{}",
            self.port,
            of.rsplit('/').next().unwrap()
        )
    }
}

/// Settings and prepared statements of one client would be those of another. However many connections the pooler has, and
/// in whatever order it uses them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_keeps_no_session_is_refused_and_one_that_does_is_not() {
    let server = tokio::task::spawn_blocking(Server::start_new).await.unwrap();
    for settings in [
        "pool_mode = transaction\ndefault_pool_size = 1",
        "pool_mode = transaction\ndefault_pool_size = 2\nserver_round_robin = 1",
        "pool_mode = transaction\ndefault_pool_size = 3\nserver_round_robin = 1",
        "pool_mode = transaction\ndefault_pool_size = 20",
        "pool_mode = statement\ndefault_pool_size = 20",
    ] {
        let Some(pooler) = Pooler::start(&server, settings) else {
            eprintln!("pgbouncer is not installed; the pooler was not tried");
            return;
        };
        let direct = server.database().await;
        for migrated in [false, true] {
            // Other clients have used its connections before.
            for _ in 0..3 {
                assert_refused(&pooler.url(&direct), &["does not keep sessions", "session mode"]).await;
            }
            if !migrated {
                Store::migrate(&direct).await.unwrap();
            }
        }
    }
    let pooler = Pooler::start(&server, "pool_mode = session\ndefault_pool_size = 40").unwrap();
    let direct = server.database().await;
    let db = TestDb::postgres_at(pooler.url(&direct));
    for ok in tried(&db.url).await {
        ok.unwrap();
    }
    // Readers and writers work through it.
    crate::recording::an_opened_decision_is_closed_in_place(db).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_database_is_unavailable_and_named() {
    let server = tokio::task::spawn_blocking(Server::start_new).await.unwrap();
    let db = TestDb::postgres_at(server.database().await);
    Store::migrate(&db.url).await.unwrap();
    let name = db.url.rsplit('/').next().unwrap().to_owned();
    db.run(&format!("ALTER DATABASE {name} SET default_transaction_read_only = on"))
        .await;
    let refused = Store::try_write(&db.url).await.unwrap_err().to_string();
    assert!(
        refused.contains("read-only") && refused.contains("primary"),
        "{refused}"
    );
}

/// A database that forbids a write, or has no room for a record that follows an effect, is refused before the effect.
pub(crate) async fn a_database_without_room_is_refused_before_anything_runs(db: TestDb) {
    Store::migrate(&db.url).await.unwrap();
    Store::try_write(&db.url).await.unwrap();
    let left = "SELECT CAST(count(*) AS TEXT) FROM instance WHERE started_at = 0";
    assert_eq!(db.line(left).await, "0", "the trial leaves nothing");
    if db.is_sqlite() {
        db.run("VACUUM").await;
        let bytes = std::fs::metadata(db.file()).unwrap().len();
        let config = StoreConfig {
            max_bytes: Some(bytes + 3 * 4096),
            ..db.config()
        };
        let full = Store::open(config).await.err().unwrap().to_string();
        assert!(full.contains("full"), "{full}");
    } else {
        db.run("CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS \
                $$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$; \
                CREATE TRIGGER no_room BEFORE INSERT ON instance FOR EACH ROW EXECUTE FUNCTION no_room()")
            .await;
        let full = Store::try_write(&db.url).await.unwrap_err();
        assert!(
            matches!(&full, StoreError::Unavailable(why) if why.contains("No space left")),
            "{full}"
        );
    }
}
