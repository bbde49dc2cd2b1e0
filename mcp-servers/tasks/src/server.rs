//! The protocol layer of a tool call.

use std::time::Duration;

use gavel_mcp_base::server::{Server, Tools, unsettled};
use gavel_mcp_base::{Answer, Moment, ToolError, UserId, digest, meta};
use rmcp::ErrorData;
use rmcp::model::{CallToolRequestParams, Implementation, RequestMetaObject, ServerCapabilities, ServerConfig, Tool};

use crate::error::store_unavailable;
use crate::identity::Identity;
use crate::store::{ChangeFault, Claim, Store};
use crate::tools::{self, Request};

const CALL_TIMEOUT: Duration = Duration::from_secs(20);

const INSTRUCTIONS: &str = "\
The task list of one user. Tasks are found by `id` (exact, from list_tasks) or by `title` (the words \
of the description). Call list_tasks before acting on 'the first one' or on a task that is only \
vaguely named. An `ambiguous_title` error lists the candidates: ask the user which one is meant, do \
not guess. Delete only what the user named, one task at a time.";

/// The MCP server.
pub(crate) type TaskServer = Server<Tasks>;

/// The tools: a store, and the way to determine the user.
#[derive(Debug)]
pub(crate) struct Tasks {
    store: Store,
    identity: Identity,
}

impl Tasks {
    pub(crate) fn new(store: Store, identity: Identity) -> Self {
        Self { store, identity }
    }

    fn understand(&self, call: CallToolRequestParams, given: &RequestMetaObject) -> Result<Understood, ToolError> {
        let user = self.identity.user(given)?;
        let key = meta::idempotency_key(given)?;
        let digest = digest(call.arguments.as_ref());
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

/// The user of a call, its request, and its idempotency claim.
type Understood = (UserId, Request, Option<Claim>);

impl Tools for Tasks {
    fn about(&self) -> ServerConfig {
        let mut server = Implementation::new("gavel-mcp-tasks", env!("CARGO_PKG_VERSION"));
        server.title = Some("Tasks".to_owned());
        server.description = Some(env!("CARGO_PKG_DESCRIPTION").to_owned());
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(server)
            .with_instructions(INSTRUCTIONS)
    }

    fn all(&self) -> &[Tool] {
        tools::all()
    }

    /// A dropped call leaves no partial change: its transaction is rolled back, or was fully committed.
    async fn answer(&self, call: CallToolRequestParams, meta: &RequestMetaObject) -> Result<Answer, ErrorData> {
        let request = match self.understand(call, meta) {
            Ok(request) => request,
            Err(error) => return Ok(error.into()),
        };
        let changes = matches!(request, (_, Request::Change(_), _));
        match tokio::time::timeout(CALL_TIMEOUT, self.carry_out(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(ChangeFault::NotDone(error))) => {
                tracing::error!(%error, "the database rejected a call");
                Ok(store_unavailable().into())
            }
            Ok(Err(ChangeFault::Unsettled(error))) => {
                tracing::error!(%error, "a commit was begun and its outcome is unknown");
                Err(unsettled())
            }
            // The time limit may have expired during the commit.
            Err(_) if changes => {
                tracing::error!("the database did not answer a change in time");
                Err(unsettled())
            }
            Err(_) => {
                tracing::error!("the database did not answer in time");
                Ok(store_unavailable().into())
            }
        }
    }
}
