//! A call's slot, time limit and cancellation.

use std::sync::Arc;
use std::time::Duration;

use gavel_mcp_base::server::Tools;
use gavel_mcp_base::{Answer, ToolError};
use rmcp::ErrorData;
use rmcp::model::{CallToolRequestParams, Implementation, RequestMetaObject, ServerCapabilities, ServerConfig, Tool};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::budget::Budget;
use crate::error::{self, Code};
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

/// The tools: a directory, and the time limit of a call.
#[derive(Debug)]
pub(crate) struct Files {
    root: Root,
    time_limit: Duration,
    places: Arc<Semaphore>,
}

impl Files {
    pub(crate) fn new(root: Root, time_limit: Duration) -> Self {
        Self {
            root,
            time_limit,
            places: Arc::new(Semaphore::new(PLACES)),
        }
    }

    async fn read(&self, call: CallToolRequestParams, cancelled: CancellationToken) -> Result<Answer, ToolError> {
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
                Err(error::too_slow())
            }
        }
    }

    /// The slot is released when the thread ends, which may be after its call timed out.
    async fn carry_out(
        &self,
        request: Request,
        budget: Budget,
        place: Option<OwnedSemaphorePermit>,
    ) -> Result<Answer, ToolError> {
        let root = self.root.clone();
        let done = tokio::task::spawn_blocking(move || {
            let _place = place;
            request.carry_out(&root, &budget)
        });
        done.await.unwrap_or_else(|error| {
            tracing::error!(%error, "a call failed");
            Err(error::internal())
        })
    }
}

impl Tools for Files {
    fn about(&self) -> ServerConfig {
        let mut server = Implementation::new("gavel-mcp-files", env!("CARGO_PKG_VERSION"));
        server.title = Some("Files".to_owned());
        server.description = Some(env!("CARGO_PKG_DESCRIPTION").to_owned());
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(server)
            .with_instructions(INSTRUCTIONS)
    }

    fn all(&self) -> &[Tool] {
        tools::all()
    }

    async fn answer(&self, call: CallToolRequestParams, _: &RequestMetaObject) -> Result<Answer, ErrorData> {
        // However this ends, also when it is dropped, the reading thread is cancelled.
        let cancelled = CancellationToken::new();
        let _end = cancelled.clone().drop_guard();
        Ok(self.read(call, cancelled).await.unwrap_or_else(Answer::from))
    }
}
