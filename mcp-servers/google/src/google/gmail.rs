//! Gmail: sends messages, reads the originals of replies, and finds out whether a message was sent.
//!
//! Gmail replaces the given Message-ID with its own, at least for some accounts, and a search finds a message only
//! after it is indexed. So a message that a search does not find may have been sent. It counts as not sent only if the
//! label SENT, newest first, has nothing since the attempt that could be it: each of our messages has its key in a
//! header.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gavel_mcp_base::{Moment, ToolError};
use serde::Deserialize;
use serde_json::json;

use super::Reply;
use super::{Google, Sent, at, get, post};
use crate::auth::Access;
use crate::error::{Code, missing_scope, unavailable};
use crate::rights::{As, Right};

/// The header with the key of a message, in the sender's own copy.
pub(crate) const KEY_HEADER: &str = "X-Gavel-Message-Key";

/// How many sent messages are checked.
const MAX_LOOKED_AT: usize = 50;
/// The most that Google's clock and ours may differ.
const SKEW_MICROS: i64 = 5 * 60 * 1_000_000;
/// A reply names its ancestors; of a long thread, the latest are enough.
const MAX_REFERENCES: usize = 20;

/// An existing message.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Mail {
    pub(crate) id: String,
    pub(crate) thread_id: String,
}

/// The message or thread to reply to.
#[derive(Debug, Clone)]
pub(crate) enum ReplyTo {
    Message(String),
    /// The last message of a thread.
    Thread(String),
}

/// The data of the original that a reply needs.
#[derive(Debug, Clone)]
pub(crate) struct Original {
    pub(crate) thread_id: String,
    pub(crate) message_id: Option<String>,
    /// Text from another person, untrusted.
    pub(crate) subject: String,
    /// Its ancestors and itself, oldest first, without brackets.
    pub(crate) references: Vec<String>,
}

/// Was a message sent?
#[derive(Debug)]
pub(crate) enum Lookup {
    Found(Mail),
    NotThere,
    /// Unknown; the text gives the reason.
    Unclear(&'static str),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Found {
    id: String,
    thread_id: String,
    internal_date: Option<String>,
    #[serde(default)]
    label_ids: Vec<String>,
    #[serde(default)]
    payload: Payload,
}

#[derive(Debug, Default, Deserialize)]
struct Payload {
    #[serde(default)]
    headers: Vec<Header>,
}

#[derive(Debug, Deserialize)]
struct Header {
    name: String,
    value: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    messages: Option<Vec<Mail>>,
    result_size_estimate: Option<u64>,
    next_page_token: Option<String>,
}

impl Listed {
    /// An answer that neither lists messages nor says that there are none is invalid.
    fn read(reply: &Reply) -> Result<Self, ToolError> {
        reply
            .json()
            .filter(|listed: &Self| listed.messages.is_some() || listed.result_size_estimate == Some(0))
            .ok_or_else(unavailable)
    }
}

impl Found {
    fn header(&self, name: &str) -> Option<&str> {
        let headers = &self.payload.headers;
        let header = headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
        header.map(|header| header.value.trim())
    }

    fn mail(self) -> Mail {
        Mail {
            id: self.id,
            thread_id: self.thread_id,
        }
    }
}

impl Original {
    /// Does Google add an e-mail with this subject to the thread? The subjects must match, except for reply prefixes.
    pub(crate) fn goes_with(&self, subject: &str) -> bool {
        // Gmail returns decoded subjects; a subject that is still encoded cannot be compared.
        let is_encoded = self.subject.contains("=?") && self.subject.contains("?=");
        is_encoded || matter(&self.subject) == matter(subject)
    }
}

/// The core of a subject: lower case, normalized white space, without the prefixes of replies and forwards, and without
/// invisible characters, which a caller could not repeat.
fn matter(subject: &str) -> String {
    let is_seen = |c: &char| c.is_whitespace() || !crate::address::is_unsafe(*c);
    let seen: String = subject.chars().filter(is_seen).collect();
    let words: Vec<_> = seen.split_whitespace().collect();
    let words = words.join(" ").to_lowercase();
    let mut matter = words.as_str();
    while let Some(rest) = ["re:", "fwd:", "fw:"]
        .iter()
        .find_map(|prefix| matter.strip_prefix(prefix))
    {
        matter = rest.trim_start();
    }
    matter.to_owned()
}

impl Google {
    /// Sends a message, which contains its own recipients.
    pub(crate) async fn send_mail(&self, who: As<'_>, message: &[u8], thread_id: Option<&str>) -> Sent {
        let mut body = json!({ "raw": URL_SAFE_NO_PAD.encode(message) });
        if let Some(thread_id) = thread_id {
            body["threadId"] = thread_id.into();
        }
        match post(self.mailbox(&["messages", "send"]), &body) {
            Ok(request) => self.change(who, Right::Send, &request).await,
            Err(error) => Sent::Never(error),
        }
    }

    /// Reads the original for a reply.
    pub(crate) async fn original(&self, who: As<'_>, reply_to: &ReplyTo) -> Result<Original, ToolError> {
        const HEADERS: [&str; 3] = ["Message-ID", "References", "Subject"];
        let access = self.access(who, Right::Send).await?;
        if !access.has(Right::ReadMail) {
            return Err(missing_scope(Right::ReadMail.name()));
        }
        let found = match reply_to {
            ReplyTo::Message(id) => self.message(who, id, &HEADERS).await?,
            ReplyTo::Thread(id) => {
                #[derive(Deserialize)]
                struct Thread {
                    #[serde(default)]
                    messages: Vec<Found>,
                }
                let mut url = self.mailbox(&["threads", id]);
                only_headers(&mut url, &HEADERS);
                let reply = self.read(who, Right::ReadMail, &get(url)).await?;
                let thread: Thread = reply.json().ok_or_else(unavailable)?;
                let is_draft = |found: &Found| found.label_ids.iter().any(|label| label == "DRAFT");
                let last = thread.messages.into_iter().rfind(|found| !is_draft(found));
                last.ok_or_else(|| ToolError::new(Code::NotFound, "This thread has no message. Nothing was done."))?
            }
        };
        let message_id = found.header("Message-ID").and_then(|text| ids(text).next());
        let mut references: Vec<_> = ids(found.header("References").unwrap_or_default()).collect();
        references.extend(message_id.clone());
        let older = references.len().saturating_sub(MAX_REFERENCES);
        references.drain(..older);
        Ok(Original {
            message_id,
            subject: found.header("Subject").unwrap_or_default().to_owned(),
            references,
            thread_id: found.thread_id,
        })
    }

    /// Looks for the message that an attempt at `since` may have sent.
    pub(crate) async fn find_mail(
        &self,
        who: As<'_>,
        access: &Access,
        key: &str,
        message_id: &str,
        since: Moment,
    ) -> Lookup {
        if !access.has(Right::ReadMail) {
            return Lookup::Unclear("the connection does not allow reading the mailbox");
        }
        match self.search(who, message_id).await {
            Ok(Some(mail)) => return Lookup::Found(mail),
            Ok(None) => {}
            // With gmail.metadata no search is possible, but the label SENT can be read.
            Err(error) if ["missing_scope", "access_denied"].contains(&error.code()) => {}
            Err(_) => return Lookup::Unclear("the mailbox could not be searched"),
        }
        let looked = self.look_through_sent(who, key, message_id, since).await;
        looked.unwrap_or(Lookup::Unclear("the sent messages could not be read"))
    }

    async fn search(&self, who: As<'_>, message_id: &str) -> Result<Option<Mail>, ToolError> {
        let mut url = self.mailbox(&["messages"]);
        url.query_pairs_mut()
            .append_pair("q", &format!("rfc822msgid:{message_id}"))
            .append_pair("includeSpamTrash", "true")
            .append_pair("maxResults", "1");
        let reply = self.read(who, Right::ReadMail, &get(url)).await?;
        let listed = Listed::read(&reply)?;
        Ok(listed.messages.unwrap_or_default().into_iter().next())
    }

    async fn look_through_sent(
        &self,
        who: As<'_>,
        key: &str,
        message_id: &str,
        since: Moment,
    ) -> Result<Lookup, ToolError> {
        let mut url = self.mailbox(&["messages"]);
        url.query_pairs_mut()
            .append_pair("labelIds", "SENT")
            .append_pair("includeSpamTrash", "true")
            .append_pair("maxResults", &MAX_LOOKED_AT.to_string());
        let reply = self.read(who, Right::ReadMail, &get(url)).await?;
        let listed = Listed::read(&reply)?;
        let mut unclear = None;
        for mail in listed.messages.unwrap_or_default() {
            let found = self.message(who, &mail.id, &[KEY_HEADER, "Message-ID"]).await?;
            let is_it = found.header(KEY_HEADER) == Some(key)
                || found.header("Message-ID").and_then(|text| ids(text).next()).as_deref() == Some(message_id);
            if is_it {
                return Ok(Lookup::Found(found.mail()));
            }
            let date = found
                .internal_date
                .as_deref()
                .and_then(|millis| millis.parse::<i64>().ok());
            match date {
                Some(millis) if millis * 1000 < since.0 - SKEW_MICROS => {
                    return Ok(unclear.unwrap_or(Lookup::NotThere));
                }
                // A message with another key is another message of ours.
                _ if found.header(KEY_HEADER).is_some() => {}
                _ => {
                    unclear = Some(Lookup::Unclear(
                        "another message was sent from this mailbox in the meantime, which could be this one",
                    ));
                }
            }
        }
        if listed.next_page_token.is_some() {
            return Ok(Lookup::Unclear(
                "too many messages were sent from this mailbox in the meantime",
            ));
        }
        Ok(unclear.unwrap_or(Lookup::NotThere))
    }

    async fn message(&self, who: As<'_>, id: &str, headers: &[&str]) -> Result<Found, ToolError> {
        let mut url = self.mailbox(&["messages", id]);
        only_headers(&mut url, headers);
        let reply = self.read(who, Right::ReadMail, &get(url)).await?;
        reply.json().ok_or_else(unavailable)
    }

    fn mailbox(&self, segments: &[&str]) -> url::Url {
        at(
            &self.places.gmail,
            &[&["gmail", "v1", "users", "me"], segments].concat(),
        )
    }
}

/// Bodies are never requested.
fn only_headers(url: &mut url::Url, headers: &[&str]) {
    let mut query = url.query_pairs_mut();
    query.append_pair("format", "metadata");
    for header in headers {
        query.append_pair("metadataHeaders", header);
    }
}

/// The message ids in an untrusted header, without brackets; other content is dropped.
fn ids(text: &str) -> impl Iterator<Item = String> {
    const MAX: usize = 500;
    let fits = |id: &&str| {
        (1..=MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>".contains(&byte))
    };
    let inside = text.split('<').skip(1).filter_map(|rest| rest.split_once('>'));
    inside.map(|(id, _)| id).filter(fits).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_goes_with_another_but_for_what_replies_begin_with() {
        for (original, subject, goes) in [
            ("Plans", "Re: Plans", true),
            ("Re: Plans", "plans ", true),
            ("RE: fwd: The \t plans", "Fw:the  Plans", true),
            ("AW: Plans", "Re: AW: Plans", true),
            ("\u{200f}Plans\u{ad}", "Re: Plans", true),
            ("", "Re:", true),
            ("=?utf-8?Q?Pl=C3=A4ne?=", "Re: Pläne", true),
            ("Plans", "Re: Plan", false),
            ("Plans", "Late", false),
            ("Plans", "Re Plans", false),
            ("", "Plans", false),
        ] {
            let original = Original {
                thread_id: String::new(),
                message_id: None,
                subject: original.to_owned(),
                references: Vec::new(),
            };
            assert_eq!(original.goes_with(subject), goes, "{original:?}: {subject}");
        }
    }

    #[test]
    fn message_ids_are_taken_out_of_whatever_surrounds_them() {
        let read = |text| ids(text).collect::<Vec<_>>();
        assert_eq!(read("<a@b> <c@d>\r\n <e@f>"), ["a@b", "c@d", "e@f"]);
        assert_eq!(read("(comment) <a@b>"), ["a@b"]);
        assert!(read("a@b <> < x> <ü@b> <a\r\nBcc: e@x>").is_empty());
    }
}
