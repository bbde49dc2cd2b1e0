//! The databases of a server: made for a test, empty or as a copy, and dropped after it.

use std::cell::RefCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use gavel::adapters::store::Store;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::sync::{OnceCell, mpsc, oneshot};

use super::Server;

/// URL of a new database with gavel's tables, on this test binary's server.
pub(crate) async fn database() -> String {
    static GAVEL: Template = Template::new();
    let migrate = async |url: String| drop(Store::migrate(&url).await.unwrap());
    GAVEL.copy(migrate).await
}

/// URL of a new, empty database on this test binary's server.
pub(crate) async fn empty_database() -> String {
    let url = server().await.database().await;
    MADE.with_borrow_mut(|made| made.0.push(url.clone()));
    url
}

/// A database of this test binary's server that is prepared once and then copied: migrating takes eight times as long.
pub(crate) struct Template(OnceCell<String>);

impl Template {
    pub(crate) const fn new() -> Self {
        Self(OnceCell::const_new())
    }

    /// URL of a new copy. `prepare` gets the URL of the original and leaves no connection to it.
    pub(crate) async fn copy<F: Future<Output = ()>>(&self, prepare: impl FnOnce(String) -> F) -> String {
        let server = server().await;
        let original = self.0.get_or_init(|| async {
            let name = server.create("").await;
            prepare(server.url(&name)).await;
            name
        });
        // Without a log of the copied pages, which also has the first connection's cache in it.
        let copied = format!("TEMPLATE {} STRATEGY file_copy", original.await);
        let url = server.url(&server.create(&copied).await);
        MADE.with_borrow_mut(|made| made.0.push(url.clone()));
        url
    }
}

/// Drops a database of this test binary's server in the background, for a test that creates many.
pub(crate) fn drop_database(url: &str) {
    if let (Some(server), Some((_, name))) = (SERVER.get(), url.rsplit_once('/')) {
        let drop = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
        server.dropping.order(drop, None);
    }
}

static SERVER: OnceLock<Server> = OnceLock::new();

async fn server() -> &'static Server {
    // Starting blocks for a second or two.
    let started = tokio::task::spawn_blocking(|| SERVER.get_or_init(Server::start_new));
    started.await.unwrap()
}

impl Server {
    /// URL of a new, empty database.
    pub(crate) async fn database(&self) -> String {
        self.url(&self.create("").await)
    }

    /// The name of a new database with these options.
    async fn create(&self, options: &str) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let (done, created) = oneshot::channel();
        self.creating
            .order(format!("CREATE DATABASE {name} {options}"), Some(done));
        created.await.unwrap().unwrap();
        name
    }
}

/// One connection for many statements: each connection costs PostgreSQL a process.
pub(super) struct Administrator(mpsc::UnboundedSender<(String, Option<Done>)>);

type Done = oneshot::Sender<Result<(), sqlx::Error>>;

impl Administrator {
    /// Connects when it gets its first order. It has a thread, because a test's runtime ends with its test.
    pub(super) fn of(url: String) -> Self {
        let (orders, mut next) = mpsc::unbounded_channel::<(String, Option<Done>)>();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let mut connection = None;
                while let Some((sql, done)) = next.recv().await {
                    let result = execute(&mut connection, &url, sql).await;
                    // A stopped server takes its databases with it.
                    if let Some(done) = done {
                        let _ = done.send(result);
                    }
                }
            });
        });
        Self(orders)
    }

    fn order(&self, sql: String, done: Option<Done>) {
        self.0.send((sql, done)).unwrap();
    }
}

/// After an error the next statement connects again.
async fn execute(connection: &mut Option<PgConnection>, url: &str, sql: String) -> Result<(), sqlx::Error> {
    let mut connected = match connection.take() {
        Some(connected) => connected,
        None => PgConnection::connect(url).await?,
    };
    sqlx::query(AssertSqlSafe(sql)).execute(&mut connected).await?;
    *connection = Some(connected);
    Ok(())
}

/// The databases of one test, which has its own thread.
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
