//! Creates and drops the databases of a server.

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::sync::{mpsc, oneshot};

/// One connection for many statements: each connection costs PostgreSQL a process.
pub(super) struct Administrator(mpsc::UnboundedSender<(String, Option<Done>)>);

pub(super) type Done = oneshot::Sender<Result<(), sqlx::Error>>;

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

    pub(super) fn order(&self, sql: String, done: Option<Done>) {
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
