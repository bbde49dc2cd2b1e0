//! The protocol layer of a tool call.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestMethod, CompleteRequestParams,
    CompleteResult, Implementation, ListPromptsRequestMethod, ListPromptsResult, ListResourceTemplatesRequestMethod,
    ListResourceTemplatesResult, ListResourcesRequestMethod, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::budget::Budget;
use crate::error::{Code, ToolError};
use crate::root::Root;
use crate::tools::{self, Request};

/// How many calls read at once; each has its own thread.
const PLACES: usize = 8;
/// How long a call may take to notice its deadline. After that, the file system itself hangs.
const GRACE: Duration = Duration::from_secs(2);

const INSTRUCTIONS: &str = "\
Read-only access to the files of one folder. Every path is relative to that folder. Start with ls or \
glob to see what there is, find places with grep, and read them with read_file by offset and limit. An \
answer that is incomplete says so.";

/// The MCP server: a directory, and the time limit of a call.
#[derive(Debug, Clone)]
pub(crate) struct FilesServer {
    root: Root,
    time_limit: Duration,
    places: Arc<Semaphore>,
}

impl FilesServer {
    pub(crate) fn new(root: Root, time_limit: Duration) -> Self {
        Self {
            root,
            time_limit,
            places: Arc::new(Semaphore::new(PLACES)),
        }
    }

    async fn answer(&self, call: CallToolRequestParams, cancelled: CancellationToken) -> Result<Value, ToolError> {
        let request = tools::parse(&call.name, call.arguments)?;
        let Ok(place) = tokio::time::timeout(self.time_limit, self.places.clone().acquire_owned()).await else {
            return Err(ToolError::new(
                Code::Busy,
                format!("{PLACES} calls are running, and none has ended in time. Try again later."),
            ));
        };
        let budget = Budget::new(self.time_limit, cancelled);
        let answer = self.carry_out(request, budget, place.ok());
        match tokio::time::timeout(self.time_limit + GRACE, answer).await {
            Ok(answer) => answer,
            Err(_) => {
                tracing::error!("the file system hangs");
                Err(ToolError::too_slow())
            }
        }
    }

    /// The slot is released when the thread ends, which may be after its call timed out.
    async fn carry_out(
        &self,
        request: Request,
        budget: Budget,
        place: Option<tokio::sync::OwnedSemaphorePermit>,
    ) -> Result<Value, ToolError> {
        let root = self.root.clone();
        let done = tokio::task::spawn_blocking(move || {
            let _place = place;
            request.carry_out(&root, &budget)
        });
        done.await.unwrap_or_else(|error| {
            tracing::error!(%error, "a call failed");
            Err(ToolError::internal())
        })
    }
}

impl ServerHandler for FilesServer {
    fn get_info(&self) -> ServerConfig {
        let mut server = Implementation::new("gavel-mcp-files", env!("CARGO_PKG_VERSION"));
        server.title = Some("Files".to_owned());
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

    // By default rmcp answers these with empty lists. This server declares no such capability, so it must not appear to
    // have one.

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
        // However this ends, the reading thread is cancelled.
        let cancelled = context.ct.child_token();
        let _end = cancelled.clone().drop_guard();
        let answer = tokio::select! {
            biased;
            () = context.ct.cancelled() => {
                return Err(ErrorData::internal_error("the call was cancelled", None));
            }
            answer = self.answer(call, cancelled) => answer,
        };
        let result = match answer {
            Ok(answer) => CallToolResult::structured(answer),
            Err(error) => CallToolResult::structured_error(json!({ "error": error })),
        };
        Ok(result.into())
    }
}
