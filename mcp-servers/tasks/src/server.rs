//! The protocol's side of a tool call.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestMethod, CompleteRequestParams,
    CompleteResult, Implementation, ListPromptsRequestMethod, ListPromptsResult, ListResourceTemplatesRequestMethod,
    ListResourceTemplatesResult, ListResourcesRequestMethod, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, RequestMetaObject, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};

use crate::answer::Answer;
use crate::error::{Code, ToolError};
use crate::identity::Identity;
use crate::store::{Claim, Store};
use crate::task::Moment;
use crate::tools::{self, Request};

const IDEMPOTENCY_KEY: &str = "gavel/idempotency_key";
const MAX_KEY_CHARS: usize = 255;
const CALL_TIMEOUT: Duration = Duration::from_secs(20);

const INSTRUCTIONS: &str = "\
The task list of one user. Tasks are found by `id` (exact, from list_tasks) or by `title` (the words \
of the description). Call list_tasks before acting on 'the first one' or on a task that is only \
vaguely named. An `ambiguous_title` error lists the candidates: ask the user which one is meant, do \
not guess. Delete only what the user named, one task at a time.";

/// The MCP server: a store, and a way to tell callers apart.
#[derive(Debug, Clone)]
pub(crate) struct TaskServer {
    store: Store,
    identity: Arc<Identity>,
}

impl TaskServer {
    pub(crate) fn new(store: Store, identity: Identity) -> Self {
        Self {
            store,
            identity: Arc::new(identity),
        }
    }

    async fn answer(&self, call: CallToolRequestParams, meta: &RequestMetaObject) -> Answer {
        match self.carry_out(call, meta).await {
            Ok(answer) => answer,
            Err(error) => error.into(),
        }
    }

    async fn carry_out(&self, call: CallToolRequestParams, meta: &RequestMetaObject) -> Result<Answer, ToolError> {
        let user = self.identity.user(meta)?;
        let key = idempotency_key(meta)?;
        let digest = tools::digest(call.arguments.as_ref());
        let answered = match tools::parse(&call.name, call.arguments)? {
            Request::List(list) => tools::list::page(&self.store, &user, &list).await,
            Request::Change(change) => {
                let claim = key.map(|key| Claim {
                    tool: call.name.into_owned(),
                    key,
                    digest,
                });
                let now = Moment::now();
                self.store.change(&user, &change, claim.as_ref(), now).await
            }
        };
        answered.map_err(|error| {
            tracing::error!(%error, "the database refused a call");
            ToolError::store_unavailable()
        })
    }
}

fn idempotency_key(meta: &RequestMetaObject) -> Result<Option<String>, ToolError> {
    let Some(key) = meta.get(IDEMPOTENCY_KEY) else {
        return Ok(None);
    };
    key.as_str()
        .filter(|key| !key.is_empty() && key.chars().count() <= MAX_KEY_CHARS && !key.chars().any(char::is_control))
        .map(|key| Some(key.to_owned()))
        .ok_or_else(|| {
            ToolError::new(
                Code::InvalidIdempotencyKey,
                format!(
                    "`_meta[\"{IDEMPOTENCY_KEY}\"]` has to be a text of 1 to {MAX_KEY_CHARS} \
                     characters without control characters."
                ),
            )
        })
}

impl ServerHandler for TaskServer {
    fn get_info(&self) -> ServerConfig {
        let mut server = Implementation::new("gavel-mcp-tasks", env!("CARGO_PKG_VERSION"));
        server.title = Some("Tasks".to_owned());
        server.description = Some(env!("CARGO_PKG_DESCRIPTION").to_owned());
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(server)
            .with_instructions(INSTRUCTIONS)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::all().iter().find(|tool| tool.name == name).cloned()
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::all().to_vec()))
    }

    // rmcp answers these with nothing where a server leaves them out. This one declares no such capability, so it
    // must not act as if it had one.

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListPromptsRequestMethod>())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListResourcesRequestMethod>())
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListResourceTemplatesRequestMethod>())
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(ErrorData::method_not_found::<CompleteRequestMethod>())
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if self.get_tool(&call.name).is_none() {
            return Err(ErrorData::invalid_params("unknown tool", None));
        }
        // A cancelled call is dropped where it stands: its transaction is rolled back, or was
        // committed whole.
        let answer = tokio::select! {
            biased;
            () = context.ct.cancelled() => {
                return Err(ErrorData::internal_error("the call was cancelled", None));
            }
            answer = tokio::time::timeout(CALL_TIMEOUT, self.answer(call, &context.meta)) => answer,
        };
        let answer = answer.unwrap_or_else(|_| {
            tracing::error!("the database did not answer in time");
            ToolError::store_unavailable().into()
        });
        Ok(CallToolResult::from(answer).into())
    }
}
