//! The databases of a server: made for a test, empty or as a copy, and dropped after it.

use std::cell::RefCell;
use std::sync::OnceLock;

use gavel::adapters::store::Store;
use tokio::sync::OnceCell;

use super::server::Server;

/// URL of a new database with gavel's tables, on this test binary's server.
pub(crate) async fn database() -> String {
    static GAVEL: Template = Template::new();
    let migrate = async |url: String| drop(Store::migrate(&url).await.unwrap());
    GAVEL.copy(migrate).await
}

/// URL of a new, empty database on this test binary's server.
pub(crate) async fn empty_database() -> String {
    database_with("").await
}

/// URL of a new, empty database with these options of `CREATE DATABASE`.
pub(crate) async fn database_with(options: &str) -> String {
    let server = server().await;
    let url = server.url(&server.create(options).await);
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
        server.drop_database(name);
    }
}

static SERVER: OnceLock<Server> = OnceLock::new();

async fn server() -> &'static Server {
    // Starting blocks for a second or two.
    let started = tokio::task::spawn_blocking(|| SERVER.get_or_init(Server::start_new));
    started.await.unwrap()
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
