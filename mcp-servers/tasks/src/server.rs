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
use crate::error::{Code, ToolError, unsettled};
use crate::identity::{Identity, UserId};
use crate::store::{ChangeFault, Claim, Store};
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

    async fn answer(&self, call: CallToolRequestParams, meta: &RequestMetaObject) -> Result<Answer, ErrorData> {
        let request = match self.understand(call, meta) {
            Ok(request) => request,
            Err(error) => return Ok(error.into()),
        };
        let changes = matches!(request, (_, Request::Change(_), _));
        match tokio::time::timeout(CALL_TIMEOUT, self.carry_out(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(ChangeFault::NotDone(error))) => {
                tracing::error!(%error, "the database refused a call");
                Ok(ToolError::store_unavailable().into())
            }
            Ok(Err(ChangeFault::Unsettled(error))) => {
                tracing::error!(%error, "a commit was begun and its end is not known");
                Err(unsettled())
            }
            // The time may have run out in the middle of the commit.
            Err(_) if changes => {
                tracing::error!("the database did not answer a change in time");
                Err(unsettled())
            }
            Err(_) => {
                tracing::error!("the database did not answer in time");
                Ok(ToolError::store_unavailable().into())
            }
        }
    }

    fn understand(&self, call: CallToolRequestParams, meta: &RequestMetaObject) -> Result<Understood, ToolError> {
        let user = self.identity.user(meta)?;
        let key = idempotency_key(meta)?;
        let digest = tools::digest(call.arguments.as_ref());
        let request = tools::parse(&call.name, call.arguments)?;
        let claim = key.map(|key| Claim {
            tool: call.name.into_owned(),
            key,
            digest,
        });
        Ok((user, request, claim))
    }

    async fn carry_out(&self, (user, request, claim): Understood) -> Result<Answer, ChangeFault> {
        match request {
            Request::List(list) => Ok(tools::list::page(&self.store, &user, &list).await?),
            Request::Change(change) => self.store.change(&user, &change, claim.as_ref(), Moment::now()).await,
        }
    }
}

/// Whose call it is, what it asks for, and the caller's promise about it.
type Understood = (UserId, Request, Option<Claim>);

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
            answer = self.answer(call, &context.meta) => answer,
        };
        answer.map(|answer| CallToolResult::from(answer).into())
    }
}
