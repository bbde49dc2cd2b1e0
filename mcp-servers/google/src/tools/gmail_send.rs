//! `gmail_send`

use std::sync::Arc;

use gavel_mcp_base::{
    Answer, Call, Class, Code as Common, Fault, Kind, Moment, Tool, ToolError, Whole, internal, invalid, missing, text,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::of_arguments;
use crate::address::{Given, Recipient, recipients, too_many};
use crate::auth::Access;
use crate::effect::{Earlier, Effect, NOT_KEPT};
use crate::error::Code;
use crate::google::gmail::{Lookup, Mail, Original, ReplyTo};
use crate::google::{Google, Sent};
use crate::google::{is_refused, refusal};
use crate::mime::{self, Email};
use crate::rights::{As, Right};
use crate::server::{self, Service};
use crate::settings::Limits;
use crate::{address, attachment};

pub(crate) const NAME: &str = "gmail_send";

const MAX_SUBJECT: usize = 900;
const MAX_ID: usize = 200;

const DESCRIPTION: &str = "\
Send one e-mail from the user's own Gmail account, as plain text and, if needed, also as HTML. It is sent at once and cannot be \
undone, so the recipients, the subject and the text must be what the user wants; never make up an address. To answer a \
message give reply_to_message_id or thread_id; the recipients must still be named. Attachments are text files only. \
Answers with the ids of the message and of its thread.";

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Arguments {
    /// The recipients: ann@example.com, or Ann Example <ann@example.com>. At least one.
    to: Vec<Given>,
    /// The recipients of a copy that all recipients see.
    #[serde(default)]
    cc: Vec<Given>,
    /// The recipients of a copy that the other recipients do not see.
    #[serde(default)]
    bcc: Vec<Given>,
    /// The subject, in one line. In a reply: the subject of the original after `Re: `.
    #[schemars(length(min = 1, max = MAX_SUBJECT))]
    subject: String,
    /// The text, plain.
    #[schemars(extend("x-exact" = true))]
    body: String,
    /// The same text as HTML, for programs that show it. Leave it out unless formatting matters.
    #[schemars(extend("x-exact" = true, "contentMediaType" = "text/html"))]
    html_body: Option<String>,
    #[serde(default)]
    #[schemars(length(max = attachment::MOST))]
    attachments: Vec<attachment::Given>,
    /// The Gmail id of the message that this answers.
    #[schemars(length(min = 1, max = MAX_ID))]
    reply_to_message_id: Option<String>,
    /// The Gmail id of the thread whose last message this answers.
    #[schemars(length(min = 1, max = MAX_ID))]
    thread_id: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct Answered {
    /// The message that was sent.
    message: Message,
    /// An earlier call with the same key had sent it, and its answer was lost.
    recovered: bool,
}

#[derive(Serialize, JsonSchema)]
struct Message {
    id: String,
    thread_id: String,
    subject: String,
    to: Vec<String>,
    cc: Vec<String>,
    bcc: Vec<String>,
    /// The names of the files that went with it.
    attachments: Vec<String>,
}

pub(crate) fn tool() -> Tool<Service> {
    let run = |service: Arc<Service>, call: Call<Arguments>| async move {
        let sent = service.effect(NAME, call, parse).await?;
        Ok(Whole::<Answered>::from(sent))
    };
    let tool = Tool::new(NAME, "Send an e-mail", DESCRIPTION, Kind::Acts, run)
        .open_world(true)
        .with_class();
    let tool = tool.with_argument("attachments", json!({ "description": attachment::description() }));
    tool.with_settings(json!({
        "preflight": "google_account",
        "recipients": ["to", "cc", "bcc"],
        "freeArguments": ["subject", "body", "html_body", "attachments", "reply_to_message_id", "thread_id"],
        "singleLine": ["subject", "attachments[].filename"]
    }))
}

/// A call with parsed arguments.
#[derive(Debug)]
pub(crate) struct Request {
    email: Email,
    reply_to: Option<ReplyTo>,
    /// If both a message and a thread are named, they must belong together.
    thread_id: Option<String>,
}

pub(crate) fn parse(arguments: Arguments, limits: &Limits) -> Result<Request, ToolError> {
    request(arguments, limits).map_err(of_arguments)
}

fn request(arguments: Arguments, limits: &Limits) -> Result<Request, ToolError> {
    let max = limits.recipients;
    let to = recipients("to", &arguments.to, max)?;
    if to.is_empty() {
        return Err(missing("to"));
    }
    let cc = recipients("cc", &arguments.cc, max)?;
    let bcc = recipients("bcc", &arguments.bcc, max)?;
    let count = to.len() + cc.len() + bcc.len();
    if count > max {
        return Err(too_many(count, max));
    }
    let message_id = id("reply_to_message_id", arguments.reply_to_message_id)?;
    let thread_id = id("thread_id", arguments.thread_id)?;
    let reply_to = match (message_id, &thread_id) {
        (Some(id), _) => Some(ReplyTo::Message(id)),
        (None, Some(id)) => Some(ReplyTo::Thread(id.clone())),
        (None, None) => None,
    };
    // Required for replies too: the approver must see what is sent, and the original's subject is untrusted text.
    let subject = arguments.subject;
    if subject.chars().any(char::is_control) {
        return Err(ToolError::new(
            Code::UnsafeText,
            "`subject` contains a line break or another control character.",
        )
        .about("subject"));
    }
    let (text, html) = (arguments.body, arguments.html_body);
    let attachments = attachment::attachments(arguments.attachments)?;
    if text::is_blank(&text) && html.as_deref().is_none_or(text::is_blank) && attachments.is_empty() {
        return Err(invalid(
            "body",
            "is empty, and the e-mail has no HTML and no attachment either: it would have no content",
        ));
    }
    Ok(Request {
        email: Email {
            to,
            cc,
            bcc,
            subject,
            text,
            html,
            attachments,
        },
        reply_to,
        thread_id,
    })
}

fn id(name: &str, id: Option<String>) -> Result<Option<String>, ToolError> {
    let plain = |id: &String| {
        id.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    match id {
        Some(id) if !plain(&id) => Err(invalid(name, "is not an id that Gmail gave")),
        id => Ok(id),
    }
}

/// Could the e-mail be sent? A reply needs an existing original, and the message must not be too long.
pub(crate) async fn check(google: &Google, who: As<'_>, request: &Request, limits: &Limits) -> Result<(), ToolError> {
    let original = original(google, who, request)
        .await
        .map_err(|error| match error.code() {
            "not_found" | "invalid_argument" => error.class(Class::Arguments),
            _ => error,
        })?;
    // Placeholders with the length of the real names.
    let (key, message_id) = ("0".repeat(40), format!("{}@{}", "0".repeat(40), "0".repeat(20)));
    let written = written(&request.email, &message_id, &key, original.as_ref(), limits);
    written.map(drop).map_err(|error| error.class(Class::Arguments))
}

impl server::Request for Request {
    const RIGHT: Right = Right::Send;
    const DONE: &'static str = "this e-mail was sent";

    async fn carry_out(
        self,
        service: &Service,
        effect: &Effect<'_>,
        who: As<'_>,
        access: Access,
        earlier: Earlier,
    ) -> Result<Answer, Fault> {
        let (google, limits) = (&service.google, &service.limits);
        let key = effect.reference();
        let message_id = format!("{key}@{}", domain(&access));
        let since = match &earlier {
            Earlier::None => None,
            Earlier::Begun(open) => Some(open.attempted_at),
            Earlier::Claimed { at, .. } => Some(*at),
        };
        if let Some(since) = since {
            match (google.find_mail(who, &access, &key, &message_id, since).await, &earlier) {
                (Lookup::Found(mail), _) => {
                    tracing::info!("an in-doubt e-mail was found to be sent");
                    return Ok(effect.done(answer(&self.email, &mail, true)).await);
                }
                (_, Earlier::Claimed { never_came: true, .. }) => {}
                (_, Earlier::Claimed { .. }) => return Err(effect.unsettled(Self::DONE, NOT_KEPT)),
                (Lookup::Unclear(why), _) => return Err(effect.unsettled(Self::DONE, why)),
                (Lookup::NotThere, _) if Moment::now().0 - since.0 < limits.settle.as_micros() as i64 => {
                    let why = "it is not in the mailbox yet, and the attempt was made only recently";
                    return Err(effect.unsettled(Self::DONE, why));
                }
                (Lookup::NotThere, _) => tracing::info!("an in-doubt e-mail was found not to be sent"),
            }
        }
        let original = original(google, who, &self).await;
        let prepared = original.and_then(|original| {
            let message = written(&self.email, &message_id, &key, original.as_ref(), limits)?;
            Ok((message, original))
        });
        let (message, original) = prepared?;
        if !effect.claim(&earlier, &access.mailbox).await? {
            let why = "another call with the same key is in progress";
            return Err(effect.unsettled(Self::DONE, why));
        }
        let thread_id = original.map(|original| original.thread_id);
        match google.send_mail(who, &message, thread_id.as_deref()).await {
            Sent::Answered(reply) if reply.status.is_success() => match reply.json::<Mail>() {
                Some(mail) => Ok(effect.done(answer(&self.email, &mail, false)).await),
                None => Err(effect.unsettled(Self::DONE, "Google's answer cannot be read")),
            },
            Sent::Answered(reply) if !is_refused(&reply) => {
                Err(effect.unsettled(Self::DONE, "the error may have occurred after the e-mail was sent"))
            }
            Sent::Answered(reply) => {
                effect.undone().await;
                Err(refusal(&reply, Right::Send.name()).into())
            }
            Sent::Never(error) => {
                effect.undone().await;
                Err(error.into())
            }
            Sent::Unknown => Err(effect.unsettled(Self::DONE, "Google did not answer")),
        }
    }
}

/// The original of a reply.
async fn original(google: &Google, who: As<'_>, request: &Request) -> Result<Option<Original>, ToolError> {
    let Some(reply_to) = &request.reply_to else {
        return Ok(None);
    };
    let original = google.original(who, reply_to).await?;
    if let Some(thread_id) = &request.thread_id
        && *thread_id != original.thread_id
    {
        return Err(invalid("thread_id", "is not the thread of `reply_to_message_id`"));
    }
    // With another subject, Google would silently begin a new thread.
    if !original.goes_with(&request.email.subject) {
        return Err(another_subject(&original.subject, &request.email.subject));
    }
    Ok(Some(original))
}

fn another_subject(original: &str, given: &str) -> ToolError {
    let named = |subject: &str| {
        let seen = subject.chars().filter(|c| !address::is_unsafe(*c));
        seen.take(MAX_SUBJECT).collect::<String>()
    };
    let (original, given) = (named(original), named(given));
    let rule = format!(
        "is \"{given}\", but the thread to reply to has the subject \"{original}\" (another person's text): Google adds an e-mail \
         with another subject to no thread. Give the subject of the thread after `Re: `, or leave `thread_id` and \
         `reply_to_message_id` out to begin a new one"
    );
    invalid("subject", &rule).with("subject_of_thread", original)
}

fn written(
    email: &Email,
    message_id: &str,
    key: &str,
    original: Option<&Original>,
    limits: &Limits,
) -> Result<Vec<u8>, ToolError> {
    let message = mime::write(email, message_id, key, original).map_err(|error| {
        tracing::error!(%error, "an e-mail could not be written");
        internal()
    })?;
    let (length, max) = (message.len(), limits.message_bytes);
    if length > max {
        let words = format!("The e-mail has {length} bytes; at most {max} are allowed.");
        let error = ToolError::new(Common::TooLong, words);
        return Err(error.with("max", max).with("length", length));
    }
    Ok(message)
}

/// The domain for a Message-ID: the mailbox's own, if the mailbox is an address.
fn domain(access: &Access) -> &str {
    access
        .mailbox
        .rsplit_once('@')
        .map_or("gmail.com", |(_, domain)| domain)
}

fn answer(email: &Email, mail: &Mail, recovered: bool) -> Answer {
    let shown = |recipients: &[Recipient]| recipients.iter().map(Recipient::to_string).collect();
    Answer::from_body(&Answered {
        message: Message {
            id: mail.id.clone(),
            thread_id: mail.thread_id.clone(),
            subject: email.subject.clone(),
            to: shown(&email.to),
            cc: shown(&email.cc),
            bcc: shown(&email.bcc),
            attachments: email.attachments.iter().map(|one| one.filename.clone()).collect(),
        },
        recovered,
    })
}
