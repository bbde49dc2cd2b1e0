//! Databases to test on, and records to write.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gavel::adapters::store::{ContentMode, Store, StoreConfig};
use gavel::domain::budget::SessionLimits;
use gavel::domain::decision::{DecisionType, Outcome, Usage};
use gavel::domain::definition::Constitution;
use gavel::domain::ids::{ActionId, ConversationId, DecisionId, InstanceId, ProjectId, RunId, TenantId, UserId};
use gavel::domain::journal::{CallFailure, Speaker};
use gavel::domain::policy::{Effect, Lost};
use gavel::domain::time::Timestamp;
use gavel::domain::tool::{FailureCode, Idempotency, Tool};
use gavel::ports::records::{
    Asked, ClosedCall, ClosedDecision, Decisions, Kept, ListQuery, OpenCall, OpenDecision, Page, PolicyOutcome,
    QueryError, StoredAnswer, Times, Turn,
};
use gavel::ports::runs::{Lease, NewRun, Origin, Parent, Runs, Started, StoredEntry};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row, SqliteConnection};

use crate::postgres;

/// A new database. On PostgreSQL gavel's tables are in it. The SQLite file is deleted with it.
pub(crate) struct TestDb {
    pub(crate) url: String,
    directory: Option<tempfile::TempDir>,
}

impl TestDb {
    pub(crate) async fn sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        // A missing directory is created.
        let url = format!("sqlite:{}", directory.path().join("data/gavel.db").display());
        Self {
            url,
            directory: Some(directory),
        }
    }

    pub(crate) async fn postgres() -> Self {
        Self {
            url: postgres::database().await,
            directory: None,
        }
    }

    /// The same without tables, for a test of what happens without them.
    pub(crate) async fn emptied(self) -> Self {
        match self.is_sqlite() {
            true => self,
            false => Self::postgres_at(postgres::empty_database().await),
        }
    }

    /// A database of a server that the test stops.
    pub(crate) fn postgres_at(url: String) -> Self {
        Self { url, directory: None }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.directory.as_ref().unwrap().path().join("data/gavel.db")
    }

    pub(crate) fn is_sqlite(&self) -> bool {
        self.directory.is_some()
    }

    /// The defaults, with a lease that outlasts every test. A commit may take long: a machine with other work is not a
    /// fault of the database.
    pub(crate) fn config(&self) -> StoreConfig {
        StoreConfig {
            // No heartbeat during a test.
            lease: Duration::from_secs(3600),
            write_deadline: Duration::from_secs(60),
            close_deadline: Duration::from_secs(60),
            sessions: SessionLimits::new(1000, 1000),
            ..StoreConfig::new(&self.url, InstanceId::new())
        }
    }

    pub(crate) async fn open(&self) -> Arc<Store> {
        Store::open(self.config()).await.unwrap()
    }

    /// Another process, which has recovered the rows of all others: their leases have expired. One that still runs may
    /// renew its lease in between, as after a write that took long; then once more.
    pub(crate) async fn open_after_all_expired(&self) -> Arc<Store> {
        for _ in 0..20 {
            self.run("UPDATE instance SET lease_until = 0").await;
            let other = self.open().await;
            if self
                .count("SELECT COUNT(*) FROM tool_invocation_log WHERE status = 'started'")
                .await
                == 0
            {
                return other;
            }
        }
        panic!("the rows are not recovered");
    }

    pub(crate) async fn open_with(&self, content: ContentMode) -> Arc<Store> {
        Store::open(StoreConfig {
            content,
            ..self.config()
        })
        .await
        .unwrap()
    }

    /// The result of a statement as text, directly from the database.
    pub(crate) async fn rows(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        self.try_rows(sql).await.unwrap()
    }

    /// The same for a script that may be refused.
    pub(crate) async fn try_rows(&self, sql: &str) -> Result<Vec<Vec<Option<String>>>, sqlx::Error> {
        let sql = AssertSqlSafe(sql.to_owned());
        // PostgreSQL's simple protocol returns text, as SQLite does on request.
        if self.is_sqlite() {
            let mut connection = SqliteConnection::connect(&self.url).await?;
            let rows = sqlx::raw_sql(sql).fetch_all(&mut connection).await;
            connection.close().await?;
            rows?.iter().map(cells).collect()
        } else {
            let mut connection = PgConnection::connect(&self.url).await?;
            let rows = sqlx::raw_sql(sql).fetch_all(&mut connection).await;
            connection.close().await?;
            rows?.iter().map(cells).collect()
        }
    }

    /// Runs a script directly on the database.
    pub(crate) async fn run(&self, sql: &str) {
        self.rows(sql).await;
    }

    /// Runs a statement that may be refused.
    pub(crate) async fn try_run(&self, sql: &str) -> Result<(), sqlx::Error> {
        self.try_rows(sql).await.map(drop)
    }

    /// Locks out every writer, as another process can. Reads continue.
    pub(crate) async fn lock(&self) -> Lock {
        if self.is_sqlite() {
            let mut connection = SqliteConnection::connect(&self.url).await.unwrap();
            sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut connection).await.unwrap();
            Lock::Sqlite(connection)
        } else {
            let locks = "BEGIN; LOCK TABLE instance, decision_log, tool_invocation_log, idempotency_key, agent_run \
                         IN EXCLUSIVE MODE";
            loop {
                let mut connection = PgConnection::connect(&self.url).await.unwrap();
                match sqlx::raw_sql(locks).execute(&mut connection).await {
                    Ok(_) => return Lock::Postgres(connection),
                    // A concurrent writer has locked one of them and wants another: PostgreSQL aborts one of the two.
                    Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("40P01") => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    /// Blocks reads of the decisions too; PostgreSQL only.
    pub(crate) async fn lock_out_readers(&self) -> Lock {
        self.hold("LOCK TABLE decision_log IN ACCESS EXCLUSIVE MODE").await
    }

    /// Runs a script in a transaction that lasts until the lock is released, which rolls it back, or is committed;
    /// PostgreSQL only.
    pub(crate) async fn hold(&self, sql: &str) -> Lock {
        let mut connection = PgConnection::connect(&self.url).await.unwrap();
        let sql = AssertSqlSafe(format!("BEGIN; {sql}"));
        sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
        Lock::Postgres(connection)
    }

    /// Waits until this many statements wait for a lock; PostgreSQL only.
    pub(crate) async fn stuck(&self, statements: i64) {
        let waiting = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() \
                       AND wait_event_type = 'Lock'";
        eventually("statements wait for the lock", async || {
            self.count(waiting).await >= statements
        })
        .await;
    }

    /// All that its tables hold, as text.
    pub(crate) async fn everything(&self) -> String {
        let tables = match self.is_sqlite() {
            true => "SELECT name FROM sqlite_master WHERE type = 'table'",
            false => "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'",
        };
        let mut all = String::new();
        for table in self.rows(tables).await.into_iter().flatten().flatten() {
            all.push_str(&format!("{:?}", self.rows(&format!("SELECT * FROM {table}")).await));
        }
        all
    }

    /// One number.
    pub(crate) async fn count(&self, sql: &str) -> i64 {
        self.rows(sql).await[0][0].as_ref().unwrap().parse().unwrap()
    }

    /// One row, nulls as `-`, columns joined by a space.
    pub(crate) async fn line(&self, sql: &str) -> String {
        let rows = self.rows(sql).await;
        assert_eq!(rows.len(), 1, "{sql}: {rows:?}");
        rows[0]
            .iter()
            .map(|cell| cell.as_deref().unwrap_or("-"))
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// One row as text.
fn cells<R: Row>(row: &R) -> Result<Vec<Option<String>>, sqlx::Error>
where
    usize: sqlx::ColumnIndex<R>,
    for<'r> Option<String>: sqlx::Decode<'r, R::Database>,
{
    (0..row.len()).map(|column| row.try_get_unchecked(column)).collect()
}

/// A lock on the whole database; gone when released or dropped.
pub(crate) enum Lock {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

impl Lock {
    /// Commits the changes made under the lock; PostgreSQL only.
    pub(crate) async fn commit(self) {
        let Self::Postgres(mut connection) = self else {
            panic!("held by SQLite");
        };
        sqlx::raw_sql("COMMIT").execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }

    pub(crate) async fn release(self) {
        match self {
            Self::Sqlite(connection) => connection.close().await.unwrap(),
            Self::Postgres(connection) => connection.close().await.unwrap(),
        }
    }
}

pub(crate) fn tenant() -> TenantId {
    TenantId::parse("default").unwrap()
}

pub(crate) fn raw(json: &str) -> Arc<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap().into()
}

pub(crate) fn tool(name: &str) -> Arc<Tool> {
    Arc::new(Tool {
        idempotency: Idempotency::Key,
        digest: "d1gest".into(),
        ..Tool::named("tasks", name)
    })
}

/// 2026-11-20T00:00:00.000001Z.
pub(crate) const T0: i64 = 1_795_132_800_000_001;

pub(crate) fn open_decision() -> OpenDecision {
    OpenDecision {
        id: DecisionId::new(),
        tenant: tenant(),
        surface: "chat",
        user: UserId::parse("ann").unwrap(),
        conversation: ConversationId::parse("c-1").unwrap(),
        message: "add a task to call mom".into(),
        definition_hash: "c0ffee".into(),
        requested_model: "gemini-test".into(),
        agent_id: None,
        time_zone: Some("Europe/Berlin".into()),
        tools_subset: Some(vec!["add_task".to_owned()]),
        history_entries: 2,
        trace_id: Some("4bf92f3577b34da6a3ce929d0e0e4736".into()),
        request_id: "req-1".into(),
        created_at: T0,
    }
}

pub(crate) fn intent(decision: &OpenDecision, sequence: u32) -> OpenCall {
    OpenCall {
        id: ActionId::new(),
        decision: decision.id,
        tenant: decision.tenant.clone(),
        sequence,
        turn: Some(1),
        tool: Some(tool("add_task")),
        name: "add_task".into(),
        words: (sequence == 1).then(|| "I will call mom".to_owned()),
        arguments: raw(r#"{"description":"call mom"}"#),
        policy: Some(PolicyOutcome {
            effect: Effect::Allow,
            by: Some("rule tasks".into()),
            lost: vec![Lost {
                by: "side_effects".to_owned(),
                says: Effect::RequireApproval,
            }],
        }),
        idempotency_key: Some(format!("key-{sequence}").into()),
        created_at: T0 + i64::from(sequence),
    }
}

/// The call that `intent` announced, completed.
pub(crate) fn done(intent: &OpenCall) -> ClosedCall {
    ClosedCall {
        open: intent.clone(),
        started_at: Some(intent.created_at),
        duration_us: 1_500,
        outcome: Ok(raw(r#"{"id":"t-1"}"#)),
    }
}

pub(crate) fn failed(intent: &OpenCall, code: FailureCode, message: &str) -> ClosedCall {
    ClosedCall {
        outcome: Err(CallFailure::new(code, message)),
        ..done(intent)
    }
}

pub(crate) fn turn() -> Turn {
    Turn {
        requested_model: "gemini-test".to_owned(),
        model: Some("gemini-answers".to_owned()),
        service_tier: Some("standard".to_owned()),
        finish_reason: Some("STOP".to_owned()),
        attempts: 1,
        started_at: Timestamp(T0),
        duration_ms: 500,
        first_text_ms: None,
        usage: Usage::default(),
        cost_nano: Some(2_000_123),
        price_id: Some("gemini-answers@2026-10-01:3/0.15/15".to_owned()),
    }
}

/// A decision that ran its calls.
pub(crate) fn closed(open: OpenDecision, calls: Vec<ClosedCall>, opened: bool) -> ClosedDecision {
    let first = calls.first().map(|call| Arc::clone(&call.open.name));
    ClosedDecision {
        open,
        asked: None,
        decision_type: if calls.is_empty() {
            DecisionType::RespondOnly
        } else {
            DecisionType::InvokeTool
        },
        outcome: if calls.is_empty() {
            Outcome::ResponseGiven
        } else {
            Outcome::TaskCompleted
        },
        intent: first.unwrap_or_else(|| "respond".into()),
        response: "Done: call mom.".into(),
        model: Some("gemini-answers".into()),
        service_tier: Some("standard".into()),
        turns: vec![turn(), turn()],
        usage: Usage {
            input_tokens: 11,
            output_tokens: 7,
            thought_tokens: 3,
            cached_tokens: 1,
        },
        duration_us: 1_234_567,
        times: Times {
            human_us: 0,
            model_us: 1_000_000,
            tool_us: 2_000,
        },
        limits: Vec::new(),
        closed_at: T0 + 1_234_567,
        error_detail: None,
        calls,
        answer: None,
        opened,
    }
}

pub(crate) fn answer(scope: &str) -> StoredAnswer {
    StoredAnswer {
        scope: scope.into(),
        status: 200,
        body: r#"{"ok":true}"#.into(),
    }
}

/// A run that its creator claims at once.
pub(crate) fn new_run() -> NewRun {
    let id = RunId::new();
    NewRun {
        id,
        project: ProjectId::parse("default").unwrap(),
        agent: "reporter".into(),
        version: Some(3),
        decision: OpenDecision {
            id: id.decision(),
            surface: "agent",
            ..open_decision()
        },
        origin: Origin::Trigger,
        snapshot: Kept {
            hash: "5ead".into(),
            text: r#"{"reporter":{}}"#.into(),
        },
        input: raw(r#"{"query":"who?"}"#),
        settings: raw(r#"{"max_steps":5}"#),
        entries: Vec::new(),
        queued: false,
        claim: None,
    }
}

/// A run that waits for a worker.
pub(crate) fn queued_run() -> NewRun {
    NewRun {
        queued: true,
        ..new_run()
    }
}

/// A run that `parent` calls.
pub(crate) fn called_run(lease: Lease, parent: RunId) -> NewRun {
    NewRun {
        origin: Origin::Called(Parent {
            run: parent,
            action: ActionId::new(),
            lease,
        }),
        ..new_run()
    }
}

/// Creates a run that is claimed at once.
pub(crate) async fn begin(store: &Store, run: &NewRun) -> Lease {
    match store.create(run.clone()).await.unwrap() {
        Started::Now(Some(lease)) => lease,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn entry(number: u64) -> StoredEntry {
    StoredEntry {
        number,
        at_us: T0 + i64::try_from(number).unwrap(),
        elapsed_us: i64::try_from(number).unwrap() * 10,
        body: format!(r#"{{"b":{number},"a":"\u0000"}}"#).into(),
    }
}

/// Waits until `what` holds; panics after 20 s, which no machine needs.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The decision log as JSON, as HTTP sends it.
pub(crate) trait AsJson {
    async fn ping(&self) -> Result<(), QueryError>;
    async fn list(&self, tenant: &TenantId, query: &ListQuery) -> Result<Page<Value>, QueryError>;
    async fn get(&self, tenant: &TenantId, id: DecisionId) -> Result<Option<Value>, QueryError>;
    async fn tool_invocations(&self, tenant: &TenantId, query: &ListQuery) -> Result<Page<Value>, QueryError>;
}

impl<T: Decisions> AsJson for T {
    async fn ping(&self) -> Result<(), QueryError> {
        Decisions::ping(self).await
    }

    async fn list(&self, tenant: &TenantId, query: &ListQuery) -> Result<Page<Value>, QueryError> {
        Ok(Decisions::list(self, tenant, query).await?.map(|row| json!(row)))
    }

    async fn get(&self, tenant: &TenantId, id: DecisionId) -> Result<Option<Value>, QueryError> {
        Ok(Decisions::get(self, tenant, id).await?.map(|row| json!(row)))
    }

    async fn tool_invocations(&self, tenant: &TenantId, query: &ListQuery) -> Result<Page<Value>, QueryError> {
        Ok(Decisions::tool_invocations(self, tenant, query)
            .await?
            .map(|row| json!(row)))
    }
}

/// What a model was asked with, after this history.
pub(crate) fn asked(history: Vec<(Speaker, String)>) -> Option<Arc<Asked>> {
    let constitution = Constitution::from_markdown(Constitution::BUILT_IN, "").unwrap();
    Some(Arc::new(Asked {
        definition: constitution.definition,
        toolset: Arc::new(Kept::new(r#"{"functions":[],"missing":[]}"#)),
        history: history.into(),
    }))
}
