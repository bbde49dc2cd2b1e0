//! The analysts' views: the schema `gavel_v1` of PostgreSQL, the prefix `gavel_v1_` of SQLite. Their columns follow from
//! the tables, and what documents them from the records of the API. Texts of users, models and tools stand apart, in the
//! views whose names end with `_content`.
//!
//! A column keeps its name, and is only added at the end of its view. So others may look through it, and their rights
//! stay.

use std::fmt::Write as _;
use std::sync::LazyLock;

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::audit::{AUDIT, AuditRow};
use super::db::{Conn, Dialect, values};
use super::decisions::{CALL, DECISION};
use super::error::{StoreError, describe};
use super::migrate;
use super::read::{COUNTED, Counted};
use super::runs::RUN;
use super::table::{About, Table};
use crate::api::decisions::{DecisionRecord, ToolInvocation, Turn};
use crate::api::runs::AgentRun;
use crate::domain::ids::TenantId;
use crate::domain::names::{Field, Shape, Shaped};
use crate::ports::exports::ColumnKind;

/// The schema, the prefix on SQLite, and that of the schemas of roles.
const SCHEMA: &str = "gavel_v1";

/// The row of `gavel_schema` that says which views a database has. Migrations begin at 1.
const VERSION: i64 = 0;

struct View {
    name: &'static str,
    about: &'static str,
    columns: Vec<Column>,
    /// What follows FROM.
    from: &'static str,
}

#[derive(Clone)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) source: Source,
    about: String,
    pub(super) kind: ColumnKind,
}

/// Where a column has its value from.
#[derive(Clone)]
pub(super) enum Source {
    /// An expression of the table's columns.
    Row(String),
    /// A field of a model call, such as `usage.input_tokens`.
    Turn(String),
    /// The place of the model call: 1, 2, 3 …
    Place,
}

static VIEWS: LazyLock<Vec<View>> = LazyLock::new(|| {
    let (decision, call) = (DecisionRecord::shape(), ToolInvocation::shape());
    let (run, audit) = (AgentRun::shape(), AuditRow::shape());
    let view = |name, about, columns, from| View {
        name,
        about,
        columns,
        from,
    };
    vec![
        view(
            "decisions",
            "Each chat message, trigger and thread message, with its outcome.",
            of_table(&DECISION, &decision, false),
            "decision_log",
        ),
        view(
            "decision_content",
            "The texts of decisions, depending on `records.content`.",
            of_table(&DECISION, &decision, true),
            "decision_log",
        ),
        view(
            MODEL_TURNS,
            "Each model call of a decision that has its outcome.",
            of_turns(),
            "decision_log",
        ),
        view(
            "tool_invocations",
            "Each tool call that a model proposed.",
            of_table(&CALL, &call, false),
            "tool_invocation_log",
        ),
        view(
            "tool_invocation_content",
            "The texts of tool calls, depending on `records.content`.",
            of_table(&CALL, &call, true),
            "tool_invocation_log",
        ),
        view(
            "actions",
            "Each call of a run of an agent, with its approval.",
            listed(ACTION_COLUMNS),
            ACTIONS,
        ),
        view(
            "runs",
            "Each run of an agent, until `runs.keep_days` after its end.",
            of_table(&RUN, &run, false),
            "agent_run",
        ),
        view(
            "stats_quarter",
            "Counts of decisions by quarters of an hour, which outlive them. Counted again after each change.",
            of_counted(COUNTED[0]),
            COUNTED[0].rollup,
        ),
        view(
            "tool_stats_quarter",
            "Tool calls by quarters of an hour, likewise.",
            of_counted(COUNTED[1]),
            COUNTED[1].rollup,
        ),
        view(
            "audit",
            "The audit log: a row for each side effect, approval and change of a definition.",
            of_table(&AUDIT, &audit, false),
            "audit",
        ),
        view(
            "audit_content",
            "The texts of the audit log: arguments, reasons, recipients.",
            of_table(&AUDIT, &audit, true),
            "audit",
        ),
    ]
});

impl Column {
    fn new(name: &str, sql: &str, about: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            source: Source::Row(sql.to_owned()),
            about: about.into(),
            kind: kind_by_name(name),
        }
    }

    fn of(self, kind: ColumnKind) -> Self {
        Self { kind, ..self }
    }

    /// Its value in a view. SQLite has no times: they are RFC 3339 there.
    fn sql(&self, dialect: Dialect) -> String {
        match (&self.source, dialect, self.kind) {
            (Source::Row(sql), Dialect::Sqlite, ColumnKind::Time) => dialect.text(&format!("@utc({sql})")),
            // Exact to the microsecond until the year 2255. The indexes have the same expression.
            (Source::Row(sql), Dialect::Postgres, ColumnKind::Time) => {
                format!("to_timestamp({sql} / 1000000.0::float8)")
            }
            (Source::Row(sql), ..) => sql.clone(),
            (Source::Place, Dialect::Sqlite, _) => "turn.key + 1".to_owned(),
            (Source::Place, Dialect::Postgres, _) => "turn.number".to_owned(),
            (Source::Turn(path), Dialect::Sqlite, _) => format!("json_extract(turn.value, '$.{path}')"),
            (Source::Turn(path), Dialect::Postgres, kind) => {
                let text = format!("turn.value #>> '{{{}}}'", path.replace('.', ","));
                match kind {
                    ColumnKind::Int => format!("CAST({text} AS BIGINT)"),
                    ColumnKind::Time => format!("CAST({text} AS TIMESTAMPTZ)"),
                    ColumnKind::Text | ColumnKind::Bool => text,
                }
            }
        }
    }
}

impl View {
    fn has_content(&self) -> bool {
        self.name.ends_with("_content")
    }

    /// Its columns, and for the time that indexes are ordered by also the number.
    fn all(&self) -> Vec<Column> {
        let all = self.columns.iter().flat_map(|column| {
            let number = (column.name == "created_at").then(|| Column {
                name: "created_us".to_owned(),
                about: "The same in microseconds since 1970.".to_owned(),
                kind: ColumnKind::Int,
                ..column.clone()
            });
            [column.clone()].into_iter().chain(number)
        });
        all.collect()
    }
}

fn text(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

fn fields(shape: &Shape) -> &[Field] {
    match shape {
        Shape::Record(_, fields, _) => fields,
        Shape::Optional(of) => fields(of),
        _ => &[],
    }
}

/// A field of a record, such as `usage.input_tokens`.
fn field<'a>(shape: &'a Shape, path: &str) -> Option<&'a Field> {
    let (name, rest) = path
        .split_once('.')
        .map_or((path, None), |(name, rest)| (name, Some(rest)));
    let found = fields(shape).iter().find(|field| field.name == name)?;
    match rest {
        Some(rest) => field(&found.shape, rest),
        None => Some(found),
    }
}

/// The columns of a table: those without content, or those with it and what identifies a row. Lists of records have views
/// of their own.
fn of_table<O, C>(table: &Table<O, C>, shape: &Shape, content: bool) -> Vec<Column> {
    let is_key = |name| {
        matches!(
            name,
            "number" | "tenant" | "decision_id" | "tool_invocation_id" | "user_id" | "created_at"
        )
    };
    let wanted = table
        .viewed()
        .filter(|column| column.is_content == content || content && is_key(column.name));
    let columns = wanted.filter_map(|column| {
        let (about, kind) = match column.about {
            About::Own(about) => (about.to_owned(), kind_by_name(column.name)),
            About::Field(path) => {
                let field = field(shape, path).unwrap_or_else(|| unreachable!("{} answers with {path}", table.name));
                if matches!(&field.shape, Shape::List(of) if matches!(**of, Shape::Record(..))) {
                    return None;
                }
                let kind = match kind_by_name(column.name) {
                    ColumnKind::Text => kind(&field.shape),
                    known => known,
                };
                (text(field.about), kind)
            }
        };
        Some((column.is_content, Column::new(column.name, column.sql, about).of(kind)))
    });
    let mut columns: Vec<_> = columns.collect();
    columns.sort_by_key(|(is_content, _)| *is_content);
    columns.into_iter().map(|(_, column)| column).collect()
}

/// The columns of counted quarters.
fn of_counted(counted: &Counted) -> Vec<Column> {
    let own = [
        ("tenant", "tenant", "The tenant."),
        ("quarter_at", "quarter * 900000000", "When the quarter began."),
        ("quarter", "quarter", "The same in quarters of an hour since 1970."),
    ];
    let by = counted.by.iter().map(|name| Column::new(name, name, "As in the log."));
    let sums = counted
        .sums
        .iter()
        .map(|(name, _)| Column::new(name, name, "The sum over these rows."));
    let hist = "A histogram, `CLASS:COUNT` for each class: 0 is below 1 ms, `k` begins at 2^((k - 1) / 4) ms.";
    let hists = counted.lengths.iter().map(|(_, name, _)| Column::new(name, name, hist));
    let n = Column::new("n", "n", "How many rows.");
    listed(&own)
        .into_iter()
        .chain(by)
        .chain([n])
        .chain(sums)
        .chain(hists)
        .collect()
}

const MODEL_TURNS: &str = "model_turns";

/// What `model_turns` reads beside the log.
fn turns(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Sqlite => ", json_each(decision_log.turns) AS turn",
        // JSON with an escaped U+0000 is no JSON to PostgreSQL, and one such row must not make the view unreadable.
        Dialect::Postgres => {
            ", json_array_elements(CASE WHEN strpos(decision_log.turns, '\\u0000') = 0 THEN decision_log.turns::json END) \
             WITH ORDINALITY AS turn (value, number)"
        }
    }
}

/// The columns of `model_turns`: the decision's, and the fields of a turn.
fn of_turns() -> Vec<Column> {
    let created = "When the request of the decision was parsed.";
    let own = [
        ("decision_id", "decision_log.id", "The decision."),
        ("tenant", "decision_log.tenant", "The tenant."),
        ("created_at", "decision_log.created_at", created),
    ];
    let mut columns = listed(&own);
    columns.push(Column {
        source: Source::Place,
        ..Column::new("number", "", "Its place in the decision: 1, 2, 3 …")
    });
    unfold(&Turn::shape(), "", &mut columns);
    columns
}

fn unfold(shape: &Shape, within: &str, columns: &mut Vec<Column>) {
    for field in fields(shape) {
        let path = format!("{within}{}", field.name);
        let shape = match &field.shape {
            Shape::Optional(of) => of,
            shape => shape,
        };
        match shape {
            Shape::Record(..) => unfold(shape, &format!("{path}."), columns),
            _ => columns.push(Column {
                name: field.name.clone(),
                source: Source::Turn(path),
                about: text(field.about),
                kind: kind(shape),
            }),
        }
    }
}

fn listed(columns: &[(&str, &str, &str)]) -> Vec<Column> {
    let column = |(name, sql, about): &(&str, &str, &str)| Column::new(name, sql, *about);
    columns.iter().map(column).collect()
}

/// What a column holds, by the form of its field in answers.
fn kind(shape: &Shape) -> ColumnKind {
    match shape {
        Shape::Optional(of) => kind(of),
        Shape::Bool => ColumnKind::Bool,
        Shape::Count(..) => ColumnKind::Int,
        Shape::Text(Some("date-time"), _) => ColumnKind::Time,
        _ => ColumnKind::Text,
    }
}

/// What a column without such a field holds.
fn kind_by_name(name: &str) -> ColumnKind {
    match name {
        "number" | "sequence" => ColumnKind::Int,
        "side_effect" => ColumnKind::Bool,
        "at" => ColumnKind::Time,
        name if name.ends_with("_at") => ColumnKind::Time,
        _ => ColumnKind::Text,
    }
}

/// The columns of a view as its table has them.
pub(super) fn columns(view: &str) -> &'static [Column] {
    let found = VIEWS.iter().find(|of| of.name == view);
    &found.unwrap_or_else(|| unreachable!("there is no view {view}")).columns
}

/// Calls with side effects or with an approval are those of `agent_action`; what was called with, and what people were
/// shown, is working state and not part of the view. All others are only in the tool-call log.
pub(super) const ACTIONS: &str = "(
    SELECT
        a.id, a.approval_id, a.run_id, a.root_id, a.thread_id, a.tenant, a.user_id, a.project_id,
        a.agent_id, a.sequence, a.server, a.tool, a.tool_digest, a.side_effect, a.model, t.input_hash, a.policy,
        a.status, a.resolution, a.resolved_by, a.grant_id, a.error_code, a.settled_by, a.created_at, a.expires_at,
        a.resolved_at, a.started_at, a.completed_at, a.settled_at
    FROM agent_action a
    LEFT JOIN tool_invocation_log t ON t.decision_id = a.run_id AND t.sequence = a.sequence
    UNION ALL
    SELECT
        t.id, NULL, t.decision_id, COALESCE(r.root_id, t.decision_id), root.thread_id, t.tenant, t.user_id,
        r.project_id, r.agent_id, t.sequence, t.server, t.tool, t.tool_digest, t.side_effect, d.model, t.input_hash,
        t.policy, CASE t.status WHEN 'started' THEN 'executing' WHEN 'not_sent' THEN 'failed' ELSE t.status END, NULL,
        NULL, NULL, t.error_code, NULL, t.created_at, NULL, NULL, t.started_at, t.started_at + t.duration_us, NULL
    FROM tool_invocation_log t
    JOIN decision_log d ON d.id = t.decision_id AND d.surface <> 'chat'
    LEFT JOIN agent_run r ON r.id = t.decision_id
    LEFT JOIN agent_run root ON root.id = r.root_id
    WHERE NOT EXISTS (SELECT 1 FROM agent_action a WHERE a.run_id = t.decision_id AND a.sequence = t.sequence)
) AS action";

/// The columns of `actions`, under the names of an action's `record`.
#[rustfmt::skip] // A line for each.
const ACTION_COLUMNS: &[(&str, &str, &str)] = &[
    ("action_id", "id", "Its id, which is also that of the tool invocation."),
    ("approval_id", "approval_id", "The approval request, resolved or not; null if none was needed."),
    ("run_id", "run_id", "The run that called, which is also the decision."),
    ("outermost_run_id", "root_id", "The outermost run."),
    ("thread_id", "thread_id", "The thread of that run, if any."),
    ("tenant", "tenant", "The tenant."),
    ("user_id", "user_id", "The acting user."),
    ("project_id", "project_id", "The project of the agent."),
    ("agent_id", "agent_id", "The agent that called."),
    ("sequence", "sequence", "Its place in the run: 0, 1, 2 …"),
    ("server", "server", "The tool's server."),
    ("tool_name", "tool", "The tool, or the agent that was called."),
    ("tool_digest", "tool_digest", "Digest of the tool's definition at the time of the call."),
    ("side_effect", "side_effect", "Whether a call of the tool can change something."),
    ("model_name", "model", "The model that proposed it."),
    ("input_hash", "input_hash", "Hash of the arguments, as in `tool_invocations`."),
    ("policy_decision", "policy", "The policy's decision: `allow`, `require_approval` or `deny`; null if it was not asked."),
    ("execution_status", "status", "Its state."),
    ("resolution", "resolution", "How the approval request was resolved."),
    ("resolved_by", "resolved_by", "The approver."),
    ("grant_id", "grant_id", "The grant that allowed it."),
    ("error_code", "error_code", "Why it failed, from a closed list."),
    ("settled_by", "settled_by", "Who settled it, if it was in doubt."),
    ("created_at", "created_at", "When it was proposed."),
    ("expires_at", "expires_at", "When the approval request expires."),
    ("resolved_at", "resolved_at", "When it was resolved."),
    ("started_at", "started_at", "When the call was started."),
    ("completed_at", "completed_at", "When the call ended."),
    ("settled_at", "settled_at", "When it was settled."),
];

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn full_name(view: &View, dialect: Dialect) -> String {
    let dot = if dialect == Dialect::Sqlite { '_' } else { '.' };
    format!("{SCHEMA}{dot}{}", view.name)
}

/// The statement that creates a view, or replaces it. What it has stays in its place.
fn create(view: &View, dialect: Dialect, has: &[String]) -> String {
    let mut columns = view.all();
    let place = |column: &Column| has.iter().position(|name| *name == column.name).unwrap_or(has.len());
    columns.sort_by_key(place);
    let columns: Vec<_> = columns
        .iter()
        .map(|column| format!("{} AS {}", column.sql(dialect), column.name))
        .collect();
    let columns = columns.join(",\n    ");
    let (name, from) = (full_name(view, dialect), view.from);
    let beside = if view.name == MODEL_TURNS { turns(dialect) } else { "" };
    let create = match dialect {
        Dialect::Sqlite => format!("DROP VIEW IF EXISTS {name};\nCREATE VIEW"),
        Dialect::Postgres => "CREATE OR REPLACE VIEW".to_owned(),
    };
    format!("{create} {name} AS\nSELECT\n    {columns}\nFROM {from}{beside};\n")
}

/// What PostgreSQL shows beside a view and its columns.
fn comments(view: &View) -> String {
    let name = view.name;
    let mut all = format!("COMMENT ON VIEW {SCHEMA}.{name} IS {};\n", literal(view.about));
    for column in view.all() {
        let about = literal(&column.about);
        let _ = writeln!(all, "COMMENT ON COLUMN {SCHEMA}.{name}.{} IS {about};", column.name);
    }
    all
}

/// Hex SHA-256 of all statements.
fn checksum(dialect: Dialect) -> String {
    let mut digest = Sha256::new();
    for view in VIEWS.iter() {
        digest.update(create(view, dialect, &[]));
        digest.update(comments(view));
    }
    hex::encode(digest.finalize())
}

/// Whether a migrated database has the views of this version.
pub(super) async fn are_current(conn: &mut Conn) -> Result<bool, StoreError> {
    let sql = "SELECT checksum FROM gavel_schema WHERE version = $1";
    let found: Option<String> = conn.one(sql, values![VERSION]).await?;
    Ok(found.is_some_and(|found| found == checksum(conn.dialect())))
}

/// Creates or replaces the views, in a transaction.
pub(super) async fn replace(conn: &mut Conn) -> Result<(), StoreError> {
    let dialect = conn.dialect();
    if dialect == Dialect::Postgres && !has_schema(conn, SCHEMA).await? {
        conn.script(format!("CREATE SCHEMA {SCHEMA}")).await.map_err(failed)?;
    }
    let mut script = String::new();
    for view in VIEWS.iter() {
        let sql = match dialect {
            Dialect::Sqlite => "SELECT name FROM pragma_table_info($1)",
            Dialect::Postgres => {
                "SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 ORDER BY attnum"
            }
        };
        let has: Vec<String> = conn.all(sql, values![full_name(view, dialect)]).await?;
        let ours = view.all();
        // A newer version made them, whose processes may run beside this one.
        if has.iter().any(|name| !ours.iter().any(|column| column.name == *name)) {
            return Err(StoreError::Views(
                format!("{} is that of a newer version", view.name).into(),
            ));
        }
        script += &create(view, dialect, &has);
        if dialect == Dialect::Postgres {
            script += &comments(view);
        }
    }
    conn.script(script).await.map_err(failed)?;
    if dialect == Dialect::Postgres {
        for analyst in Analyst::all(conn).await? {
            analyst.look(conn).await.map_err(failed)?;
        }
    }
    let insert = "INSERT INTO gavel_schema (version, name, checksum, applied_at) VALUES ($1, 'views', $2, @now) \
                  ON CONFLICT (version) DO UPDATE SET checksum = excluded.checksum, applied_at = excluded.applied_at";
    conn.execute(insert, values![VERSION, checksum(dialect)]).await?;
    Ok(())
}

/// Without statistics of the indexes' expressions, PostgreSQL does not use them. It makes them itself in time.
pub(super) async fn analyze(conn: &mut Conn) {
    if conn.dialect() == Dialect::Postgres
        && let Err(error) = conn
            .script("ANALYZE decision_log, tool_invocation_log".to_owned())
            .await
    {
        tracing::debug!(error = %describe(&error), "the logs were not analyzed");
    }
}

fn failed(error: sqlx::Error) -> StoreError {
    StoreError::Views(describe(&error).into())
}

async fn has_schema(conn: &mut Conn, name: &str) -> Result<bool, sqlx::Error> {
    conn.exists("SELECT 1 FROM pg_namespace WHERE nspname = $1", values![name])
        .await
}

/// A role of PostgreSQL that may read the views, and nothing else of gavel's.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Analyst {
    /// The role.
    pub name: String,
    /// The only tenant whose rows it sees; absent: all.
    pub tenant: Option<TenantId>,
    /// Whether it sees texts of users, models and tools.
    pub content: bool,
}

impl Analyst {
    /// Those that still exist.
    async fn all(conn: &mut Conn) -> Result<Vec<Self>, StoreError> {
        let sql =
            "SELECT name, tenant, content FROM analyst WHERE name IN (SELECT rolname FROM pg_roles) ORDER BY name";
        Ok(conn.all(sql, vec![]).await?)
    }

    /// The schema that it looks at: that of all, or for a tenant its own.
    pub fn schema(&self) -> String {
        match &self.tenant {
            None => SCHEMA.to_owned(),
            Some(_) => format!("{SCHEMA}_{}", self.name),
        }
    }

    /// Creates the role if it does not exist, and lets it read. It cannot log in before it has a password.
    pub(super) async fn allow(&self, conn: &mut Conn) -> Result<(), StoreError> {
        if conn.dialect() == Dialect::Sqlite {
            let why = "is SQLite, which has no roles: give analysts a copy of the file, or use PostgreSQL";
            return Err(StoreError::Unfit(why.to_owned()));
        }
        migrate::lock(conn, migrate::PATIENCE).await?;
        let role = identifier(&self.name);
        let known = "SELECT rolsuper OR rolname = current_user FROM pg_roles WHERE rolname = $1";
        let is_made_here = match conn.one::<bool>(known, values![self.name.as_str()]).await? {
            Some(true) => {
                let why = format!(
                    "has {:?} as a superuser, or as gavel's own: name another role",
                    self.name
                );
                return Err(StoreError::Unfit(why));
            }
            Some(false) => {
                let sql = "SELECT 1 FROM analyst WHERE name = $1 AND is_made_here";
                conn.exists(sql, values![self.name.as_str()]).await?
            }
            None => {
                conn.script(format!("CREATE ROLE {role} NOLOGIN"))
                    .await
                    .map_err(failed)?;
                true
            }
        };
        // Another one keeps its own settings.
        if is_made_here {
            let database: Option<String> = conn.one("SELECT current_database()::text", vec![]).await?;
            let set = format!(
                "ALTER ROLE {role} IN DATABASE {} SET",
                identifier(&database.unwrap_or_default())
            );
            let path = identifier(&self.schema());
            let settings = format!(
                "{set} default_transaction_read_only = on; {set} statement_timeout = '60s'; \
                 {set} idle_in_transaction_session_timeout = '60s'; {set} search_path = {path}"
            );
            conn.script(settings).await.map_err(failed)?;
        }
        self.look(conn).await.map_err(failed)?;
        let keep = "INSERT INTO analyst (name, tenant, content, is_made_here) VALUES ($1, $2, $3, $4) \
                    ON CONFLICT (name) DO UPDATE SET tenant = excluded.tenant, content = excluded.content";
        let tenant = self.tenant.as_ref().map(TenantId::as_str);
        conn.execute(keep, values![self.name.as_str(), tenant, self.content, is_made_here])
            .await?;
        conn.script("COMMIT".to_owned()).await?;
        Ok(())
    }

    /// Gives it what it may read, and takes what it could read before. A tenant's role has views of its own, whose tenant
    /// is a constant: whatever it sets, and whatever functions it defines, it sees no other row.
    async fn look(&self, conn: &mut Conn) -> Result<(), sqlx::Error> {
        let (role, own) = (identifier(&self.name), format!("{SCHEMA}_{}", self.name));
        let has_own = has_schema(conn, &own).await?;
        let own = identifier(&own);
        let mut script = String::new();
        if self.tenant.is_some() && !has_own {
            let _ = writeln!(script, "CREATE SCHEMA {own};");
        }
        let schemas = [Some(SCHEMA), (has_own || self.tenant.is_some()).then_some(&*own)];
        for schema in schemas.into_iter().flatten() {
            let _ = writeln!(script, "REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {role};");
            let _ = writeln!(script, "REVOKE ALL ON SCHEMA {schema} FROM {role};");
        }
        let schema = if self.tenant.is_some() { &own } else { SCHEMA };
        let _ = writeln!(script, "GRANT USAGE ON SCHEMA {schema} TO {role};");
        for view in VIEWS.iter().filter(|view| self.content || !view.has_content()) {
            let name = view.name;
            if let Some(tenant) = &self.tenant {
                let tenant = literal(tenant.as_str());
                let _ = writeln!(
                    script,
                    "CREATE OR REPLACE VIEW {own}.{name} WITH (security_barrier) AS \
                     SELECT * FROM {SCHEMA}.{name} WHERE tenant = {tenant};"
                );
            }
            let _ = writeln!(script, "GRANT SELECT ON {schema}.{name} TO {role};");
        }
        conn.script(script).await
    }
}

/// The page of the documentation about the views, as Markdown.
pub fn reference() -> String {
    let mut page = String::new();
    for view in VIEWS.iter() {
        let _ = writeln!(
            page,
            "\n## {}\n\n{}\n\n| column | meaning |\n| --- | --- |",
            view.name, view.about
        );
        for column in view.all() {
            let _ = writeln!(page, "| `{}` | {} |", column.name, column.about.replace('|', "\\|"));
        }
    }
    page
}
