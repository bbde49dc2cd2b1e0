//! The protocol layer of a server that has tools only.

use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestMethod, CompleteRequestParams,
    CompleteResult, ListPromptsRequestMethod, ListPromptsResult, ListResourceTemplatesRequestMethod,
    ListResourceTemplatesResult, ListResourcesRequestMethod, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, RequestMetaObject, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};

use crate::Answer;

/// A server's tools and their calls.
pub trait Tools: Send + Sync + 'static {
    /// The server's description of itself.
    fn about(&self) -> ServerConfig;

    /// All tools, always in the same order.
    fn all(&self) -> &[Tool];

    /// Handles a call of an existing tool. Return a protocol error if the outcome of the call is unknown: an in-band
    /// error would mean that nothing was done. A cancelled call is dropped at an await point.
    fn answer(
        &self,
        call: CallToolRequestParams,
        meta: &RequestMetaObject,
    ) -> impl Future<Output = Result<Answer, ErrorData>> + Send;

    /// An answer as it is sent. By default its text is the JSON of its object.
    fn result(&self, answer: Answer) -> CallToolResult {
        answer.into()
    }
}

/// An MCP server for a set of tools.
#[derive(Debug)]
pub struct Server<T>(Arc<T>);

impl<T> Clone for Server<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Tools> Server<T> {
    /// A server; clones share its tools.
    pub fn new(tools: T) -> Self {
        Self(Arc::new(tools))
    }
}

impl<T: Tools> ServerHandler for Server<T> {
    fn get_info(&self) -> ServerConfig {
        self.0.about()
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.0.all().iter().find(|tool| tool.name == name).cloned()
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.0.all().to_vec()))
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
        let answer = tokio::select! {
            biased;
            () = context.ct.cancelled() => {
                return Err(ErrorData::internal_error("the call was cancelled", None));
            }
            answer = self.0.answer(call, &context.meta) => answer,
        };
        answer.map(|answer| self.0.result(answer).into())
    }
}

/// The protocol error for a call whose outcome is unknown.
pub fn unsettled() -> ErrorData {
    ErrorData::internal_error(
        "it is unknown whether this call took effect; sent again with the same idempotency key, it takes effect only once",
        None,
    )
}
