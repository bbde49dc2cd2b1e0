//! The service behind the tools: whose call it is, and what a call with an effect goes through.

use gavel_mcp_base::{Answer, Call, Fault, Meta, ToolError, UserId};
use gavel_mcp_store::Claim;
use tokio::time::Instant;

use crate::auth::{Access, Tokens};
use crate::effect::{Begin, Earlier, Effect};
use crate::error::{Way, with_next_step};
use crate::google::Google;
use crate::google::connections;
use crate::rights::{As, Right};
use crate::settings::{Credentials, Limits, RESERVE, Settings};
use crate::store::Store;

/// What the tools need.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) google: Google,
    store: Store,
    pub(crate) limits: Limits,
    user: Option<UserId>,
    way: Way,
}

/// A call with an effect, with parsed arguments.
pub(crate) trait Request: Send {
    /// The right to which the user must have consented.
    const RIGHT: Right;

    /// What is unknown if its outcome is: "this e-mail was sent".
    const DONE: &'static str;

    /// Has the effect, at most once per key, unless an earlier call had it.
    fn carry_out(
        self,
        service: &Service,
        effect: &Effect<'_>,
        who: As<'_>,
        access: Access,
        earlier: Earlier,
    ) -> impl Future<Output = Result<Answer, Fault>> + Send;
}

impl Service {
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
            Credentials::ServiceAccount { .. } => Way::Delegation,
        };
        let http = connections()?;
        let tokens = Tokens::new(http.clone(), store.clone(), places.token.clone(), credentials, scopes);
        Ok(Self {
            google: Google::new(http, tokens, places),
            store,
            limits,
            user,
            way,
        })
    }

    pub(crate) fn user(&self, given: &Meta) -> Result<UserId, ToolError> {
        given.user_or(self.user.as_ref())
    }

    /// Adds the next step to an error.
    pub(crate) fn refused(&self, fault: Fault, user: &UserId) -> Fault {
        match fault {
            Fault::Refused(error) => Fault::Refused(with_next_step(error, user, &self.way)),
            unsettled => unsettled,
        }
    }

    /// Carries out a call with an effect. A call that is dropped while Google executes it stays in doubt under its key.
    pub(crate) async fn effect<A, Q: Request>(
        &self,
        tool: &'static str,
        call: Call<A>,
        parse: impl FnOnce(A, &Limits) -> Result<Q, ToolError>,
    ) -> Result<Answer, Fault> {
        let Call {
            arguments,
            meta,
            digest,
            ..
        } = call;
        let user = self.user(&meta)?;
        let claim = meta.idempotency_key()?.map(|key| Claim {
            user: user.clone(),
            tool,
            key,
            digest,
        });
        let (first_attempt, account) = (meta.first_attempt()?, meta.account()?);
        let deadline = Instant::now() + self.limits.timeout;
        let who = As {
            user: &user,
            mailbox: account.as_deref(),
            deadline,
        };
        let parse = |limits: &Limits| parse(arguments, limits);
        let effect = Effect::new(&self.store, claim, first_attempt);
        let work = async {
            // A completed call is not checked again: since then its event may have begun, or the account may have been
            // disconnected.
            let earlier = match effect.begin().await? {
                Begin::Answered(answer) => return Ok(answer),
                Begin::After(earlier) => earlier,
            };
            let (request, access) = match self.prepared(parse, who).await {
                Ok(prepared) => prepared,
                Err(error) if earlier.is_open() => {
                    let why = format!("this call was rejected before that could be checked: {}", error.code());
                    return Err(effect.unsettled("an earlier call with this key took effect", &why));
                }
                Err(error) => return Err(error.into()),
            };
            // Another mailbox does not show what an earlier call did.
            if matches!(&earlier, Earlier::Begun(open) if open.mailbox != access.mailbox) {
                return Err(effect.unsettled(Q::DONE, "the user has connected another account since"));
            }
            // The lookup and the effect use the same mailbox, even if the user connects another one in the meantime.
            let mailbox = access.mailbox.clone();
            let who = As {
                mailbox: Some(&mailbox),
                ..who
            };
            request.carry_out(self, &effect, who, access, earlier).await
        };
        let done = tokio::time::timeout_at(deadline + RESERVE, work)
            .await
            .unwrap_or_else(|_| {
                let why = "the time limit was exceeded";
                Err(effect.unsettled("this call took effect", why))
            });
        done.map_err(|fault| self.refused(fault, &user))
    }

    /// The checks before Google is called.
    async fn prepared<Q: Request>(
        &self,
        parse: impl FnOnce(&Limits) -> Result<Q, ToolError>,
        who: As<'_>,
    ) -> Result<(Q, Access), ToolError> {
        let request = parse(&self.limits)?;
        let access = self.google.access(who, Q::RIGHT).await?;
        Ok((request, access))
    }
}
