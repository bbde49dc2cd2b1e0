//! The protocol layer of a tool call.

use gavel_mcp_base::server::Tools;
use gavel_mcp_base::{Answer, Code as Common, Moment, ToolError, UserId, digest, meta};
use rmcp::ErrorData;
use rmcp::model::{
    CallToolRequestParams, Implementation, JsonObject, RequestMetaObject, ServerCapabilities, ServerConfig, Tool,
};
use tokio::time::Instant;

use crate::auth::{Access, Tokens};
use crate::effect::{Begin, Effect};
use crate::error::{Fault, Way, internal, with_next_step};
use crate::google::Google;
use crate::google::http::Http;
use crate::rights::As;
use crate::settings::{Credentials, Limits, RESERVE, Settings};
use crate::store::{Claim, Store};
use crate::tools::{self, Request, calendar_event_create, gmail_send, google_account};

const INSTRUCTIONS: &str = "\
The user's own Gmail and Google Calendar. gmail_send and calendar_event_create reach other people at once and cannot be undone: \
use only addresses that the user gave or that another tool found, and tell the user who receives it. not_connected, reconnect_required and missing_scope mean that \
the user must connect the Google account (again); nothing else helps.";

/// The tools and their dependencies.
#[derive(Debug)]
pub(crate) struct GoogleTools {
    google: Google,
    store: Store,
    limits: Limits,
    user: Option<UserId>,
    way: Way,
}

/// The user of a call and its request.
struct Call {
    user: UserId,
    name: &'static str,
    arguments: Option<JsonObject>,
    claim: Option<Claim>,
    first_attempt: Option<Moment>,
    /// The account that the approver was shown.
    account: Option<String>,
}

impl GoogleTools {
    pub(crate) fn new(settings: Settings, store: Store) -> anyhow::Result<Self> {
        let Settings {
            user,
            database: _,
            credentials,
            scopes,
            places,
            limits,
            callback: _,
            connect_page,
        } = settings;
        let way = match &credentials {
            Credentials::Client(_) => Way::Consent(connect_page),
            Credentials::ServiceAccount(_) => Way::Delegation,
        };
        let http = Http::new(&places)?;
        let tokens = Tokens::new(http.clone(), store.clone(), places.token.clone(), credentials, scopes);
        Ok(Self {
            google: Google::new(http, tokens, places),
            store,
            limits,
            user,
            way,
        })
    }

    fn user(&self, given: &RequestMetaObject) -> Result<UserId, ToolError> {
        meta::named_user(given)?
            .or_else(|| self.user.clone())
            .ok_or_else(user_required)
    }

    /// Is the account connected, and does it allow the call? This has no effect, so it needs no idempotency key.
    async fn account(&self, user: &UserId, arguments: Option<JsonObject>) -> Result<Answer, ToolError> {
        let question = google_account::parse(arguments, &self.limits)?;
        let who = As {
            user,
            mailbox: None,
            deadline: Instant::now() + self.limits.timeout,
        };
        google_account::carry_out(&self.google, who, &question, &self.limits).await
    }

    /// Adds the next step to an error.
    fn refused(&self, error: ToolError, user: &UserId) -> Answer {
        with_next_step(error, user, &self.way).into()
    }

    fn taken(&self, call: CallToolRequestParams, given: &RequestMetaObject) -> Result<Call, ToolError> {
        let user = self.user(given)?;
        let name = match &*call.name {
            gmail_send::NAME => gmail_send::NAME,
            calendar_event_create::NAME => calendar_event_create::NAME,
            _ => return Err(internal()),
        };
        let claim = meta::idempotency_key(given)?.map(|key| Claim {
            user: user.clone(),
            tool: name,
            key,
            digest: digest(call.arguments.as_ref()),
        });
        Ok(Call {
            user,
            name,
            first_attempt: meta::first_attempt(given)?,
            account: meta::account(given)?,
            arguments: call.arguments,
            claim,
        })
    }

    async fn carry_out(&self, call: Call) -> Result<Answer, Fault> {
        let Call {
            user,
            name,
            arguments,
            claim,
            first_attempt,
            account,
        } = call;
        let deadline = Instant::now() + self.limits.timeout;
        let who = As {
            user: &user,
            mailbox: account.as_deref(),
            deadline,
        };
        let effect = Effect::new(&self.store, claim, first_attempt);
        let work = async {
            // A completed call is not checked again: since then its event may have begun, or the account may have been
            // disconnected.
            let earlier = match effect.begin().await? {
                Begin::Answered(answer) => return Ok(answer),
                Begin::After(earlier) => earlier,
            };
            let (request, access) = match self.prepared(name, arguments, who).await {
                Ok(prepared) => prepared,
                Err(error) if earlier.is_open() => {
                    let why = format!("this call was rejected before that could be checked: {}", error.code());
                    return Err(effect.unsettled("an earlier call with this key took effect", &why));
                }
                Err(error) => return Err(error.into()),
            };
            // The lookup and the effect use the same mailbox, even if the user connects another one in the meantime.
            let mailbox = access.mailbox.clone();
            let who = As {
                mailbox: Some(&mailbox),
                ..who
            };
            match request {
                Request::Mail(request) => {
                    gmail_send::carry_out(&self.google, &effect, who, access, earlier, request, &self.limits).await
                }
                Request::Event(request) => {
                    calendar_event_create::carry_out(&self.google, &effect, who, access, earlier, request).await
                }
            }
        };
        tokio::time::timeout_at(deadline + RESERVE, work)
            .await
            .unwrap_or_else(|_| Err(effect.unsettled("this call took effect", "the time limit was exceeded")))
    }

    /// The checks before Google is called.
    async fn prepared(
        &self,
        name: &str,
        arguments: Option<JsonObject>,
        who: As<'_>,
    ) -> Result<(Request, Access), ToolError> {
        let request = Request::parse(name, arguments, &self.limits)?;
        let access = self.google.access(who, request.right()).await?;
        Ok((request, access))
    }
}

impl Tools for GoogleTools {
    fn about(&self) -> ServerConfig {
        let mut server = Implementation::new("gavel-mcp-google", env!("CARGO_PKG_VERSION"));
        server.title = Some("Gmail and Google Calendar".to_owned());
        server.description = Some(env!("CARGO_PKG_DESCRIPTION").to_owned());
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(server)
            .with_instructions(INSTRUCTIONS)
    }

    fn all(&self) -> &[Tool] {
        tools::all()
    }

    /// A call that is dropped while Google executes it stays in doubt under its key.
    async fn answer(&self, call: CallToolRequestParams, meta: &RequestMetaObject) -> Result<Answer, ErrorData> {
        if call.name == google_account::NAME {
            return Ok(match self.user(meta) {
                Ok(user) => {
                    let reported = self.account(&user, call.arguments).await;
                    reported.unwrap_or_else(|error| self.refused(error, &user))
                }
                Err(error) => error.into(),
            });
        }
        let call = match self.taken(call, meta) {
            Ok(taken) => taken,
            Err(error) => return Ok(error.into()),
        };
        let user = call.user.clone();
        match self.carry_out(call).await {
            Ok(answer) => Ok(answer),
            Err(Fault::Refused(error)) => Ok(self.refused(error, &user)),
            Err(Fault::Unsettled(why)) => Err(ErrorData::internal_error(why, None)),
        }
    }
}

fn user_required() -> ToolError {
    ToolError::new(
        Common::UserRequired,
        format!(
            "The call names no user. The client must send the user's id in `_meta[\"{}\"]`, or the \
             server must be started with `--user NAME`.",
            meta::USER
        ),
    )
}
