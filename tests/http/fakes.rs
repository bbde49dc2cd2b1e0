//! Scripted ports.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use gavel::api::decisions::{DecisionDetail, DecisionRecord, ToolInvocation};
use gavel::api::exports::{ExportManifest, ExportSource};
use gavel::api::filter::FilterFields;
use gavel::api::stats::StatsFrom;
use gavel::domain::decision::Usage;
use gavel::domain::histogram::Histogram;
use gavel::domain::ids::{ActionId, DecisionId, ExportId, TenantId, UserId};
use gavel::domain::journal::{FaultKind, FunctionCall, ModelTurn, Part};
use gavel::domain::schema::JsonSchema;
use gavel::domain::settings::{SessionRules, TaskLimits};
use gavel::domain::tool::Tool;
use gavel::engine::strategy::plan::TaskRules;
use gavel::http::google;
use gavel::http::health::{McpServer, McpState, Surroundings};
use gavel::ports::BoxFuture;
use gavel::ports::claims::{Claim, Claimant, Claimed};
use gavel::ports::commit::{Commit, Committed, Recorder};
use gavel::ports::conditions::{Condition, Conditions};
use gavel::ports::exports::{ColumnKind, ExportColumn, ExportOptions, ExportPage, ExportRows, ExportValue, Exports};
use gavel::ports::model::{Model, ModelEvent, ModelFault, ModelRequest};
use gavel::ports::quota::{Quota, QuotaState};
use gavel::ports::records::{
    ClosedDecision, Decisions, Erasure, Evidence, ListQuery, Page, QueryError, RecordError, StoredAnswer,
};
use gavel::ports::stats::{Stats, StatsQuestion, Tallies, Tally};
use gavel::ports::tools::{CallReply, CallRequest, Catalog, Tools};
use gavel::surfaces::planning::{PlanningSettings, PlanningTemplates, Repositories};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

pub fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

/// A store in memory. `away` makes every use fail; `close_fails` only commit 2.
#[derive(Default)]
pub struct Record {
    pub away: Mutex<bool>,
    pub close_fails: Mutex<bool>,
    pub closed: Mutex<Vec<ClosedDecision>>,
    pub claims: Mutex<HashMap<String, (String, Option<StoredAnswer>)>>,
    pub rows: Mutex<HashMap<DecisionId, Value>>,
    pub queries: Mutex<Vec<(TenantId, ListQuery)>>,
    /// What exports give: rows of a page, and after how many pages they fail.
    pub pages: Mutex<(usize, Option<usize>)>,
    pub taken: Mutex<Vec<(String, ExportManifest)>>,
}

impl Record {
    fn check(&self, also: &Mutex<bool>) -> Result<(), RecordError> {
        if *self.away.lock().unwrap() || *also.lock().unwrap() {
            return Err(RecordError::Unavailable("canary-of-the-database".into()));
        }
        Ok(())
    }

    fn query<T: DeserializeOwned>(&self, tenant: &TenantId, query: &ListQuery) -> Result<Page<T>, QueryError> {
        self.queries.lock().unwrap().push((tenant.clone(), query.clone()));
        if *self.away.lock().unwrap() {
            return Err(QueryError::Unavailable("canary-of-the-database".into()));
        }
        if query.filter.as_deref() == Some("wrong") {
            let detail = "at character 1: allowed fields are …".to_owned();
            return Err(QueryError::Invalid {
                field: "filter",
                detail,
            });
        }
        let items = self.rows.lock().unwrap().values().map(whole).collect();
        Ok(Page {
            items,
            next_page_token: Some("next".to_owned()),
        })
    }
}

/// A row with these values, and others in the place of those that a test does not care about.
fn whole<T: DeserializeOwned>(some: &Value) -> T {
    let mut row = json!({
        "decision_id": "", "conversation_id": "", "requested_model": "", "surface": "chat", "user_id": "",
        "status": "started", "definition_hash": "", "request_id": "", "recovered": false, "usage": null, "tool_calls": [],
        "history_entries": 0, "turns": [], "limits_reached": [], "lost": [],
        "created_at": 0, "tool_invocation_id": "", "sequence": 1, "tool": "", "side_effect": false, "argument_bytes": 0,
        "result": { "success": false },
    });
    row.as_object_mut().unwrap().extend(some.as_object().unwrap().clone());
    let read = serde_json::from_value(row.clone());
    read.or_else(|_| {
        row["status"] = "open".into();
        serde_json::from_value(row)
    })
    .unwrap()
}

fn now<'a, T: Send + 'a>(value: T) -> BoxFuture<'a, T> {
    Box::pin(std::future::ready(value))
}

#[async_trait]
impl Recorder for Record {
    fn available(&self) -> Result<(), RecordError> {
        self.check(&Mutex::new(false))
    }
    async fn commit(&self, commit: Commit) -> Result<Committed, RecordError> {
        let Some(decision) = commit.closed() else {
            return self.available().map(|()| Committed::Written);
        };
        let done = self.check(&self.close_fails);
        if done.is_ok() {
            if let Some(answer) = &decision.answer {
                let mut claims = self.claims.lock().unwrap();
                claims.get_mut(&*answer.scope).unwrap().1 = Some(answer.clone());
            }
            self.closed.lock().unwrap().push(decision.clone());
        }
        done.map(|()| Committed::Written)
    }
    fn lose(&self, _decision: DecisionId) {}
    async fn claim(&self, claim: Claim, _by: Claimant) -> Result<Claimed, RecordError> {
        let mut claims = self.claims.lock().unwrap();
        let claimed = match claims.get(&*claim.scope) {
            None => {
                claims.insert(claim.scope.to_string(), (claim.fingerprint.to_string(), None));
                Claimed::New
            }
            Some((fingerprint, _)) if *fingerprint != *claim.fingerprint => Claimed::Mismatch,
            Some((_, None)) => Claimed::Running,
            Some((_, Some(answer))) => Claimed::Answered(answer.clone()),
        };
        Ok(claimed)
    }
}

/// Two pages, or fewer if it fails.
struct Pages(usize, Option<usize>, usize);

#[async_trait]
impl ExportRows for Pages {
    async fn next(&mut self) -> Result<Option<ExportPage>, QueryError> {
        if self.1 == Some(self.2) {
            return Err(QueryError::Unavailable("canary-of-the-database".into()));
        }
        self.2 += 1;
        let row = || vec![ExportValue::Text("=1+1".to_owned()), ExportValue::Int(-1)];
        Ok((self.2 <= 2).then(|| ExportPage {
            rows: (0..self.0).map(|_| row()).collect(),
            first: Some("a".to_owned()),
            last: Some("b".to_owned()),
        }))
    }
}

#[async_trait]
impl Exports for Record {
    async fn begin(
        &self,
        _: &TenantId,
        _: Option<&UserId>,
        _: ExportSource,
        _: &ExportOptions,
    ) -> Result<(Vec<ExportColumn>, Box<dyn ExportRows>), QueryError> {
        if *self.away.lock().unwrap() {
            return Err(QueryError::Unavailable("canary-of-the-database".into()));
        }
        let (rows, fail) = *self.pages.lock().unwrap();
        let column = |name: &str, kind| ExportColumn {
            name: name.to_owned(),
            kind,
        };
        let columns = vec![column("text", ColumnKind::Text), column("number", ColumnKind::Int)];
        Ok((columns, Box::new(Pages(rows, fail, 0))))
    }
    async fn enter(&self, _: &TenantId, actor: &str, taken: ExportManifest) -> Result<(), RecordError> {
        self.check(&self.close_fails)?;
        self.taken.lock().unwrap().push((actor.to_owned(), taken));
        Ok(())
    }
    async fn taken(&self, _: &TenantId, id: ExportId) -> Result<Option<(String, ExportManifest)>, QueryError> {
        let taken = self.taken.lock().unwrap();
        Ok(taken.iter().find(|(_, taken)| taken.export_id == id).cloned())
    }
}

#[async_trait]
impl Stats for Record {
    async fn tally(&self, _: &TenantId, question: &StatsQuestion) -> Result<Tallies, QueryError> {
        if *self.away.lock().unwrap() {
            return Err(QueryError::Unavailable("canary-of-the-database".into()));
        }
        let tally = Tally {
            by: vec![None; question.by.len()],
            count: 1,
            rates: vec![0; question.rates.len()],
            sums: vec![0; question.sums.len()],
            lengths: vec![Histogram::default(); question.lengths.len()],
            unit: None,
        };
        Ok(Tallies {
            tallies: vec![tally],
            open: 0,
            from: StatsFrom::Log,
        })
    }
}

#[async_trait]
impl Decisions for Record {
    async fn list(&self, tenant: &TenantId, query: &ListQuery) -> Result<Page<DecisionRecord>, QueryError> {
        self.query(tenant, query)
    }
    async fn get(&self, _: &TenantId, id: DecisionId) -> Result<Option<DecisionDetail>, QueryError> {
        Ok(self.rows.lock().unwrap().get(&id).map(whole))
    }
    async fn texts(&self, _: &TenantId, _: &str, _: &[&str]) -> Result<Vec<(String, Option<String>)>, QueryError> {
        Ok(Vec::new())
    }
    async fn erase(&self, erasure: Erasure) -> Result<Erasure, RecordError> {
        Ok(Erasure { after: None, ..erasure })
    }
    async fn evidence(&self, _: &TenantId, _: DecisionId, _: Option<ActionId>) -> Result<Evidence, QueryError> {
        Ok(Evidence::default())
    }
    async fn tool_invocations(&self, tenant: &TenantId, query: &ListQuery) -> Result<Page<ToolInvocation>, QueryError> {
        self.query(tenant, query)
    }
    fn filter_fields(&self) -> FilterFields {
        FilterFields {
            decisions: vec![],
            tool_invocations: vec![],
            runs: vec![],
            actions: vec![],
        }
    }
    async fn ping(&self) -> Result<(), QueryError> {
        let away = *self.away.lock().unwrap();
        match away {
            true => Err(QueryError::Unavailable("canary-of-the-database".into())),
            false => Ok(()),
        }
    }
}

/// Answers "Hello there." in two chunks, or calls a tool once if the message requests it. With `hold` it waits after
/// the first chunk for a permit.
pub struct Scripted {
    pub asked: AtomicU32,
    pub hold: Option<Arc<Semaphore>>,
}

impl Model for Scripted {
    fn generate<'a>(
        &'a self,
        request: ModelRequest<'a>,
        mut events: Option<&'a mut (dyn FnMut(ModelEvent<'_>) + Send)>,
    ) -> BoxFuture<'a, Result<ModelTurn, ModelFault>> {
        let wants_tool = format!("{:?}", request.contents.last()).contains("call the tool");
        Box::pin(async move {
            self.asked.fetch_add(1, Ordering::SeqCst);
            let mut tell = |text: &str| {
                if let Some(events) = &mut events {
                    events(ModelEvent::Delta(text));
                }
            };
            if wants_tool {
                let call = FunctionCall {
                    id: None,
                    name: "add_task".to_owned(),
                    args: raw(r#"{"description":"milk"}"#),
                };
                return Ok(turn(vec![Part::Call(call)]));
            }
            tell("Hello ");
            if let Some(hold) = &self.hold {
                hold.acquire().await.unwrap().forget();
            }
            tell("there.");
            Ok(turn(vec![Part::Text("Hello there.".to_owned())]))
        })
    }

    fn default_model(&self) -> &str {
        "scripted"
    }
}

fn turn(parts: Vec<Part>) -> ModelTurn {
    ModelTurn {
        content: Arc::from(raw("{}")),
        parts,
        usage: Usage::default(),
        served: gavel::domain::journal::Served::by("scripted"),
    }
}

/// A model that fails.
pub struct Failing;

impl Model for Failing {
    fn generate<'a>(
        &'a self,
        _: ModelRequest<'a>,
        _: Option<&'a mut (dyn FnMut(ModelEvent<'_>) + Send)>,
    ) -> BoxFuture<'a, Result<ModelTurn, ModelFault>> {
        let fault = ModelFault {
            kind: FaultKind::Unavailable,
            detail: "canary-of-the-provider".to_owned(),
            usage: Usage::default(),
            served: Box::default(),
            said: None,
        };
        now(Err(fault))
    }

    fn default_model(&self) -> &str {
        "failing"
    }
}

/// One server with one tool, which returns text that has line breaks between its tokens.
pub struct OneTool(Arc<Catalog>);

impl OneTool {
    pub fn new() -> Self {
        let schema = r#"{"type":"object","properties":{"description":{"type":"string"}}}"#;
        let tool = Tool {
            input: JsonSchema::compile(raw(schema)).unwrap(),
            model_schema: raw(schema),
            timeout: Duration::from_secs(5),
            digest: "0".into(),
            ..Tool::named("tasks", "add_task")
        };
        Self(Arc::new(Catalog {
            generation: 1,
            tools: vec![Arc::new(tool)],
            ..Catalog::default()
        }))
    }
}

impl Tools for OneTool {
    fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.0)
    }
    fn ready<'a>(&'a self, _: &'a [String], _: Instant) -> BoxFuture<'a, ()> {
        now(())
    }
    fn refresh_server<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }

    fn call<'a>(&'a self, _: CallRequest<'a>) -> BoxFuture<'a, CallReply> {
        now(CallReply::Data(Arc::from(raw("{\n  \"id\": 7\r\n}"))))
    }
}

/// Always the same state.
pub struct Fixed(pub QuotaState);

#[async_trait]
impl Quota for Fixed {
    async fn take(&self, _: &TenantId, _: &UserId) -> QuotaState {
        self.0
    }
}

/// The data for `/readyz` and `/metrics`.
pub struct Around;

impl Surroundings for Around {
    fn servers(&self) -> Vec<McpServer> {
        let detail = Some("canary-of-the-server".to_owned());
        vec![McpServer {
            server: Some("tasks".to_owned()),
            state: McpState::Down,
            detail,
        }]
    }
    fn stopping(&self) -> bool {
        false
    }
    fn metrics(&self) -> String {
        "gavel_up 1\n".to_owned()
    }
}

/// Connects no Google accounts.
pub struct NoAccounts;

impl google::Callback for NoAccounts {
    fn finish<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, Result<google::Connected, google::NotConnected>> {
        now(Err(google::NotConnected::Unavailable))
    }
    fn declined<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), google::NotConnected>> {
        now(Err(google::NotConnected::Unavailable))
    }
}

/// No bundled server is on.
pub struct NoServers;

impl Conditions for NoServers {
    fn look(&self) -> BoxFuture<'_, Vec<Condition>> {
        Box::pin(std::future::ready(Vec::new()))
    }
}

/// The defaults of the configuration, for tests that look at no planning session.
pub(crate) fn planning_settings() -> PlanningSettings {
    let templates = PlanningTemplates::built_in();
    PlanningSettings {
        repositories: Repositories::new("https://github.com".parse().unwrap(), None),
        sessions: SessionRules::default(),
        rules: TaskRules {
            limits: TaskLimits::default(),
            templates: templates.phases.clone(),
        },
        templates,
    }
}
